//! `_manifest.json` at a table's root: what each partition is, for readers that look at files alone.
//!
//! It comes in whole, by a rename, after the last partition is as decided and before the run is finished; until then the one
//! before stands. It is made from the catalog and the decision, which nobody else can change while the publish lock is held.

use super::publish::check_is_live;
use super::{PublishLock, TableError, TableResult, Warehouse, disk};
use crate::partition::PartitionKey;
use crate::run::{CatalogEntry, Content, Decided, Outcome, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Write};
use std::path::Path;
use uuid::Uuid;

/// The name of the file at a table's root that lists its partitions.
pub const MANIFEST_FILE: &str = "_manifest.json";

/// Raised when the form changes.
const FORMAT_VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format_version: u32,
    pipeline: String,
    /// The run that wrote it.
    run_id: RunId,
    /// In the order of their keys.
    partitions: Vec<Partition>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Partition {
    partition: PartitionKey,
    /// The path below the table.
    file: String,
    rows: u64,
    bytes: u64,
    sha256: String,
    /// The run that wrote the file.
    run_id: RunId,
}

impl PublishLock {
    /// Makes the manifest of the table as it is once `run` is finished: the catalog's entries, with what the run decided put in.
    /// Where the one that stands says just that, it stays. It is made in the deciding token's `staging`, which is made again
    /// where it is gone: all that it says is decided and live by now.
    pub fn write_manifest(
        &self,
        staging: &Path,
        run: RunId,
        catalog: &[CatalogEntry],
        decided: &[Decided],
    ) -> TableResult<()> {
        self.warehouse.check_identity()?;
        let table = self.warehouse.table_folder(&self.pipeline)?;
        let partitions = merged(run, catalog, decided);
        let live = table.join(MANIFEST_FILE);
        if self.warehouse.manifest(&self.pipeline)?.is_some_and(|found| found.is_of(&self.pipeline, &partitions)) {
            // The publisher that moved it may have died before its syncs.
            return disk::sync_folder(&table);
        }
        let manifest =
            Manifest { format_version: FORMAT_VERSION, pipeline: self.pipeline.clone(), run_id: run, partitions };
        let staged = staging.join(format!("manifest-{}", Uuid::new_v4()));
        let made = match File::create_new(&staged) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                // It is only gone in the warehouse itself, not in the empty folder that an unmounted disk leaves.
                self.warehouse.check_identity()?;
                self.make_folders(staging)?;
                File::create_new(&staged)
            }
            made => made,
        };
        let file = made.map_err(|e| TableError::io("make", &staged, e))?;
        write(&file, &manifest).map_err(|e| TableError::io("write", &staged, e))?;
        disk::make_folder_unsynced(&table)?;
        fs::rename(&staged, &live).map_err(|e| TableError::io("move the manifest to", &live, e))?;
        disk::sync_up_to(self.warehouse.root(), &table)?;
        check_is_live(&file, &live)
    }

    /// Takes the manifest of a table that is to have none away, before its first partition is changed. One that is nothing of
    /// ours stays.
    pub fn remove_manifest(&self) -> TableResult<()> {
        let table = self.warehouse.table_folder(&self.pipeline)?;
        if !disk::is_folder(&table)? || self.warehouse.manifest(&self.pipeline)?.is_none() {
            return Ok(());
        }
        disk::remove_file(&table.join(MANIFEST_FILE))?;
        disk::sync_folder(&table)
    }
}

impl Warehouse {
    /// Whether a table's manifest could be moved in: what is decided must not wait for somebody to take a folder away.
    pub fn check_manifest_place(&self, pipeline: &str) -> TableResult<()> {
        let path = self.table_folder(pipeline)?.join(MANIFEST_FILE);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => Err(disk::not_ours(&path, &found, "a manifest or nothing")),
            _ => Ok(()),
        }
    }

    /// What is wrong with a table's manifest, by the catalog; `expected` where there must be one.
    pub(super) fn verify_manifest(
        &self,
        pipeline: &str,
        expected: bool,
        entries: &[CatalogEntry],
    ) -> TableResult<Option<String>> {
        let table = self.table_folder(pipeline)?;
        if fs::symlink_metadata(table.join(MANIFEST_FILE)).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            return Ok(expected.then(|| "there is no manifest, expected one of the catalog's partitions".to_owned()));
        }
        let partitions: Vec<Partition> = entries.iter().map(Partition::of_entry).collect();
        let Some(found) = self.manifest(pipeline)? else {
            return Ok(
                expected.then(|| "it cannot be read, expected a manifest of the catalog's partitions".to_owned())
            );
        };
        if found.is_of(pipeline, &partitions) {
            return Ok(None);
        }
        let by_key: BTreeMap<&PartitionKey, &Partition> = found.partitions.iter().map(|p| (&p.partition, p)).collect();
        let missing = partitions.iter().find(|p| by_key.get(&p.partition) != Some(p)).map(|p| &p.partition);
        let known: BTreeMap<&PartitionKey, &Partition> = partitions.iter().map(|p| (&p.partition, p)).collect();
        let extra = found.partitions.iter().find(|p| known.get(&p.partition) != Some(p)).map(|p| &p.partition);
        let at = missing.or(extra).map_or_else(|| "its head".to_owned(), |key| format!("partition {key}"));
        Ok(Some(format!("it is not as the catalog says, first at {at}")))
    }

    /// The manifest that stands; none where there is none, or nothing of ours.
    fn manifest(&self, pipeline: &str) -> TableResult<Option<Manifest>> {
        let path = self.table_folder(pipeline)?.join(MANIFEST_FILE);
        match disk::open_regular(&path) {
            Ok(file) => Ok(file.and_then(|file| serde_json::from_reader(BufReader::new(file)).ok())),
            Err(TableError::NotOurs { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Manifest {
    fn is_of(&self, pipeline: &str, partitions: &[Partition]) -> bool {
        self.format_version == FORMAT_VERSION && self.pipeline == pipeline && self.partitions == partitions
    }
}

impl Partition {
    fn new(partition: &PartitionKey, content: &Content, run_id: RunId) -> Self {
        let file = format!("{partition}/{}", content.file.as_str());
        let Content { rows, bytes, sha256, .. } = content;
        Self { partition: partition.clone(), file, rows: *rows, bytes: *bytes, sha256: sha256.clone(), run_id }
    }

    fn of_entry(entry: &CatalogEntry) -> Self {
        Self::new(&entry.partition, &entry.content, entry.run_id)
    }
}

/// The catalog as the run leaves it.
fn merged(run: RunId, catalog: &[CatalogEntry], decided: &[Decided]) -> Vec<Partition> {
    let mut partitions: BTreeMap<&PartitionKey, Partition> =
        catalog.iter().map(|entry| (&entry.partition, Partition::of_entry(entry))).collect();
    for one in decided {
        match (&one.content, one.outcome) {
            (Some(_), Outcome::Unchanged) => {}
            (Some(content), _) => drop(partitions.insert(&one.partition, Partition::new(&one.partition, content, run))),
            (None, _) => drop(partitions.remove(&one.partition)),
        }
    }
    partitions.into_values().collect()
}

fn write(mut file: &File, manifest: &Manifest) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(manifest)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()
}
