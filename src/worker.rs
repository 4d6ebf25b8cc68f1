//! The story of a run, from the worker's side, in the order of DESIGN section 5: claim, heartbeat, compute, decide,
//! publish and finish.

mod ending;
mod heartbeat;
mod probe;

pub use probe::{NoProbe, Probe, Step};

use crate::engine::{Engine, EngineError, Job, Report};
use crate::partition::PartitionKey;
use crate::pipeline::{self, Definition};
use crate::run::{
    AttemptOutcome, ClaimToken, Decided, Mode, Progress, Run, RunError, Scope, Stage, StagedPartition, Totals, decide,
};
use crate::store::{Begun, ClaimRequest, Claimed, Decision, Failures, Fenced, RunStore, StoreError, StoreResult};
use crate::table::{Holder, PublishLock, Published, TableError, Warehouse};
use ending::{compute_error, lease_lost, store_error, table_error};
use heartbeat::Heartbeat;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a worker is told.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its name: host, process and number.
    pub name: String,
    /// Where relative source paths start.
    pub source_root: PathBuf,
    /// How long a lease lasts without a renewal.
    pub lease: Duration,
    /// The delay before the second attempt of a run whose pipeline does not say.
    pub retry_delay_seconds: u32,
    /// How many lost workers a run may have before its decision.
    pub max_lost_workers: u32,
    /// How often to look for a due run when nothing wakes the worker.
    pub poll: Duration,
    /// How long a running attempt may go on after the shutdown began.
    pub shutdown_grace: Duration,
}

/// Claims runs and works on them, one at a time.
#[derive(Clone)]
pub struct Worker {
    /// Where runs are claimed and finished.
    pub store: Arc<dyn RunStore>,
    /// What computes them.
    pub engine: Arc<dyn Engine>,
    /// Where their tables lie.
    pub warehouse: Warehouse,
    /// What it is told.
    pub settings: WorkerSettings,
    /// Who hears of its steps.
    pub probe: Arc<dyn Probe>,
}

/// An attempt under way.
struct Attempt<'a> {
    run: &'a Run,
    token: ClaimToken,
    failures: Failures,
    definition: &'a Definition,
    heartbeat: Heartbeat,
    progress: watch::Sender<Progress>,
}

impl Worker {
    /// Works until `shutdown`; then it claims no more, and the attempt under way ends or is handed back.
    pub async fn run(self, shutdown: CancellationToken) {
        let late = self.after_the_grace(&shutdown);
        while !shutdown.is_cancelled() {
            let mut changes = self.store.changes();
            let request = ClaimRequest {
                worker: self.settings.name.clone(),
                token: ClaimToken::new(),
                lease: self.settings.lease,
                max_lost_workers: self.settings.max_lost_workers,
            };
            match self.store.claim(&request).await {
                Ok(Some(claimed)) => self.attempt(claimed, &late).await,
                Ok(None) => tokio::select! {
                    _ = changes.recv() => {}
                    () = tokio::time::sleep(self.settings.poll) => {}
                    () = shutdown.cancelled() => {}
                },
                Err(error) => {
                    tracing::warn!(%error, "no run could be claimed, trying again");
                    tokio::select! {
                        () = tokio::time::sleep(self.settings.poll) => {}
                        () = shutdown.cancelled() => {}
                    }
                }
            }
        }
        late.cancel();
    }

    /// Cancelled when a running attempt must stop because the process shuts down.
    fn after_the_grace(&self, shutdown: &CancellationToken) -> CancellationToken {
        let late = CancellationToken::new();
        let (told, shutdown, grace) = (late.clone(), shutdown.clone(), self.settings.shutdown_grace);
        tokio::spawn(async move {
            tokio::select! {
                () = async { shutdown.cancelled().await; tokio::time::sleep(grace).await; } => told.cancel(),
                () = told.cancelled() => {}
            }
        });
        late
    }

    /// One attempt: computes and decides unless that was done before, then publishes and finishes.
    #[tracing::instrument(skip_all, fields(run.id = %claimed.run.id, run.attempt = claimed.attempt, pipeline = %claimed.run.pipeline))]
    async fn attempt(&self, claimed: Claimed, late: &CancellationToken) {
        let Claimed { run, token, failures, definition, decided, .. } = claimed;
        let stage = if decided.is_some() { Stage::Publishing } else { Stage::Claimed };
        let (progress, told) = watch::channel(run.progress.clone().unwrap_or_else(|| Progress::at(stage)));
        progress.send_modify(|p| p.stage = stage);
        let heartbeat =
            Heartbeat::start(Arc::clone(&self.store), run.id, token, self.settings.lease, told, late.clone());
        tracing::info!(worker = %self.settings.name, state = run.state.as_str(), "claimed");
        let definition = match pipeline::parse(&definition.text, &definition.pipeline) {
            Ok(definition) => definition,
            Err(errors) => {
                // Only a version that is stricter than the one that accepted it gets here.
                let detail = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                let error = compute_error("definition-refused", "The definition is refused by this version", detail);
                if decided.is_some() {
                    self.postpone(&run, token, &error).await;
                } else {
                    self.end(&run, token, AttemptOutcome::Failed, Some(error), None).await;
                }
                return;
            }
        };
        let attempt = Attempt { run: &run, token, failures, definition: &definition, heartbeat, progress };
        if let Err(error) = self.probe.reached(Step::Claimed).await {
            match decided {
                Some(_) => self.postpone(&run, token, &error).await,
                None => self.fail(&attempt, error).await,
            }
            return;
        }
        let decided = match decided {
            Some(decided) => Some(decided),
            None => match self.compute(&attempt).await {
                Some(report) => self.decide(&attempt, report).await.map(|decided| (token, decided)),
                None => None,
            },
        };
        if let Some((decided_by, decided)) = decided {
            self.publish_and_finish(&attempt, decided_by, &decided).await;
        }
    }

