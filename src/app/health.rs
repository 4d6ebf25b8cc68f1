//! What the service stands on, for readyz.

mod database;

use super::edge::Certificate;
use crate::http::{Check, Pipelines, Readiness};
use crate::run::State;
use crate::store::{RunFilter, RunStore};
use crate::table::{Holder, Warehouse};
use crate::worker::{Condition, Pulse};
use chrono::Utc;
use database::{BUSY_FOR, Database};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, watch};

/// How long a check may take.
const CHECK: Duration = Duration::from_secs(3);
/// How long a good answer is given again, so that asking is no load.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// The same for a bad one: who comes back should be seen soon.
const BAD_FOR: Duration = Duration::from_millis(250);
/// A lock is held for milliseconds. A holder that has had it for so long, or for a lease, is stopped, or its disk is.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// A worker comes round once a second. One that has not for so long, or for a lease, hangs.
const ROUND_PATIENCE: Duration = Duration::from_secs(5);

/// What the checks look at.
#[derive(Clone)]
pub(super) struct Health {
    pub(super) store: Arc<dyn RunStore>,
    /// None where this process does not work on runs.
    pub(super) warehouse: Option<Warehouse>,
    /// Of its workers, in their order.
    pub(super) pulses: Vec<Pulse>,
    pub(super) pipelines: watch::Receiver<Arc<Pipelines>>,
    /// What was wrong with the pipelines' files.
    pub(super) errors: watch::Receiver<Arc<[String]>>,
    /// The tables whose locks are looked at.
    pub(super) tables: watch::Receiver<Arc<BTreeSet<String>>>,
    pub(super) lease: Duration,
    /// None where the server does not speak TLS.
    pub(super) certificate: Option<Certificate>,
}

/// What was found, and when.
struct Looked {
    since: Instant,
    checks: Vec<Check>,
}

impl Health {
    /// The checks, looked at anew where the last answer is old. Who asks meanwhile waits for the same answer.
    pub(super) fn readiness(self) -> Readiness {
        let state = (None::<Looked>, Database::new(Arc::clone(&self.store), CHECK));
        let last = Arc::new(Mutex::new(state));
        let health = Arc::new(self);
        Arc::new(move || {
            let (last, health) = (Arc::clone(&last), Arc::clone(&health));
            async move {
                let (last, database) = &mut *last.lock().await;
                if let Some(Looked { since, checks }) = last
                    && since.elapsed() < if checks.iter().all(|check| check.ok) { GOOD_FOR } else { BAD_FOR }
                {
                    return checks.clone();
                }
                let checks = health.look(database).await;
                *last = Some(Looked { since: Instant::now(), checks: checks.clone() });
                checks
            }
            .boxed()
        })
    }

    async fn look(&self, database: &mut Database) -> Vec<Check> {
        let found = database.look().await;
        let (is_read, is_busy) = (found.ok || !found.essential, !found.ok && !found.essential);
        let mut checks = vec![found];
        if is_read {
            checks.push(partial("publishing", publishing(self.store.as_ref())).await);
        }
        if let Some(warehouse) = &self.warehouse {
            checks.push(essential("warehouse", on_disk(warehouse.clone(), usable)).await);
            let (tables, patience) = (Arc::clone(&self.tables.borrow()), self.lease.max(LOCK_PATIENCE));
            let locks = move |warehouse: &Warehouse| held_too_long(warehouse, &tables, patience);
            checks.push(partial("publish locks", on_disk(warehouse.clone(), locks)).await);
            // A worker that waits for the database is as well as that is.
            let round = if is_busy { BUSY_FOR } else { ROUND_PATIENCE };
            checks.push(essential("workers", async { self.workers(round) }).await);
        }
        let (pipelines, errors) = (Arc::clone(&self.pipelines.borrow()), Arc::clone(&self.errors.borrow()));
        checks.push(partial("pipelines", async { files(&pipelines, &errors) }).await);
        if let Some(certificate) = &self.certificate {
            checks.push(partial("tls", async { certificate.check() }).await);
        }
        checks
    }

    /// How each worker is.
    pub(super) fn conditions(&self) -> impl Iterator<Item = Condition> {
        self.conditions_within(ROUND_PATIENCE)
    }

    fn conditions_within(&self, round: Duration) -> impl Iterator<Item = Condition> {
        let patience = self.lease.max(round);
        self.pulses.iter().map(move |pulse| pulse.condition(patience))
    }

    /// Whether each comes round to look for runs, or works on one.
    fn workers(&self, round: Duration) -> Found {
        let stuck = self.conditions_within(round).enumerate().filter_map(|(at, condition)| match condition {
            Condition::Stuck(since) => {
                Some(format!("worker {} has not looked for a run for {} s", at + 1, since.as_secs()))
            }
            Condition::Idle | Condition::Busy => None,
        });
        let stuck: Vec<String> = stuck.collect();
        match stuck.is_empty() {
            true => Ok(format!("{} of them, each at work or looking for it", self.pulses.len())),
            false => Err(stuck.join("; ")),
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
    warehouse.probe_write().map(|()| "it is this database's, and can be written".to_owned()).map_err(|error| {
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

pub(super) fn held_for(holder: &Holder) -> Duration {
    (Utc::now() - holder.since).to_std().unwrap_or_default()
}
