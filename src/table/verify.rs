//! Verifying: the catalog against the files.

use super::look::DataFile;
use super::manifest::MANIFEST_FILE;
use super::{IdentityError, TableError, TableResult, Warehouse, disk, identity, staging};
use crate::partition::{PartitionKey, PartitionSpec};
use crate::pipeline::Definition;
use crate::run::{CatalogEntry, PartFile};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;

/// Something in a table or in the warehouse that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The partition, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionKey>,
    /// The file or folder.
    pub path: String,
    /// What was found and what was expected.
    pub detail: String,
}

/// What is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The catalog has the partition, the disk has no file.
    Missing,
    /// The file is not the one that the catalog has, but whole.
    Changed,
    /// The file is no whole file of its format: cut short, or written over.
    Torn,
    /// The disk has the partition, the catalog does not.
    Unknown,
    /// A data file that is no partition's.
    Foreign,
    /// The table's manifest does not say what the catalog does.
    Manifest,
    /// Something in staging that is no attempt's folder.
    Staging,
    /// The table's partitions do not sum up to what the database keeps.
    Sum,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = format!("{:?}", self.kind).to_lowercase();
        write!(f, "{kind}: {}: {}", self.path, self.detail)
    }
}

impl Warehouse {
    /// Compares a table's catalog with its files, hashed anew, and with its manifest, if it has one. `definition` is the current
    /// one; none where the pipeline is gone.
    ///
    /// Under the publish lock, taken before the catalog is read, nothing is reported that is only on its way.
    pub fn verify(
        &self,
        pipeline: &str,
        definition: Option<&Definition>,
        entries: &[CatalogEntry],
    ) -> TableResult<Vec<Finding>> {
        // A pipeline that says so since its last run has none yet.
        let has_manifest = |d: &Definition| d.output.manifest && entries.iter().any(|entry| entry.definition == d.hash);
        let mut findings = self.verify_files(pipeline, definition.map(|d| &d.partition), entries)?;
        if let Some(detail) = self.verify_manifest(pipeline, definition.is_some_and(has_manifest), entries)? {
            let path = self.table_folder(pipeline)?.join(MANIFEST_FILE).display().to_string();
            findings.push(Finding { kind: FindingKind::Manifest, partition: None, path, detail });
        }
        Ok(findings)
    }

    /// Compares a table's catalog with its files. `spec` is of the current definition; none where the pipeline is gone.
    pub fn verify_files(
        &self,
        pipeline: &str,
        spec: Option<&PartitionSpec>,
        entries: &[CatalogEntry],
    ) -> TableResult<Vec<Finding>> {
        self.check_identity()?;
        let mut findings = Vec::new();
        for entry in entries {
            findings.extend(self.verify_entry(pipeline, entry)?);
        }
        let known: BTreeMap<&str, PartFile> =
            entries.iter().map(|entry| (entry.partition.as_str(), entry.content.file)).collect();
        for file in self.table_files(pipeline)? {
            let of_catalog = file.key_text.as_deref().and_then(|text| known.get(text)).copied();
            if of_catalog.is_none() || of_catalog != file.part {
                findings.push(unknown_file(spec, file, of_catalog));
            }
        }
        Ok(findings)
    }

    /// What lies in staging and is no attempt's folder.
    pub fn verify_staging(&self) -> TableResult<Vec<Finding>> {
        let finding = |path: std::path::PathBuf| Finding {
            kind: FindingKind::Staging,
            partition: None,
            path: path.display().to_string(),
            detail: "it is in staging and named neither after a run nor after a claim; refrain leaves it alone"
                .to_owned(),
        };
        Ok(self.unknown_staging()?.into_iter().map(finding).collect())
    }

    /// The names at the warehouse's root that are not Refrain's own, sorted: the tables, and whatever somebody put
    /// beside them.
    pub fn names_at_root(&self) -> TableResult<Vec<String>> {
        if !self.root().is_dir() {
            return Err(IdentityError::Absent { root: self.root().to_owned(), expected: self.id() }.into());
        }
        let names = staging::entries(self.root())?.into_iter().map(|e| e.file_name().to_string_lossy().into_owned());
        let own = [super::lock::LOCKS, staging::STAGING, super::quarantine::QUARANTINE];
        Ok(names
            .filter(|name| !own.contains(&name.as_str()) && !identity::KNOWN_NAMES.contains(&name.as_str()))
            .collect())
    }