    /// Computes into the attempt's own staging folder; none where the attempt ended here.
    async fn compute(&self, attempt: &Attempt<'_>) -> Option<Report> {
        let (run, token) = (attempt.run.id, attempt.token);
        let staging = match self.on_disk(move |w| w.check_identity().and_then(|()| w.make_staging(run, token))).await {
            Ok(staging) => staging,
            Err(error) => {
                self.fail(attempt, table_error(&error)).await;
                return None;
            }
        };
        let scope = match attempt.run.mode {
            Mode::Full => Scope::Full,
            Mode::Overwrite => Scope::Partitions(attempt.run.partitions.iter().map(|p| p.partition.clone()).collect()),
        };
        let job = Job {
            definition: attempt.definition.text.clone(),
            scope,
            source_root: self.settings.source_root.clone(),
            staging,
        };
        let computed = self.engine.compute(job, attempt.progress.clone(), attempt.heartbeat.stop.clone()).await;
        match computed {
            Ok(report) => match self.probe.reached(Step::Staged).await {
                Ok(()) => return Some(report),
                Err(error) => self.fail(attempt, error).await,
            },
            Err(EngineError::Cancelled) => self.stopped(attempt).await,
            Err(EngineError::Failed(error)) => self.fail(attempt, error).await,
        }
        None
    }

    /// Decides what each partition becomes and records it; none where the attempt ended here.
    async fn decide(&self, attempt: &Attempt<'_>, report: Report) -> Option<Vec<Decided>> {
        let decided = match self.outcomes(attempt, &report).await {
            Ok(decided) => decided,
            Err(error) => {
                self.fail(attempt, error).await;
                return None;
            }
        };
        let Report { rows, sources, warnings, .. } = report;
        let decision = Decision { partitions: decided, rows, sources, warnings };
        let begin = || self.store.begin_commit(attempt.run.id, attempt.token, &decision);
        match self.ask_again(attempt, begin).await {
            Some(Ok(Begun::Committing)) => {
                tracing::info!(partitions = decision.partitions.len(), "decided");
                match self.probe.reached(Step::Decided).await {
                    Ok(()) => return Some(decision.partitions),
                    Err(error) => self.postpone(attempt.run, attempt.token, &error).await,
                }
            }
            Some(Ok(Begun::CancelAsked)) => {
                self.end(attempt.run, attempt.token, AttemptOutcome::Cancelled, None, None).await;
            }
            Some(Ok(Begun::Lost)) => lease_lost("deciding"),
            Some(Err(error)) => self.fail(attempt, store_error(&error)).await,
            None => self.stopped(attempt).await,
        }
        None
    }

