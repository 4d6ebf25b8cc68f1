//! The story of a run, from the worker's side, in the order of DESIGN section 5: claim, heartbeat, compute, decide,
//! publish and finish.

mod ending;
mod heartbeat;
mod layout;
mod merge;
pub mod metrics;
mod outcomes;
mod probe;
mod publishing;
mod pulse;
mod quarantine;

pub use probe::{NoProbe, Probe, Step};
pub use pulse::{Condition, Pulse};

use crate::engine::{Engine, EngineError, Job, Report, WebSettings};
use crate::pipeline::{self, Definition, DefinitionError};
use crate::run::{
    AttemptOutcome, ClaimToken, Mode, Progress, RetryPolicy, Run, RunError, Scope, Stage, precondition_failed,
};
use crate::store::{
    Begun, Change, ClaimRequest, Claimed, DecidedRun, Decision, Failures, Fenced, RunStore, StoreError, StoreResult,
};
use crate::table::{Holder, TableError, Warehouse};
use crate::telemetry;
use ending::{TimeLimit, compute_error, lease_lost, service_error, store_error, table_error};
use heartbeat::{Heartbeat, Hold};
use merge::Bases;
use metrics::timed;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// What a worker is told.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Its name: host, process and number.
    pub name: String,
    /// Where relative source paths start.
    pub source_root: PathBuf,
    /// The size in bytes of the source files at which a slice of a run ends.
    pub slice_source_bytes: u64,
    /// The memory in bytes that rows may take while they are read; none for no bound.
    pub read_bytes: Option<u64>,
    /// The memory in bytes that rows may take while they are sorted.
    pub sort_bytes: u64,
    /// Which sources may be read by HTTP.
    pub web: WebSettings,
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
    /// Where it notes that it comes round.
    pub pulse: Pulse,
}

/// An attempt under way.
struct Attempt<'a> {
    run: &'a Run,
    token: ClaimToken,
    failures: Failures,
    publish_failures: u32,
    retry: RetryPolicy,
    heartbeat: Heartbeat,
    progress: watch::Sender<Progress>,
    /// What its rows are put into, where its pipeline merges.
    bases: Option<Bases>,
}

