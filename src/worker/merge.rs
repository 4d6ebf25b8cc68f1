//! What a merge puts its rows into: the files that the catalog names when the attempt begins. The decision holds only while
//! it names the same.

use super::ending::{compute_error, service_error, store_error, table_error};
use super::{Attempt, Worker};
use crate::engine::MergeBase;
use crate::partition::PartitionKey;
use crate::pipeline::{Definition, Merge};
use crate::run::{Base, CatalogEntry, Mode, PartFile, Run, RunError};
use crate::table::TableError;
use std::collections::BTreeMap;
use std::path::Path;

/// The bases of a run's partitions; those that are not there have none.
pub(super) type Bases = BTreeMap<PartitionKey, MergeBase>;

/// Whether the run puts its rows into what its partitions are. A full run makes them from the sources alone.
pub(super) fn is_merge(run: &Run, definition: &Definition) -> bool {
    run.mode == Mode::Overwrite && definition.merge().is_some()
}

impl Worker {
    /// What the run's partitions are now; none where the attempt ended here.
    pub(super) async fn bases(&self, attempt: &Attempt<'_>, definition: &Definition) -> Option<Bases> {
        let keys: Vec<PartitionKey> = attempt.run.partitions.iter().map(|p| p.partition.clone()).collect();
        let standing = || self.standing(&attempt.run.pipeline, definition, Some(&keys));
        let found = match self.ask_again(attempt, standing).await {
            Some(Ok(standing)) => match standing.check_layout(definition) {
                Ok(()) => self.files_of(attempt, keys, standing.entries).await,
                changed => changed.map(|()| Bases::new()),
            },
            Some(Err(error)) => Err(store_error(&error)),
            None => {
                self.stopped(attempt).await;
                return None;
            }
        };
        match found {
            Ok(bases) => Some(bases),
            Err(error) => {
                self.fail(attempt, error).await;
                None
            }
        }
    }

    /// Where the files of these partitions lie. One that the catalog does not know may be all that is left of rows that a
    /// database restored from a backup has forgotten, and nothing would bring them back.
    async fn files_of(
        &self,
        attempt: &Attempt<'_>,
        keys: Vec<PartitionKey>,
        entries: Vec<CatalogEntry>,
    ) -> Result<Bases, RunError> {
        let pipeline = attempt.run.pipeline.clone();
        let found = self.on_disk(move |warehouse| {
            let known: BTreeMap<PartitionKey, CatalogEntry> =
                entries.into_iter().map(|entry| (entry.partition.clone(), entry)).collect();
            let mut bases = Bases::new();
            for partition in keys {
                if let Some(entry) = known.get(&partition) {
                    let path = warehouse.live_path(&pipeline, &partition, entry.content.file)?;
                    let sha256 = entry.content.sha256.clone();
                    bases.insert(partition.clone(), MergeBase { partition, path, sha256 });
                    continue;
                }
                for file in PartFile::ALL {
                    if warehouse.open_live(&pipeline, &partition, file)?.is_some() {
                        return Ok(Err(unknown(&partition, &warehouse.live_path(&pipeline, &partition, file)?)));
                    }
                }
            }
            Ok::<_, TableError>(Ok(bases))
        });
        found.await.map_err(|e| table_error(&e))?
    }

    /// A base that is not there may be on a disk that is away, and then nothing is wrong with it.
    pub(super) async fn or_no_warehouse(&self, error: RunError) -> RunError {
        if error.kind != MergeBase::DAMAGED {
            return error;
        }
        match self.on_disk(|warehouse| warehouse.check_identity()).await {
            Ok(()) => error,
            Err(away) => table_error(&away),
        }
    }
}

/// What is recorded of a partition's base.
pub(super) fn base_of(bases: &Bases, key: &PartitionKey) -> Base {
    bases.get(key).map_or(Base::Nothing, |base| Base::File(base.sha256.clone()))
}

/// The next attempt begins with what the catalog has by then.
pub(super) fn base_changed(attempt: &Attempt<'_>, key: &PartitionKey) -> RunError {
    let base = attempt.bases.as_ref().map_or(Base::Nothing, |bases| base_of(bases, key));
    let detail = format!(
        "partition {key} of table {}: its rows were put into {}, expected what the catalog has now (a sha256, or none)",
        attempt.run.pipeline,
        base.as_str()
    );
    service_error("merge-base-changed", "The partition has changed since its rows were merged", detail)
}

fn unknown(key: &PartitionKey, path: &Path) -> RunError {
    let detail = format!(
        "{}: found a file of partition {key} that the catalog does not have, expected none, since its rows would be lost in a \
         merge: take it away, or {}",
        path.display(),
        Merge::WAY_OUT
    );
    compute_error("merge-base-unknown", "The partition's file is not in the catalog", detail)
}
