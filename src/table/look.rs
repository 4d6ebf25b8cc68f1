//! What lies in a table: live files, and data files that are not ours.

use super::{TableError, TableResult, Warehouse, disk};
use crate::partition::{PartitionKey, PartitionSpec};
use crate::run::{Decided, PartFile};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// A file, or another thing that is no folder, that a reader of the table may take for data.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) path: PathBuf,
    /// The folder below the table, `/` between its parts, if the file is what the one file of a partition would be.
    pub(super) key_text: Option<String>,
    /// Its name, if it is one that we give.
    pub(super) part: Option<PartFile>,
}

/// A data file that Refrain did not write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignFile {
    /// Where it is.
    pub path: PathBuf,
    /// The partition in whose folder it lies, at any depth; none where it lies in no partition's.
    pub partition: Option<PartitionKey>,
}

impl Warehouse {
    /// The digest of a partition's live file of this name in hex, hashed anew; none where there is none.
    pub fn live_sha256(&self, pipeline: &str, key: &PartitionKey, file: PartFile) -> TableResult<Option<String>> {
        let folder = self.partition_folder(pipeline, key)?;
        if !disk::is_folder_below(self.root(), &folder)? {
            return Ok(None);
        }
        let path = folder.join(file.as_str());
        match disk::open_regular(&path)? {
            Some(mut file) => disk::sha256(&mut file, &path).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a partition has a file of ours under another name than this: one of another format, that goes with its folder.
    pub fn has_other_part(&self, pipeline: &str, key: &PartitionKey, file: PartFile) -> TableResult<bool> {
        Ok(self.parts(pipeline, key)?.into_iter().any(|part| part != file))
    }

    /// The files of ours that a partition has. More than one only where something else than Refrain put them there.
    pub(super) fn parts(&self, pipeline: &str, key: &PartitionKey) -> TableResult<Vec<PartFile>> {
        let folder = self.partition_folder(pipeline, key)?;
        let mut found = Vec::new();
        if !disk::is_folder_below(self.root(), &folder)? {
            return Ok(found);
        }
        for part in PartFile::ALL {
            let path = folder.join(part.as_str());
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() => found.push(part),
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(TableError::io("look at", &path, e)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The data files in these partitions' folders, at any depth, that are not their one file: readers would count both.
    pub fn foreign_files(&self, pipeline: &str, keys: &[PartitionKey]) -> TableResult<Vec<ForeignFile>> {
        let mut foreign = Vec::new();
        for key in keys {
            let files = self.files_beside(pipeline, key)?.into_iter();
            foreign.extend(files.map(|file| ForeignFile { path: file.path, partition: Some(key.clone()) }));
        }
        foreign.sort();
        Ok(foreign)
    }

    /// The data files in a partition's folder that are not its one file.
    pub(super) fn files_beside(&self, pipeline: &str, key: &PartitionKey) -> TableResult<Vec<DataFile>> {
        let (table, folder) = (self.table_folder(pipeline)?, self.partition_folder(pipeline, key)?);
        let mut files = self.data_files(&table, &folder)?;
        files.retain(|file| file.key_text.as_deref() != Some(key.as_str()));
        Ok(files)
    }

    /// Whether a partition is as decided, and nothing beside it that readers would count too.
    pub fn is_as_decided(&self, pipeline: &str, decided: &Decided) -> TableResult<bool> {
        if !self.files_beside(pipeline, &decided.partition)?.is_empty() {
            return Ok(false);
        }
        let parts = self.parts(pipeline, &decided.partition)?;
        let Some(content) = &decided.content else { return Ok(parts.is_empty()) };
        let live = self.live_sha256(pipeline, &decided.partition, content.file)?;
        Ok(parts == [content.file] && live.as_ref() == Some(&content.sha256))
    }

    /// The data files anywhere in a table that are not the one file of a partition, by `spec` or one of `known` (the
    /// catalog's, which an earlier definition may have cut otherwise): a full run must not leave them to be counted.
    pub fn foreign_files_of_table(
        &self,
        pipeline: &str,
        spec: &PartitionSpec,
        known: &[PartitionKey],
    ) -> TableResult<Vec<ForeignFile>> {
        let table = self.table_folder(pipeline)?;
        let known: BTreeSet<&str> = known.iter().map(PartitionKey::as_str).collect();
        let is_ours = |text: &str| known.contains(text) || parse(spec, text).is_some();
        let files = self.table_files(pipeline)?.into_iter();
        let foreign = files.filter(|file| !file.key_text.as_deref().is_some_and(is_ours)).map(|file| {
            let partition = key_text(&table, &file.path).and_then(|text| partition_around(spec, &text));
            ForeignFile { path: file.path, partition }
        });
        Ok(foreign.collect())
    }

    /// The partitions that have a file, whether the catalog knows them or not, in the order of their keys.
    pub fn live_partitions(&self, pipeline: &str, spec: &PartitionSpec) -> TableResult<Vec<PartitionKey>> {
        let files = self.table_files(pipeline)?.into_iter();
        let keys: BTreeSet<PartitionKey> = files.filter_map(|f| parse(spec, &f.key_text?)).collect();
        Ok(keys.into_iter().collect())
    }

    /// Everything in a table that a reader may take for data, sorted by path.
    pub(super) fn table_files(&self, pipeline: &str) -> TableResult<Vec<DataFile>> {
        let table = self.table_folder(pipeline)?;
        self.data_files(&table, &table)
    }

    fn data_files(&self, table: &Path, folder: &Path) -> TableResult<Vec<DataFile>> {
        let mut files = Vec::new();
        if !disk::is_folder_below(self.root(), folder)? {
            return Ok(files);
        }
        let walk = WalkDir::new(folder).min_depth(1).sort_by_file_name().follow_links(false).into_iter();
        for entry in walk.filter_entry(|entry| !is_hidden(entry.file_name())) {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {}
                Ok(entry) => {
                    let name = entry.file_name().to_str().filter(|_| entry.file_type().is_file());
                    let part = name.and_then(PartFile::parse);
                    let key_text = part.and_then(|_| key_text(table, entry.path()));
                    files.push(DataFile { path: entry.into_path(), key_text, part });
                }
                Err(e) => {
                    let path = e.path().unwrap_or(folder).to_owned();
                    let source = std::io::Error::from(e);
                    // Another run of the same table may be clearing its partitions meanwhile.
                    if source.kind() != ErrorKind::NotFound {
                        return Err(TableError::io("list", &path, source));
                    }
                }
            }
        }
        Ok(files)
    }
}

pub(super) fn parse(spec: &PartitionSpec, text: &str) -> Option<PartitionKey> {
    spec.parse_key(text).ok().filter(|key| key.as_str() == text)
}

/// The partition by `spec` whose folder is this one below the table, or one above it.
fn partition_around(spec: &PartitionSpec, folder: &str) -> Option<PartitionKey> {
    let end = folder.match_indices('/').nth(spec.columns().len() - 1).map_or(folder.len(), |(at, _)| at);
    parse(spec, folder.get(..end)?)
}

fn key_text(table: &Path, file: &Path) -> Option<String> {
    let below = file.parent()?.strip_prefix(table).ok()?;
    Some(below.to_str()?.to_owned())
}

/// Whether readers pass over a name: Spark's rule, by which a folder `_column=value` is a partition.
fn is_hidden(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b".") || (name.starts_with(b"_") && !name.contains(&b'=')) || name.ends_with(b".crc")
}