impl Worker {
    /// Works until `shutdown`; then it claims no more, and the attempt under way ends or is handed back.
    pub async fn run(self, shutdown: CancellationToken) {
        let late = self.after_the_grace(&shutdown);
        let mut usable = true;
        while !shutdown.is_cancelled() {
            self.pulse.comes_round();
            // Nothing can fail here: this step is for what hangs.
            let _ = self.probe.reached(Step::Claiming).await;
            if !self.warehouse_is_usable(&mut usable).await {
                tokio::select! {
                    () = tokio::time::sleep(self.settings.poll) => {}
                    () = shutdown.cancelled() => {}
                }
                continue;
            }
            let mut changes = self.store.changes();
            let request = ClaimRequest {
                worker: self.settings.name.clone(),
                token: ClaimToken::new(),
                lease: self.settings.lease,
                max_lost_workers: self.settings.max_lost_workers,
            };
            let since = Instant::now();
            match self.store.claim(&request).await {
                Ok(Some(claimed)) => {
                    self.pulse.has_a_run();
                    let (span, pipeline) = (self.span(&claimed), claimed.run.pipeline.clone());
                    self.attempt(claimed, since, changes, &late).instrument(span).await;
                    metrics::attempt_took(&pipeline, since.elapsed());
                }
                Ok(None) => tokio::select! {
                    () = queue_changed(&mut changes) => {}
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

    /// Whether a run may be claimed. Without its warehouse, each run would only use up its attempts; so all of them wait
    /// until it is back. `was` is the last answer: a change is logged.
    async fn warehouse_is_usable(&self, was: &mut bool) -> bool {
        match (self.on_disk(|warehouse| warehouse.check_usable()).await, *was) {
            (Err(error), true) => tracing::error!(%error, "no run is claimed until the warehouse can be used"),
            (Ok(()), false) => tracing::info!("the warehouse can be used again"),
            (Ok(()), true) => return true,
            (Err(_), false) => return false,
        }
        *was = !*was;
        *was
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

    /// Names the attempt in each line and span below it; in the trace it belongs to whoever submitted the run. On at every level,
    /// so that no line is without it.
    fn span(&self, claimed: &Claimed) -> tracing::Span {
        let Claimed { run, attempt, .. } = claimed;
        let span = tracing::error_span!(
            "attempt",
            run.id = %run.id,
            run.attempt = attempt,
            pipeline = %run.pipeline,
            worker = %self.settings.name,
            otel.name = tracing::field::Empty,
            otel.kind = tracing::field::Empty,
        );
        telemetry::told_by(&span, run.asked.traceparent.as_deref());
        telemetry::entered(&span, "attempt", "consumer");
        span
    }

    /// One attempt: computes and decides unless that was done before, then publishes and finishes.
    async fn attempt(
        &self,
        claimed: Claimed,
        since: Instant,
        changes: broadcast::Receiver<Change>,
        late: &CancellationToken,
    ) {
        let Claimed { run, token, failures, publish_failures, definition, decided, .. } = claimed;
        let stage = if decided.is_some() { Stage::Publishing } else { Stage::Claimed };
        let (progress, told) = watch::channel(run.progress.clone().unwrap_or_else(|| Progress::at(stage)));
        progress.send_modify(|p| p.stage = stage);
        let hold = Hold { id: run.id, token, lease: self.settings.lease, since };
        let heartbeat = Heartbeat::start(Arc::clone(&self.store), changes, hold, told, late.clone());
        metrics::was("claim", since);
        tracing::info!(state = run.state.as_str(), "claimed");
        let mut attempt = Attempt {
            run: &run,
            token,
            failures,
            publish_failures,
            retry: RetryPolicy::default(),
            heartbeat,
            progress,
            bases: None,
        };
        let reached = self.probe.reached(Step::Claimed).await;
        // What was decided needs no definition: recovery never depends on one that a later version may refuse.
        let decided = match (decided, reached) {
            (Some(_), Err(error)) => return self.postpone(&attempt, &error).await,
            (None, Err(error)) => return self.fail(&attempt, error).await,
            (Some(decided), Ok(())) => decided,
            (None, Ok(())) => {
                let definition = match pipeline::parse(&definition.text, &definition.pipeline) {
                    Ok(definition) => definition,
                    Err(errors) => return self.fail(&attempt, definition_refused(&errors)).await,
                };
                attempt.retry = definition.retry;
                if merge::is_merge(&run, &definition) {
                    let Some(bases) = self.bases(&attempt, &definition).await else { return };
                    attempt.bases = Some(bases);
                }
                let computing = timed!("compute", self.compute(&attempt, &definition));
                let Some(report) = computing.await else { return };
                let deciding = timed!("decide", self.decide(&attempt, &definition, report));
                let Some(decided) = deciding.await else { return };
                decided
            }
        };
        self.publish_and_finish(&attempt, &decided).await;
    }

    /// Computes into the attempt's own staging folder; none where the attempt ended here.
    async fn compute(&self, attempt: &Attempt<'_>, definition: &Definition) -> Option<Report> {
        let (run, token) = (attempt.run.id, attempt.token);
        let staging = match self.on_disk(move |warehouse| warehouse.make_staging(run, token)).await {
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
            definition: definition.text.clone(),
            scope,
            source_root: self.settings.source_root.clone(),
            staging,
            checkpoints: self.warehouse.checkpoints(run),
            slice_source_bytes: self.settings.slice_source_bytes,
            read_bytes: self.settings.read_bytes,
            sort_bytes: self.settings.sort_bytes,
            web: self.settings.web.clone(),
            bases: attempt.bases.iter().flat_map(|bases| bases.values().cloned()).collect(),
        };
        let told = attempt.progress.subscribe();
        match metrics::following(told, self.in_time(attempt, definition, job)).await {
            Ok(report) => match self.probe.reached(Step::Staged).await {
                Ok(()) => {
                    metrics::computed(&attempt.run.pipeline, &report);
                    return Some(report);
                }
                Err(error) => self.fail(attempt, error).await,
            },
            Err(EngineError::Cancelled) => self.stopped(attempt).await,
            Err(EngineError::Failed(error)) => self.fail(attempt, self.or_no_warehouse(error).await).await,
            Err(EngineError::Rejected { error, quarantine }) => self.reject(attempt, error, *quarantine).await,
        }
        None
    }

    /// Has the engine compute the job, until the heartbeat or the pipeline's time limit stops it.
    async fn in_time(&self, attempt: &Attempt<'_>, definition: &Definition, job: Job) -> Result<Report, EngineError> {
        let stop = attempt.heartbeat.stop.child_token();
        let computing = self.engine.compute(job, attempt.progress.clone(), stop.clone());
        let limit = TimeLimit::of(definition.limits.timeout_seconds, attempt.run.asked.timeout_seconds);
        let Some(limit) = limit else { return computing.await };
        tokio::pin!(computing);
        tokio::select! {
            computed = &mut computing => return computed,
            () = tokio::time::sleep(Duration::from_secs(limit.seconds.into())) => stop.cancel(),
        }
        // Only when it returns does nothing of it run any more. Whoever else stopped it comes first.
        match computing.await {
            Err(EngineError::Cancelled) if !attempt.heartbeat.stop.is_cancelled() => {
                Err(EngineError::Failed(limit.error()))
            }
            computed => computed,
        }
    }

    /// Decides what each partition becomes and records it; none where the attempt ended here.
    async fn decide(&self, attempt: &Attempt<'_>, definition: &Definition, report: Report) -> Option<DecidedRun> {
        let catalog = match self.ask_again(attempt, || self.catalog(attempt, definition, &report)).await {
            Some(Ok(catalog)) => catalog,
            Some(Err(error)) => {
                self.fail(attempt, store_error(&error)).await;
                return None;
            }
            None => {
                self.stopped(attempt).await;
                return None;
            }
        };
        let mut told = Vec::new();
        let decided = match self.outcomes(attempt, definition, &report, catalog, &mut told).await {
            Ok(decided) => decided,
            Err(error) => {
                self.fail(attempt, error).await;
                return None;
            }
        };
        let Report { rows, sources, mut warnings, quarantine: staged, .. } = report;
        warnings.append(&mut told);
        let quarantine = match self.keep_apart(attempt, staged, &mut warnings).await {
            Ok(quarantine) => quarantine,
            Err(error) => {
                self.fail(attempt, error).await;
                return None;
            }
        };
        let progress = attempt.progress.borrow().clone();
        let manifest = definition.output.manifest;
        let decision = Decision { partitions: decided, manifest, rows, sources, warnings, quarantine, progress };
        let begin = || self.store.begin_commit(attempt.run.id, attempt.token, &decision);
        match self.ask_again(attempt, begin).await {
            Some(Ok(Begun::Committing)) => {
                tracing::info!(partitions = decision.partitions.len(), "decided");
                match self.probe.reached(Step::Decided).await {
                    Ok(()) => {
                        return Some(DecidedRun { token: attempt.token, partitions: decision.partitions, manifest });
                    }
                    Err(error) => self.postpone(attempt, &error).await,
                }
            }
            Some(Ok(Begun::CancelAsked)) => {
                self.end(attempt, self.ended(AttemptOutcome::Cancelled)).await;
            }
            Some(Ok(Begun::BaseChanged(key))) => self.fail(attempt, merge::base_changed(attempt, &key)).await,
            Some(Ok(Begun::PreconditionFailed(unmet))) => self.give_up(attempt, precondition_failed(&unmet)).await,
            Some(Ok(Begun::Lost)) => lease_lost("deciding"),
            Some(Err(error)) => self.fail(attempt, store_error(&error)).await,
            None => self.stopped(attempt).await,
        }
        None
    }

    /// Publishes what was decided and finishes the run, both under the table's publish lock. All of it can be done
    /// again, by this worker or another.
    async fn publish_and_finish(&self, attempt: &Attempt<'_>, decided: &DecidedRun) {
        let run = attempt.run;
        let name = run.pipeline.clone();
        let held_by = self.on_disk(move |warehouse| Ok(warehouse.lock_holder(&name))).await.ok().flatten();
        attempt.progress.send_modify(|p| {
            p.stage = Stage::Publishing;
            p.partitions = decided.partitions.len() as u64;
            p.waiting_for = held_by.map(|holder| holder.worker);
        });
        let holder = Holder {
            worker: self.settings.name.clone(),
            pid: std::process::id(),
            run: Some(run.id),
            since: chrono::Utc::now(),
        };
        let locking = self.warehouse.publish_lock(&run.pipeline, &holder, &attempt.heartbeat.stop);
        // Whoever holds it for so long is stopped, or its disk is: that holds up this table, not this worker.
        let lock = match timed!("lock", tokio::time::timeout(self.settings.lease, locking)).await {
            Ok(Ok(Some(lock))) => Arc::new(lock),
            Ok(Ok(None)) => return self.stopped(attempt).await,
            Ok(Err(error)) => return self.postpone(attempt, &table_error(&error)).await,
            Err(_) => return self.postpone(attempt, &self.lock_held(&run.pipeline).await).await,
        };
        attempt.progress.send_modify(|p| p.waiting_for = None);
        // Only now is it sure that nobody came in between: a worker that woke up late finds here that it has lost.
        match self.ask_again(attempt, || self.store.may_publish(run.id, attempt.token)).await {
            Some(Ok(Fenced::Done)) => {}
            Some(Ok(Fenced::Lost)) => return lease_lost("publishing"),
            Some(Err(error)) => return self.postpone(attempt, &store_error(&error)).await,
            None => return self.stopped(attempt).await,
        }
        match timed!("publish", self.publish(attempt, &lock, decided)).await {
            Ok(true) => {}
            Ok(false) => return self.staging_lost(attempt, &decided.partitions).await,
            Err(error) => return self.postpone(attempt, &error).await,
        }
        let finishing = self.ask_again(attempt, || self.store.finish(run.id, attempt.token));
        match timed!("finish", finishing).await {
            Some(Ok(Fenced::Done)) => {}
            Some(Ok(Fenced::Lost)) => return lease_lost("finishing"),
            Some(Err(error)) => return self.postpone(attempt, &store_error(&error)).await,
            None => return self.stopped(attempt).await,
        }
        drop(lock);
        metrics::published(&run.pipeline, &decided.partitions);
        tracing::info!("succeeded");
        // A step that fails here leaves its staging to the sweeper.
        if self.probe.reached(Step::Finished).await.is_ok() {
            self.remove_staging(run).await;
        }
    }

    /// Asks the database again while it does not answer and the lease is trusted; none where the attempt must stop.
    ///
    /// Once more after that: what looks like a lost lease may be the call's own work, of which only the answer was lost.
    async fn ask_again<T, F>(&self, attempt: &Attempt<'_>, ask: impl Fn() -> F) -> Option<StoreResult<T>>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut last = false;
        loop {
            // Who must stop holds the publish lock, perhaps: it does not wait for an answer that may never come.
            let too_late = async {
                attempt.heartbeat.stop.cancelled().await;
                tokio::time::sleep(LAST_WORD).await;
            };
            tokio::select! {
                answer = ask() => match answer {
                    Err(StoreError::Unavailable(error)) => {
                        tracing::warn!(%error, "the database did not answer, asking again");
                    }
                    answer => return Some(answer),
                },
                () = too_late => tracing::warn!("the database did not answer before the attempt had to stop"),
            }
            if last {
                return None;
            }
            tokio::select! {
                () = attempt.heartbeat.stop.cancelled() => last = true,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    async fn lock_held(&self, pipeline: &str) -> RunError {
        let name = pipeline.to_owned();
        let holder = self.on_disk(move |warehouse| Ok(warehouse.lock_holder(&name))).await.ok().flatten();
        let who = holder.map_or_else(
            || "another process".to_owned(),
            |h| format!("{} (process {}) since {}", h.worker, h.pid, h.since.format("%Y-%m-%dT%H:%M:%SZ")),
        );
        let detail = format!("the publish lock of table {pipeline} is held by {who}");
        service_error("publish-lock-held", "Another process publishes into the table", detail)
    }

    /// The file table blocks, so its steps run aside.
    async fn on_disk<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Warehouse) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, TableError> {
        let (warehouse, span) = (self.warehouse.clone(), tracing::Span::current());
        match tokio::task::spawn_blocking(move || span.in_scope(|| step(&warehouse))).await {
            Ok(result) => result,
            Err(join) => std::panic::resume_unwind(join.into_panic()),
        }
    }
}

/// Between two questions to a database that does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// How long an attempt that must stop waits for the database's answer, each of its last two times.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Until a run may be claimable.
async fn queue_changed(changes: &mut broadcast::Receiver<Change>) {
    while let Ok(Change::Run(_) | Change::Held(_)) = changes.recv().await {}
}

/// Only a version that is stricter than the one that accepted it gets here.
fn definition_refused(errors: &[DefinitionError]) -> RunError {
    let detail = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    compute_error("definition-refused", "The definition is refused by this version", detail)
}
