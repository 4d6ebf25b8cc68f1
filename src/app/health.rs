//! What the service stands on: for readyz, and as metrics.

use super::pipelines::PipelineFolder;
use crate::config::WorkSettings;
use crate::http::{Check, Pipelines, Readiness};
use crate::run::State;
use crate::store::{RunFilter, RunStore, StoreError};
use crate::table::{Holder, Warehouse};
use crate::telemetry::{METRIC_OLDEST_DUE_SECONDS, METRIC_PUBLISH_LOCK_SECONDS, METRIC_RUNS};
use chrono::Utc;
use futures::FutureExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long a check may take.
const CHECK: Duration = Duration::from_secs(3);
/// How often the gauges are set.
const OBSERVE_EVERY: Duration = Duration::from_secs(5);

/// Looks at the database, the warehouse and the publish locks.
pub(super) fn readiness(
    store: Arc<dyn RunStore>,
    warehouse: Option<Warehouse>,
    pipelines: &PipelineFolder,
    work: &WorkSettings,
) -> Readiness {
    let (pipelines, errors, tables) = (pipelines.current(), pipelines.errors(), pipelines.tables());
    // A lock is held for milliseconds. A holder that has had it for so long is stopped, or its disk is.
    let patience = Duration::from_secs(u64::from(work.lease_seconds).max(10));
    Arc::new(move || {
        let (store, warehouse) = (Arc::clone(&store), warehouse.clone());
        let (pipelines, errors) = (Arc::clone(&pipelines.borrow()), Arc::clone(&errors.borrow()));
        let tables = Arc::clone(&tables.borrow());
        async move {
            let mut checks = vec![essential("database", database(store.as_ref())).await];
            if checks.iter().all(|check| check.ok) {
                checks.push(partial("publishing", publishing(store.as_ref())).await);
            }
            if let Some(warehouse) = warehouse {
                checks.push(essential("warehouse", on_disk(warehouse.clone(), usable)).await);
                let locks = move |warehouse: &Warehouse| held_too_long(warehouse, &tables, patience);
                checks.push(partial("publish locks", on_disk(warehouse, locks)).await);
            }
            checks.push(partial("pipelines", async { files(&pipelines, &errors) }).await);
            checks
        }
        .boxed()
    })
}

/// Sets the gauges until `shutdown`.
pub(super) async fn observe(
    store: Arc<dyn RunStore>,
    warehouse: Warehouse,
    tables: watch::Receiver<Arc<BTreeSet<String>>>,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        if let Ok(depth) = store.queue_depth().await {
            metrics::gauge!(METRIC_RUNS, "state" => "queued").set(depth.queued as f64);
            metrics::gauge!(METRIC_RUNS, "state" => "running").set(depth.running as f64);
            metrics::gauge!(METRIC_RUNS, "state" => "committing").set(depth.committing as f64);
            metrics::gauge!(METRIC_OLDEST_DUE_SECONDS).set(depth.oldest_due.unwrap_or_default().as_secs_f64());
        }
        let tables = Arc::clone(&tables.borrow());
        for name in tables.iter() {
            let held = warehouse.lock_holder(name).map_or(0.0, |holder| held_for(&holder).as_secs_f64());
            metrics::gauge!(METRIC_PUBLISH_LOCK_SECONDS, "pipeline" => name.clone()).set(held);
        }
        tokio::select! {
            () = tokio::time::sleep(OBSERVE_EVERY) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// What was found, or what is wrong.
type Found = Result<String, String>;

/// Without it nothing can be done.
async fn essential(name: &str, check: impl Future<Output = Found>) -> Check {
    Check { essential: true, ..partial(name, check).await }
}

/// Where it is not all right some table waits, and every server says so: none is better than the others, and the rest is
/// served.
async fn partial(name: &str, check: impl Future<Output = Found>) -> Check {
    let found = tokio::time::timeout(CHECK, check).await;
    let found = found.unwrap_or_else(|_| Err(format!("no answer within {} s", CHECK.as_secs())));
    let (ok, detail) = match found {
        Ok(detail) => (true, detail),
        Err(detail) => (false, detail),
    };
    Check { name: name.to_owned(), ok, essential: false, detail }
}

async fn database(store: &dyn RunStore) -> Found {
    match store.ping().await {
        Ok(()) => Ok("it answers".to_owned()),
        // In words for the operator: a later version has changed it.
        Err(StoreError::Setup(why)) => Err(why),
        Err(error) => {
            tracing::warn!(%error, "the database does not answer");
            Err("it does not answer".to_owned())
        }
    }
}

/// Runs that could not be published and wait to be tried again.
async fn publishing(store: &dyn RunStore) -> Found {
    let filter = RunFilter { state: Some(State::Committing), limit: 100, ..RunFilter::default() };
    let committing = store.list(&filter).await.map_err(|_| "the database does not answer".to_owned())?;
    let waiting: Vec<String> = committing
        .iter()
        .filter_map(|run| run.error.as_ref().map(|error| format!("run {}: {}", run.id, error.detail)))
        .collect();
    if waiting.is_empty() { Ok("no run waits to be published".to_owned()) } else { Err(waiting.join("; ")) }
}

/// The pipelines' files, as they were last read.
fn files(pipelines: &Pipelines, errors: &[String]) -> Found {
    match errors {
        [] => Ok(format!("{}, as their files say", pipelines.len())),
        errors => Err(format!("files with errors, whose pipelines stay as they were: {}", errors.join("; "))),
    }
}

async fn on_disk(warehouse: Warehouse, check: impl FnOnce(&Warehouse) -> Found + Send + 'static) -> Found {
    let done = tokio::task::spawn_blocking(move || check(&warehouse)).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

fn usable(warehouse: &Warehouse) -> Found {
    warehouse.check_usable().map(|()| "it is this database's".to_owned()).map_err(|error| {
        tracing::warn!(%error, "the warehouse is not well");
        error.to_string()
    })
}

fn held_too_long(warehouse: &Warehouse, names: &BTreeSet<String>, patience: Duration) -> Found {
    let held = names.iter().filter_map(|name| {
        let holder = warehouse.lock_holder(name)?;
        let seconds = held_for(&holder);
        let run = holder.run.map_or_else(String::new, |run| format!(" for run {run}"));
        (seconds > patience).then(|| {
            format!("{name}: held for {} s by {} (process {}){run}", seconds.as_secs(), holder.worker, holder.pid)
        })
    });
    let held: Vec<String> = held.collect();
    if held.is_empty() { Ok("none is held for long".to_owned()) } else { Err(held.join("; ")) }
}

fn held_for(holder: &Holder) -> Duration {
    (Utc::now() - holder.since).to_std().unwrap_or_default()
}
