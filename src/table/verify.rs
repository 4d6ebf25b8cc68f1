//! Verifying: the catalog against the files.

use super::disk;
use super::look::DataFile;
use super::{IdentityError, TableError, TableResult, Warehouse, identity, staging};
use crate::partition::{PartitionKey, PartitionSpec};
use crate::run::CatalogEntry;
use serde::Serialize;
use std::collections::BTreeSet;
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
    /// The file is no whole Parquet file: cut short, or written over.
    Torn,
    /// The disk has the partition, the catalog does not.
    Unknown,
    /// A data file that is no partition's.
    Foreign,
    /// Something in staging that is no attempt's folder.
    Staging,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = format!("{:?}", self.kind).to_lowercase();
        write!(f, "{kind}: {}: {}", self.path, self.detail)
    }
}

impl Warehouse {
    /// Compares a table's catalog with its files, hashed anew. `spec` is of the current definition; none where the
    /// pipeline is gone.
    ///
    /// Under the publish lock, taken before the catalog is read, nothing is reported that is only on its way.
    pub fn verify(
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
        let known: BTreeSet<&str> = entries.iter().map(|entry| entry.partition.as_str()).collect();
        let files = self.table_files(pipeline)?.into_iter();
        let unknown = files.filter(|file| !file.key_text.as_deref().is_some_and(|text| known.contains(text)));
        findings.extend(unknown.map(|file| unknown_file(spec, file)));
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

    /// Whether a partition's live file begins and ends as a Parquet file does.
    fn is_whole(&self, pipeline: &str, key: &PartitionKey) -> TableResult<bool> {
        let path = self.live_path(pipeline, key)?;
        let Some(file) = disk::open_regular(&path)? else { return Ok(false) };
        let failed = |e| TableError::io("read", &path, e);
        let bytes = file.metadata().map_err(failed)?.len();
        let Some(last) = bytes.checked_sub(MARK.len() as u64).filter(|last| *last >= MARK.len() as u64) else {
            return Ok(false);
        };
        let (mut head, mut tail) = (MARK, MARK);
        file.read_exact_at(&mut head, 0).and_then(|()| file.read_exact_at(&mut tail, last)).map_err(failed)?;
        Ok((head, tail) == (MARK, MARK))
    }

    fn verify_entry(&self, pipeline: &str, entry: &CatalogEntry) -> TableResult<Option<Finding>> {
        let expected = &entry.content.sha256;
        let (kind, detail) = match self.live_sha256(pipeline, &entry.partition) {
            Ok(Some(found)) if found == *expected => return Ok(None),
            Ok(Some(found)) if self.is_whole(pipeline, &entry.partition)? => {
                (FindingKind::Changed, format!("its sha256 is {found}, expected {expected}"))
            }
            Ok(Some(found)) => (
                FindingKind::Torn,
                format!("it does not begin and end as a Parquet file does; its sha256 is {found}, expected {expected}"),
            ),
            Ok(None) => (FindingKind::Missing, format!("there is no file, expected one with sha256 {expected}")),
            Err(error @ TableError::NotOurs { .. }) => (FindingKind::Changed, error.to_string()),
            Err(error) => return Err(error),
        };
        let path = self.live_path(pipeline, &entry.partition)?.display().to_string();
        Ok(Some(Finding { kind, partition: Some(entry.partition.clone()), path, detail }))
    }
}

/// What a Parquet file begins and ends with.
const MARK: [u8; 4] = *b"PAR1";

fn unknown_file(spec: Option<&PartitionSpec>, file: DataFile) -> Finding {
    let partition = match (spec, file.key_text) {
        (Some(spec), Some(text)) => super::look::parse(spec, &text),
        (None, Some(text)) if text.split('/').all(super::is_key_component) => Some(PartitionKey::from_canonical(text)),
        _ => None,
    };
    let (kind, detail) = match partition {
        Some(_) => (FindingKind::Unknown, "the catalog has no such partition, readers of the files count it"),
        None => (FindingKind::Foreign, "it is no partition's file, readers of the files may count it"),
    };
    Finding { kind, partition, path: file.path.display().to_string(), detail: detail.to_owned() }
}
