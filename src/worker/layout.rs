//! Whether the table that stands is laid out as the definition says; the look that counts.

use super::Worker;
use super::ending::compute_error;
use crate::partition::PartitionKey;
use crate::pipeline::{Definition, LayoutChange};
use crate::run::{CatalogEntry, DefinitionHash, RunError};
use crate::store::StoreResult;
use std::collections::{BTreeMap, BTreeSet};

/// Partitions as the catalog has them, with the texts of the definitions that they are right for.
pub(super) struct Standing {
    pub(super) entries: Vec<CatalogEntry>,
    texts: BTreeMap<DefinitionHash, String>,
}

impl Worker {
    /// These partitions, or all of the table. A text of the run's own definition is not asked for.
    pub(super) async fn standing(
        &self,
        pipeline: &str,
        definition: &Definition,
        keys: Option<&[PartitionKey]>,
    ) -> StoreResult<Standing> {
        let entries = self.store.entries(pipeline, keys).await?;
        let others: BTreeSet<&DefinitionHash> =
            entries.iter().map(|entry| &entry.definition).filter(|hash| **hash != definition.hash).collect();
        let others: Vec<DefinitionHash> = others.into_iter().cloned().collect();
        let written_by = self.store.definitions(&others).await?;
        Ok(Standing { entries, texts: written_by.into_iter().map(|written| (written.hash, written.text)).collect() })
    }
}

impl Standing {
    /// Readers would count the rows of the old layout beside those of the new, or find files of two formats.
    pub(super) fn check_layout(&self, definition: &Definition) -> Result<(), RunError> {
        let Some(change) = definition.layout_change(&self.entries, &self.texts) else { return Ok(()) };
        let (kind, title) = match &change {
            LayoutChange::Columns { .. } => ("partition-columns-changed", "The table has other partition columns"),
            LayoutChange::Placing { .. } => ("partition-columns-changed", "The table's rows were placed otherwise"),
            LayoutChange::Unreadable { .. } => {
                ("partition-columns-changed", "How the table's rows were placed cannot be told")
            }
            LayoutChange::File { .. } => ("output-format-changed", "The table has files of another format"),
        };
        Err(compute_error(kind, title, format!("table {}: {change}", definition.name)))
    }
}
