//! The pruner: forgets what ended longer ago than runs are kept, at start and at intervals.
//!
//! Any number of servers may do it at once: each step takes what nobody else has, and leaves what is not old any more.

use super::sweep;
use crate::store::{EndedAt, PrunableRun, RunStore};
use crate::table::Warehouse;
use crate::telemetry::METRIC_PRUNED;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How many runs are looked at in one transaction.
const RUNS_AT_ONCE: u32 = 100;

/// With so many partitions a transaction has enough to forget.
const PARTITIONS_AT_ONCE: u64 = 1_000;

/// Prunes until `shutdown`.
pub(super) async fn run(
    store: Arc<dyn RunStore>,
    warehouse: Warehouse,
    kept: Duration,
    every: Duration,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        if let Err(error) = prune(store.as_ref(), &warehouse, kept, &shutdown).await {
            tracing::warn!(error = format!("{error:#}"), "old runs could not be pruned, trying again later");
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Versions first: the history refers to the runs that made them.
async fn prune(
    store: &dyn RunStore,
    warehouse: &Warehouse,
    kept: Duration,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    // What runs have left in staging is swept while it is known whose it is.
    sweep::sweep(store, warehouse).await?;
    let (mut versions, mut runs) = (0_u64, 0);
    while !shutdown.is_cancelled() && store.prune_version(kept).await? {
        versions += 1;
    }
    let mut after = Some(EndedAt::default());
    while let Some(from) = after.filter(|_| !shutdown.is_cancelled()) {
        let page = store.prunable(kept, from, RUNS_AT_ONCE).await?;
        for batch in batches(&page.runs) {
            runs += prune_batch(store, warehouse, kept, batch).await?;
        }
        after = page.next;
    }
    if versions > 0 || runs > 0 {
        tracing::info!(runs, versions, "pruned what ended longer ago than runs are kept");
    }
    Ok(())
}

/// Files first: of a run that is forgotten nobody would know whose they are, and a record may name a file that is gone.
async fn prune_batch(
    store: &dyn RunStore,
    warehouse: &Warehouse,
    kept: Duration,
    batch: &[PrunableRun],
) -> anyhow::Result<u64> {
    let files: Vec<String> =
        batch.iter().filter_map(|run| run.quarantine.as_ref()).map(|file| file.path.clone()).collect();
    let removing = warehouse.clone();
    tokio::task::spawn_blocking(move || {
        removing.check_identity()?;
        files.iter().try_for_each(|file| removing.remove_quarantined(file))
    })
    .await??;
    let ids: Vec<_> = batch.iter().map(|run| run.id).collect();
    let pruned = store.prune_runs(kept, &ids).await?;
    metrics::counter!(METRIC_PRUNED).increment(pruned);
    Ok(pruned)
}

/// Cuts runs into batches that end with the partition that is one too many for another.
fn batches(runs: &[PrunableRun]) -> Vec<&[PrunableRun]> {
    let mut partitions = 0;
    let end = |run: &PrunableRun| {
        partitions += run.partitions;
        let is_full = partitions >= PARTITIONS_AT_ONCE;
        if is_full {
            partitions = 0;
        }
        is_full
    };
    runs.split_inclusive(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunId;

    #[test]
    fn a_batch_ends_when_it_has_partitions_enough() {
        let of = |partitions| PrunableRun { id: RunId::new(), partitions, quarantine: None };
        let runs = [400, 400, 400, 5_000, 1, 0].map(of);
        let sizes: Vec<usize> = batches(&runs).into_iter().map(<[_]>::len).collect();
        assert_eq!(sizes, [3, 1, 2]);
        assert!(batches(&[]).is_empty());
    }
}
