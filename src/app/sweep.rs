//! The sweeper: removes staging, and rows kept apart, that nobody needs, at start and at intervals; and lets runs go that nothing will.

use crate::store::{RunStore, StagingVerdict};
use crate::table::Warehouse;
use crate::telemetry::{METRIC_SWEEP_FAILURES, METRIC_SWEPT};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Sweeps until `shutdown`.
pub(super) async fn run(store: Arc<dyn RunStore>, warehouse: Warehouse, every: Duration, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        free_stranded(store.as_ref()).await;
        if let Err(error) = sweep(store.as_ref(), &warehouse).await {
            metrics::counter!(METRIC_SWEEP_FAILURES).increment(1);
            tracing::warn!(error = format!("{error:#}"), "staging could not be swept, trying again later");
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// A run that stands behind one that has ended would never begin. The database lets no run stand so; somebody may have changed it past its triggers.
async fn free_stranded(store: &dyn RunStore) {
    match store.free_stranded().await {
        Ok(0) => {}
        Ok(runs) => tracing::error!(runs, "queued runs stood behind runs that have ended, they may begin now"),
        Err(error) => tracing::warn!(%error, "the queue could not be looked through, trying again later"),
    }
}

/// Lists folders first, then asks the database: a folder made in between is not in the list, and a token that lost its
/// run in between only waits for the next round.
pub(super) async fn sweep(store: &dyn RunStore, warehouse: &Warehouse) -> anyhow::Result<()> {
    let listing = warehouse.clone();
    let folders = tokio::task::spawn_blocking(move || {
        listing.check_identity()?;
        listing.staged_folders()
    })
    .await??;
    let verdicts = store.staging_verdicts(&folders).await?;
    for ((run, token), verdict) in folders.into_iter().zip(verdicts) {
        if verdict != StagingVerdict::Remove {
            continue;
        }
        let removing = warehouse.clone();
        tokio::task::spawn_blocking(move || removing.remove_staged(run, token)).await??;
        tracing::info!(run.id = %run, "swept an attempt's staging");
        metrics::counter!(METRIC_SWEPT).increment(1);
    }
    let emptying = warehouse.clone();
    tokio::task::spawn_blocking(move || emptying.remove_leftovers()).await??;
    sweep_quarantine(store, warehouse).await
}

/// How many files the database is asked for at once: what is kept apart stays until somebody removes it.
const ASKED_AT_ONCE: usize = 1000;

/// Removes files of rows kept apart that no run's record names, and none will.
async fn sweep_quarantine(store: &dyn RunStore, warehouse: &Warehouse) -> anyhow::Result<()> {
    let listing = warehouse.clone();
    let files = tokio::task::spawn_blocking(move || listing.quarantined()).await??;
    for files in files.chunks(ASKED_AT_ONCE) {
        let verdicts = store.quarantine_verdicts(files).await?;
        for (file, _) in files.iter().zip(verdicts).filter(|(_, verdict)| *verdict == StagingVerdict::Remove) {
            let (removing, gone) = (warehouse.clone(), file.clone());
            tokio::task::spawn_blocking(move || removing.remove_quarantined(&gone.path)).await??;
            tracing::info!(run.id = %file.run, path = %file.path, "swept rows kept apart that no run names");
            metrics::counter!(METRIC_SWEPT).increment(1);
        }
    }
    Ok(())
}
