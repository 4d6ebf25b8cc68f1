//! What a run's partitions become: outcomes come from the catalog, actions from the disk.

use super::ending::{compute_error, table_error};
use super::{Attempt, Worker};
use crate::engine::Report;
use crate::partition::PartitionKey;
use crate::pipeline::Definition;
use crate::run::{CatalogEntry, Decided, Mode, RunError, StagedPartition, Totals, decide};
use crate::store::StoreResult;
use crate::table::TableError;
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Worker {
    /// What the catalog says of the scope's partitions, or of the whole table where the run is for all of it or the
    /// definition has changed since its partitions were written.
    pub(super) async fn catalog(
        &self,
        attempt: &Attempt<'_>,
        definition: &Definition,
        report: &Report,
    ) -> StoreResult<BTreeMap<PartitionKey, CatalogEntry>> {
        let pipeline = &attempt.run.pipeline;
        let mut written_by = self.store.table_definitions(pipeline).await?.into_iter();
        let whole = attempt.run.mode == Mode::Full || written_by.any(|written| written.hash != definition.hash);
        let keys: Vec<PartitionKey> = report.partitions.iter().map(|p| p.partition.clone()).collect();
        let entries = self.store.entries(pipeline, if whole { None } else { Some(&keys) }).await?;
        Ok(entries.into_iter().map(|e| (e.partition.clone(), e)).collect())
    }

    /// Decides each partition, or says why the table stands in the way.
    pub(super) async fn outcomes(
        &self,
        attempt: &Attempt<'_>,
        definition: &Definition,
        report: &Report,
        entries: BTreeMap<PartitionKey, CatalogEntry>,
    ) -> Result<Vec<Decided>, RunError> {
        let pipeline = attempt.run.pipeline.clone();
        let full = attempt.run.mode == Mode::Full;
        let mut staged: BTreeMap<PartitionKey, StagedPartition> =
            report.partitions.iter().map(|p| (p.partition.clone(), p.clone())).collect();
        let keys: Vec<PartitionKey> = staged.keys().cloned().collect();
        if let Some(key) = entries.keys().find(|key| !full && definition.partition.values(key).is_none()) {
            return Err(columns_changed(&pipeline, key));
        }
        let (spec, name, known) =
            (definition.partition.clone(), pipeline.clone(), entries.keys().cloned().collect::<Vec<_>>());
        let looked = self.on_disk(move |warehouse| {
            if full {
                let foreign = warehouse.foreign_files_of_table(&name, &spec, &known)?;
                Ok((foreign, warehouse.live_partitions(&name, &spec)?))
            } else {
                Ok((warehouse.foreign_files(&name, &keys)?, Vec::new()))
            }
        });
        let (foreign, live) = looked.await.map_err(|e| table_error(&e))?;
        if let Some(error) = foreign_error(&pipeline, &foreign) {
            return Err(error);
        }
        if full {
            // What stands and is no longer made goes.
            for key in entries.keys().chain(&live) {
                staged.entry(key.clone()).or_insert_with(|| without_rows(key.clone()));
            }
        }
        let decided = self.on_disk(move |warehouse| {
            let one = |(key, staged): (PartitionKey, StagedPartition)| {
                let entry = entries.get(&key);
                // The file counts only where the catalog has the very content that was staged.
                let same = entry.is_some_and(|e| staged.file.is_some() && e.content.sha256 == staged.sha256);
                let live = if same { warehouse.live_sha256(&pipeline, &key)? } else { None };
                Ok(decide(&staged, entry, live.as_deref()))
            };
            staged.into_iter().map(one).collect::<Result<Vec<_>, TableError>>()
        });
        decided.await.map_err(|e| table_error(&e))
    }
}

/// Readers would count the rows of the old layout beside those of the new.
fn columns_changed(pipeline: &str, key: &PartitionKey) -> RunError {
    let detail = format!(
        "table {pipeline}: found partition {key}, which is none of the definition's partition columns; expected one layout \
         in a table: run mode full once to rebuild it"
    );
    compute_error("partition-columns-changed", "The table has other partition columns", detail)
}

fn without_rows(partition: PartitionKey) -> StagedPartition {
    let (totals, sha256) = (Totals::default(), String::new());
    StagedPartition { partition, file: None, rows: 0, totals, source_rows: 0, bytes: 0, sha256 }
}

fn foreign_error(pipeline: &str, foreign: &[PathBuf]) -> Option<RunError> {
    if foreign.is_empty() {
        return None;
    }
    let names: Vec<String> = foreign.iter().take(5).map(|path| path.display().to_string()).collect();
    let more = if foreign.len() > 5 { format!(" and {} more", foreign.len() - 5) } else { String::new() };
    let detail = format!(
        "table {pipeline}: found data files that Refrain did not write, which readers would count too: {}{more}; \
         expected only {} in a partition's folder",
        names.join(", "),
        crate::table::PART_FILE
    );
    Some(compute_error("foreign-files", "There are files of others in the table", detail))
}