    /// Whether a name at the root can be a table: a folder that is named as pipelines are.
    pub fn is_table(&self, name: &str) -> bool {
        self.table_folder(name).is_ok_and(|folder| disk::is_folder(&folder).unwrap_or(false))
    }

    /// Whether a partition's live file is a whole one of its format.
    fn is_whole(&self, pipeline: &str, key: &PartitionKey, part: PartFile) -> TableResult<bool> {
        let path = self.live_path(pipeline, key, part)?;
        let Some(file) = disk::open_regular(&path)? else { return Ok(false) };
        let whole = match part {
            PartFile::Parquet => begins_and_ends_with(&file, &MARK, &MARK),
            // The header at least, and each record ends with a line.
            PartFile::Csv => begins_and_ends_with(&file, b"", b"\n"),
            PartFile::CsvGzip => is_readable(flate2::bufread::MultiGzDecoder::new(BufReader::new(file))),
            PartFile::CsvZstd => zstd::stream::read::Decoder::new(file).and_then(is_readable),
        };
        whole.map_err(|e| TableError::io("read", &path, e))
    }

    fn verify_entry(&self, pipeline: &str, entry: &CatalogEntry) -> TableResult<Option<Finding>> {
        let (key, file, expected) = (&entry.partition, entry.content.file, &entry.content.sha256);
        let (kind, detail) = match self.live_sha256(pipeline, key, file) {
            Ok(Some(found)) if found == *expected => return Ok(None),
            Ok(Some(found)) if self.is_whole(pipeline, key, file)? => {
                (FindingKind::Changed, format!("its sha256 is {found}, expected {expected}"))
            }
            Ok(Some(found)) => {
                let extension = file.extension();
                let detail = format!("it is no whole {extension} file; its sha256 is {found}, expected {expected}");
                (FindingKind::Torn, detail)
            }
            Ok(None) => (FindingKind::Missing, format!("there is no file, expected one with sha256 {expected}")),
            Err(error @ TableError::NotOurs { .. }) => (FindingKind::Changed, error.to_string()),
            Err(error) => return Err(error),
        };
        let path = self.live_path(pipeline, key, file)?.display().to_string();
        Ok(Some(Finding { kind, partition: Some(key.clone()), path, detail }))
    }
}

/// What a Parquet file begins and ends with.
const MARK: [u8; 4] = *b"PAR1";

fn begins_and_ends_with(file: &File, first: &[u8], last: &[u8]) -> io::Result<bool> {
    let bytes = file.metadata()?.len();
    if bytes < (first.len() + last.len()) as u64 {
        return Ok(false);
    }
    let (mut head, mut tail) = (vec![0; first.len()], vec![0; last.len()]);
    file.read_exact_at(&mut head, 0)?;
    file.read_exact_at(&mut tail, bytes - last.len() as u64)?;
    Ok(head == first && tail == last)
}

/// Reads to the end. What the decoder says of the bytes is no trouble with the disk.
fn is_readable(mut decoded: impl Read) -> io::Result<bool> {
    match io::copy(&mut decoded, &mut io::sink()) {
        Ok(bytes) => Ok(bytes > 0),
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::Other
            ) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// A file that the catalog does not have; `of_catalog` is the name of the one that it has for the partition.
fn unknown_file(spec: Option<&PartitionSpec>, file: DataFile, of_catalog: Option<PartFile>) -> Finding {
    let partition = match (spec, file.key_text) {
        (_, Some(text)) if of_catalog.is_some() => Some(PartitionKey::from_canonical(text)),
        (Some(spec), Some(text)) => super::look::parse(spec, &text),
        (None, Some(text)) if text.split('/').all(super::is_key_component) => Some(PartitionKey::from_canonical(text)),
        _ => None,
    };
    let (kind, detail) = match (&partition, of_catalog) {
        (Some(_), Some(known)) => {
            let detail =
                format!("the catalog has {} for this partition, readers of the files count both", known.as_str());
            (FindingKind::Unknown, detail)
        }
        (Some(_), None) => {
            (FindingKind::Unknown, "the catalog has no such partition, readers of the files count it".to_owned())
        }
        (None, _) => (FindingKind::Foreign, "it is no partition's file, readers of the files may count it".to_owned()),
    };
    Finding { kind, partition, path: file.path.display().to_string(), detail }
}