    /// Outcomes come from the catalog, actions from the disk.
    async fn outcomes(&self, attempt: &Attempt<'_>, report: &Report) -> Result<Vec<Decided>, RunError> {
        let pipeline = attempt.run.pipeline.clone();
        let full = attempt.run.mode == Mode::Full;
        let mut staged: BTreeMap<PartitionKey, StagedPartition> =
            report.partitions.iter().map(|p| (p.partition.clone(), p.clone())).collect();
        let keys: Vec<PartitionKey> = staged.keys().cloned().collect();
        let entries =
            self.store.entries(&pipeline, if full { None } else { Some(&keys) }).await.map_err(|e| store_error(&e))?;
        let entries: BTreeMap<PartitionKey, _> = entries.into_iter().map(|e| (e.partition.clone(), e)).collect();
        let (spec, name, known) =
            (attempt.definition.partition.clone(), pipeline.clone(), entries.keys().cloned().collect::<Vec<_>>());
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

    /// Publishes what was decided and finishes the run, both under the table's publish lock. All of it can be done
    /// again, by this worker or another.
    async fn publish_and_finish(&self, attempt: &Attempt<'_>, decided_by: ClaimToken, decided: &[Decided]) {
        let run = attempt.run;
        attempt.progress.send_modify(|p| {
            p.stage = Stage::Publishing;
            p.partitions = decided.len() as u64;
            p.waiting_for = self.warehouse.lock_holder(&run.pipeline).map(|holder| holder.worker);
        });
        let holder = Holder {
            worker: self.settings.name.clone(),
            pid: std::process::id(),
            run: Some(run.id),
            since: chrono::Utc::now(),
        };
        let lock = match self.warehouse.publish_lock(&run.pipeline, &holder, &attempt.heartbeat.stop).await {
            Ok(Some(lock)) => Arc::new(lock),
            Ok(None) => return self.stopped(attempt).await,
            Err(error) => return self.postpone(run, attempt.token, &table_error(&error)).await,
        };
        attempt.progress.send_modify(|p| p.waiting_for = None);
        // Only now is it sure that nobody came in between: a worker that woke up late finds here that it has lost.
        match self.ask_again(attempt, || self.store.may_publish(run.id, attempt.token)).await {
            Some(Ok(Fenced::Done)) => {}
            Some(Ok(Fenced::Lost)) => return lease_lost("publishing"),
            Some(Err(error)) => return self.postpone(run, attempt.token, &store_error(&error)).await,
            None => return self.stopped(attempt).await,
        }
        match self.publish(attempt, &lock, decided_by, decided).await {
            Ok(true) => {}
            Ok(false) => return self.staging_lost(attempt, decided).await,
            Err(error) => return self.postpone(run, attempt.token, &error).await,
        }
        match self.ask_again(attempt, || self.store.finish(run.id, attempt.token)).await {
            Some(Ok(Fenced::Done)) => {}
            Some(Ok(Fenced::Lost)) => return lease_lost("finishing"),
            Some(Err(error)) => return self.postpone(run, attempt.token, &store_error(&error)).await,
            None => return self.stopped(attempt).await,
        }
        drop(lock);
        tracing::info!("succeeded");
        // A step that fails here leaves its staging to the sweeper.
        if self.probe.reached(Step::Finished).await.is_ok() {
            self.remove_staging(run).await;
        }
    }

    /// Makes each partition as decided; false where a decided file is gone.
    async fn publish(
        &self,
        attempt: &Attempt<'_>,
        lock: &Arc<PublishLock>,
        decided_by: ClaimToken,
        decided: &[Decided],
    ) -> Result<bool, RunError> {
        let failed = |error: TableError| table_error(&error);
        let full = attempt.run.mode == Mode::Full;
        let staging = self.warehouse.staging(attempt.run.id, decided_by);
        self.probe.reached(Step::Locked).await?;
        self.on_disk(|warehouse| warehouse.check_identity()).await.map_err(failed)?;
        if full {
            let lock = Arc::clone(lock);
            self.on_disk(move |_| lock.unmark_success()).await.map_err(failed)?;
        }
        for (done, partition) in decided.iter().enumerate() {
            let (lock, staging, partition) = (Arc::clone(lock), staging.clone(), partition.clone());
            if self.on_disk(move |_| lock.publish(&staging, &partition)).await.map_err(failed)? == Published::Gone {
                return Ok(false);
            }
            attempt.progress.send_modify(|p| p.partitions_published = done as u64 + 1);
            self.probe.reached(Step::Published(done + 1)).await?;
        }
        if full {
            let lock = Arc::clone(lock);
            self.on_disk(move |_| lock.mark_success()).await.map_err(failed)?;
        }
        self.probe.reached(Step::PublishedAll).await?;
        Ok(true)
    }

    /// A decided file is gone: what is already live as decided is entered in the catalog, and the run computed again.
    async fn staging_lost(&self, attempt: &Attempt<'_>, decided: &[Decided]) {
        let (pipeline, all) = (attempt.run.pipeline.clone(), decided.to_vec());
        let live = self.on_disk(move |warehouse| {
            let mut live = Vec::new();
            for partition in all {
                let wanted = partition.content.as_ref().map(|c| c.sha256.as_str());
                if warehouse.live_sha256(&pipeline, &partition.partition)?.as_deref() == wanted {
                    live.push(partition.partition);
                }
            }
            Ok(live)
        });
        let live = match live.await {
            Ok(live) => live,
            Err(error) => return self.postpone(attempt.run, attempt.token, &table_error(&error)).await,
        };
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

    /// Asks the database again while it does not answer and the lease is trusted; none where the attempt must stop.
    ///
    /// Once more after that: what looks like a lost lease may be the call's own work, of which only the answer was lost.
    async fn ask_again<T, F>(&self, attempt: &Attempt<'_>, ask: impl Fn() -> F) -> Option<StoreResult<T>>
    where
        F: Future<Output = StoreResult<T>>,
    {
        loop {
            match ask().await {
                Err(StoreError::Unavailable(error)) => {
                    tracing::warn!(%error, "the database did not answer, asking again");
                }
                answer => return Some(answer),
            }
            if attempt.heartbeat.stop.is_cancelled() {
                return None;
            }
            tokio::select! {
                () = attempt.heartbeat.stop.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// The file table blocks, so its steps run aside.
    async fn on_disk<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Warehouse) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, TableError> {
        let warehouse = self.warehouse.clone();
        match tokio::task::spawn_blocking(move || step(&warehouse)).await {
            Ok(result) => result,
            Err(join) => std::panic::resume_unwind(join.into_panic()),
        }
    }
}

/// Between two questions to a database that does not answer.
const PAUSE: Duration = Duration::from_millis(500);

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
