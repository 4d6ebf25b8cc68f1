//! Making a table as decided, under its publish lock.

use super::ending::{lease_lost, store_error, table_error};
use super::{Attempt, Step, Worker, metrics};
use crate::run::{Decided, Mode, Outcome, RunError};
use crate::store::{DecidedRun, Fenced};
use crate::table::{PublishLock, Published, TableError};
use crate::telemetry::METRIC_STAGING_LOST;
use std::path::Path;
use std::sync::Arc;

impl Worker {
    /// Makes each partition as decided, then the manifest, then a full run's `_SUCCESS`; false where a decided file is gone.
    pub(super) async fn publish(
        &self,
        attempt: &Attempt<'_>,
        lock: &Arc<PublishLock>,
        decided: &DecidedRun,
    ) -> Result<bool, RunError> {
        let failed = |error: TableError| table_error(&error);
        let full = attempt.run.mode == Mode::Full;
        let staging = self.warehouse.staging(attempt.run.id, decided.token);
        self.probe.reached(Step::Locked).await?;
        let (asked, all) = (Arc::clone(lock), decided.partitions.clone());
        self.on_disk(move |_| asked.check_foreign_files(&all)).await.map_err(failed)?;
        self.on_disk(|warehouse| warehouse.check_identity()).await.map_err(failed)?;
        let (marked, has_manifest) = (Arc::clone(lock), decided.manifest);
        let unmark = move || {
            if full {
                marked.unmark_success()?;
            }
            if has_manifest { Ok(()) } else { marked.remove_manifest() }
        };
        self.on_disk(move |_| unmark()).await.map_err(failed)?;
        let moved = self.publish_each(attempt, lock, decided, &staging).await?;
        // What is live already is entered in the catalog where another decided file is gone.
        let (settling, to_settle) = (Arc::clone(lock), moved.as_ref().unwrap_or(&decided.partitions).clone());
        self.on_disk(move |_| settling.settle(&to_settle)).await.map_err(failed)?;
        if moved.is_none() {
            return Ok(false);
        }
        if decided.manifest {
            self.write_manifest(attempt, lock, decided).await?;
        }
        if full {
            let lock = Arc::clone(lock);
            self.on_disk(move |_| lock.mark_success()).await.map_err(failed)?;
        }
        self.probe.reached(Step::PublishedAll).await?;
        Ok(true)
    }

    /// The partitions that are not yet sure to outlast a power cut; none where a decided file is gone.
    async fn publish_each(
        &self,
        attempt: &Attempt<'_>,
        lock: &Arc<PublishLock>,
        decided: &DecidedRun,
        staging: &Path,
    ) -> Result<Option<Vec<Decided>>, RunError> {
        // Whoever decided is the first to publish. What it finds unchanged nobody has moved since the finish that the catalog
        // has it from; later ones come after a publisher that may have died between a move and its sync.
        let is_first = decided.token == attempt.token;
        let mut moved = Vec::new();
        for (done, partition) in decided.partitions.iter().enumerate() {
            let (lock, staging, one) = (Arc::clone(lock), staging.to_owned(), partition.clone());
            let published = self.on_disk(move |_| lock.publish(&staging, &one)).await;
            match published.map_err(|error| table_error(&error))? {
                Published::Gone => return Ok(None),
                Published::AlreadyLive if is_first && partition.outcome == Outcome::Unchanged => {}
                _ => moved.push(partition.clone()),
            }
            attempt.progress.send_modify(|p| p.partitions_published = done as u64 + 1);
            self.probe.reached(Step::Published(done + 1)).await?;
        }
        Ok(Some(moved))
    }

    /// Nobody else can change the catalog while the lock is held.
    async fn write_manifest(
        &self,
        attempt: &Attempt<'_>,
        lock: &Arc<PublishLock>,
        decided: &DecidedRun,
    ) -> Result<(), RunError> {
        let run = attempt.run.id;
        let catalog = self.store.entries(&attempt.run.pipeline, None).await.map_err(|e| store_error(&e))?;
        let (lock, all, staging) =
            (Arc::clone(lock), decided.partitions.clone(), self.warehouse.staging(run, decided.token));
        let written = self.on_disk(move |_| lock.write_manifest(&staging, run, &catalog, &all)).await;
        written.map_err(|error| table_error(&error))?;
        self.probe.reached(Step::Manifested).await
    }

    /// A decided file is gone: what is already live as decided is entered in the catalog, and the run computed again.
    pub(super) async fn staging_lost(&self, attempt: &Attempt<'_>, decided: &[Decided]) {
        let (pipeline, all) = (attempt.run.pipeline.clone(), decided.to_vec());
        let live = self.on_disk(move |warehouse| {
            let mut live = Vec::new();
            for partition in all {
                if warehouse.is_as_decided(&pipeline, &partition)? {
                    live.push(partition.partition);
                }
            }
            // Where the disk was unmounted meanwhile, what was cleared seems to be as decided.
            warehouse.check_identity()?;
            Ok(live)
        });
        let live = match live.await {
            Ok(live) => live,
            Err(error) => return self.postpone(attempt, &table_error(&error)).await,
        };
        metrics::counted(METRIC_STAGING_LOST, &attempt.run.pipeline);
        tracing::error!(
            live = live.len(),
            decided = decided.len(),
            "a decided file is gone, the run is computed again"
        );
        match self.ask_again(attempt, || self.store.staging_lost(attempt.run.id, attempt.token, &live)).await {
            Some(Ok(Fenced::Done)) => {}
            Some(Ok(Fenced::Lost)) => lease_lost("giving the run back"),
            Some(Err(error)) => tracing::error!(%error, "the run could not be given back; its lease will run out"),
            None => self.stopped(attempt).await,
        }
    }
}
