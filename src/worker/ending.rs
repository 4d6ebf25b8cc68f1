//! How attempts end without a result, and how a decided run is handed back.

use super::heartbeat::Stop;
use super::{Attempt, PAUSE, Worker, metrics};
use crate::run::{AttemptOutcome, ClaimToken, FailureClass, Quarantine, Run, RunError, Stage};
use crate::store::{Ended, Fenced, StoreError};
use crate::table::TableError;
use crate::telemetry::METRIC_PUBLISH_FAILURES;
use std::time::{Duration, Instant};

impl Worker {
    /// The heartbeat stopped the attempt.
    pub(super) async fn stopped(&self, attempt: &Attempt<'_>) {
        let decided = attempt.progress.borrow().stage == Stage::Publishing;
        match attempt.heartbeat.why() {
            Stop::LeaseLost => lease_lost("working"),
            // Cancellation is not allowed once a run is decided, so the state of the database tells.
            Stop::CancelAsked => self.end(attempt, self.ended(AttemptOutcome::Cancelled)).await,
            Stop::Shutdown if decided => {
                self.hand_back(attempt, Duration::ZERO, AttemptOutcome::Released, None).await;
            }
            Stop::Shutdown => self.end(attempt, self.ended(AttemptOutcome::Released)).await,
        }
    }

    /// Ends the attempt as failed, to be tried again as the pipeline says for this class of failure.
    pub(super) async fn fail(&self, attempt: &Attempt<'_>, error: RunError) {
        self.fail_with(attempt, error, None).await;
    }

    /// The same, with the rows that it has kept apart.
    pub(super) async fn fail_with(&self, attempt: &Attempt<'_>, error: RunError, quarantine: Option<Quarantine>) {
        let before = attempt.failures;
        let failures = 1 + match error.class {
            FailureClass::Source => before.source,
            FailureClass::Service => before.service,
            FailureClass::Compute => before.compute,
            FailureClass::Lost => {
                // So that between its tries other runs get their turn.
                let before = attempt.run.attempts.iter().filter(|a| a.outcome == Some(AttemptOutcome::Lost)).count();
                let retry_after = Some(Duration::from_secs(1 << before.min(6)));
                let lost = self.ended(AttemptOutcome::Lost);
                return self.end(attempt, Ended { error: Some(error), retry_after, ..lost }).await;
            }
        };
        let rule = attempt.retry.rule(error.class);
        let retry_after = rule.delay(failures, self.settings.retry_delay_seconds, jitter(), error.retry_after_seconds);
        let failed = self.ended(AttemptOutcome::Failed);
        self.end(attempt, Ended { error: Some(error), quarantine, retry_after, ..failed }).await;
    }

    /// Ends the attempt and the run as failed, whatever the pipeline says of another try.
    pub(super) async fn give_up(&self, attempt: &Attempt<'_>, error: RunError) {
        let failed = self.ended(AttemptOutcome::Failed);
        self.end(attempt, Ended { error: Some(error), ..failed }).await;
    }

    /// An attempt's end with this outcome, to which what else there is to say of it is added.
    pub(super) fn ended(&self, outcome: AttemptOutcome) -> Ended {
        let max_lost_workers = self.settings.max_lost_workers;
        Ended { outcome, error: None, quarantine: None, retry_after: None, max_lost_workers }
    }

    /// Ends the attempt without a result. Staging goes only when that was accepted.
    pub(super) async fn end(&self, attempt: &Attempt<'_>, ended: Ended) {
        let (run, token) = (attempt.run, attempt.token);
        let Ended { outcome, error, retry_after, .. } = &ended;
        match error {
            Some(error) => tracing::warn!(
                error.kind = %error.kind, error.class = error.class.as_str(), error.detail = %error.detail,
                retry_after_seconds = retry_after.map(|d| d.as_secs()), "the attempt ended: {}", outcome.as_str()
            ),
            None => tracing::info!("the attempt ended: {}", outcome.as_str()),
        }
        // Where the database does not answer for so long, the lease has run out and the next worker takes over.
        let until = Instant::now() + self.settings.lease;
        loop {
            match self.store.end_attempt(run.id, token, &ended).await {
                Ok(Fenced::Done) => return self.remove_attempt(run, token).await,
                Ok(Fenced::Lost) => return lease_lost("ending the attempt"),
                Err(StoreError::Unavailable(error)) if Instant::now() < until => {
                    tracing::warn!(%error, "the attempt's end could not be recorded, trying again");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return tracing::error!(%error, "the attempt's end could not be recorded"),
            }
        }
    }

    /// Hands the lease back with a due time, so that this worker is free; publishing is tried for as long as it takes.
    pub(super) async fn postpone(&self, attempt: &Attempt<'_>, error: &RunError) {
        let delay = Duration::from_secs(1 << attempt.publish_failures.min(6));
        metrics::counted(METRIC_PUBLISH_FAILURES, &attempt.run.pipeline);
        tracing::error!(error.kind = %error.kind, error.detail = %error.detail, delay_seconds = delay.as_secs(), "publishing failed");
        self.hand_back(attempt, delay, AttemptOutcome::Failed, Some(error)).await;
    }

    async fn hand_back(
        &self,
        attempt: &Attempt<'_>,
        delay: Duration,
        outcome: AttemptOutcome,
        error: Option<&RunError>,
    ) {
        match self.store.postpone_publish(attempt.run.id, attempt.token, delay, outcome, error).await {
            Ok(Fenced::Done) => {}
            Ok(Fenced::Lost) => lease_lost("handing the lease back"),
            Err(error) => tracing::error!(%error, "the lease could not be handed back; it will run out"),
        }
    }

    /// Only this attempt's: another may be under way by now.
    async fn remove_attempt(&self, run: &Run, token: ClaimToken) {
        let id = run.id;
        if let Err(error) = self.on_disk(move |warehouse| warehouse.remove_staged(id, Some(token))).await {
            tracing::warn!(%error, "staging could not be removed; the sweeper will");
        }
    }

    pub(super) async fn remove_staging(&self, run: &Run) {
        let id = run.id;
        if let Err(error) = self.on_disk(move |warehouse| warehouse.remove_staging(id)).await {
            tracing::warn!(%error, "staging could not be removed; the sweeper will");
        }
    }
}

pub(super) fn lease_lost(doing: &'static str) {
    metrics::lease_lost(doing);
    tracing::warn!("the lease is lost while {doing}: the run may be another worker's, nothing more is done here");
}

/// A random number in 0..1 from a random id.
fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

pub(super) fn compute_error(kind: &str, title: &str, detail: String) -> RunError {
    RunError::new(FailureClass::Compute, kind, title, detail)
}

/// How long an attempt may compute, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeLimit {
    pub(super) seconds: u32,
    said_by: &'static str,
}

impl TimeLimit {
    /// The lesser one.
    pub(super) fn of(pipeline: Option<u32>, request: Option<u32>) -> Option<Self> {
        let by = |said_by| move |seconds| Self { seconds, said_by };
        let pipeline = pipeline.map(by("limits.timeout_seconds of the pipeline"));
        let request = request.map(by("timeout_seconds of the request"));
        pipeline.into_iter().chain(request).min_by_key(|limit| limit.seconds)
    }

    /// A run that takes too long takes as long the next time.
    pub(super) fn error(self) -> RunError {
        let Self { seconds, said_by } = self;
        let detail = format!(
            "the computation was stopped after {seconds} s, which is {said_by}; expected it to be done by then"
        );
        compute_error("time-limit", "The run took too long", detail)
    }
}

pub(super) fn service_error(kind: &str, title: &str, detail: String) -> RunError {
    RunError::new(FailureClass::Service, kind, title, detail)
}

/// What somebody must put right first is not tried again and again.
pub(super) fn table_error(error: &TableError) -> RunError {
    let (kind, title) = match error {
        TableError::ForeignFiles { .. } => ("foreign-files", "There are files of others in the table"),
        _ => ("warehouse-failed", "The warehouse cannot be used"),
    };
    match error.is_transient() {
        true => service_error(kind, title, error.to_string()),
        false => compute_error(kind, title, error.to_string()),
    }
}

pub(super) fn store_error(error: &StoreError) -> RunError {
    service_error("database-failed", "The database cannot be used", error.to_string())
}
