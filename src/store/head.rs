//! A run's control state and its legal moves. Pure: a step reads it under a row lock, moves it and writes it back.

use super::{Cancelled, Ended, Failures};
use crate::run::{
    AttemptOutcome, ClaimToken, DefinitionHash, FailureClass, Mode, Progress, RunError, RunId, Stage, State,
};
use chrono::{DateTime, TimeDelta, Utc};
use std::time::Duration;

/// The columns of a run that decide what may happen to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Head {
    pub(super) id: RunId,
    pub(super) pipeline: String,
    pub(super) mode: Mode,
    pub(super) definition: DefinitionHash,
    pub(super) state: State,
    pub(super) sequence: i64,
    pub(super) due_at: DateTime<Utc>,
    pub(super) cancel_requested: bool,
    pub(super) claim_token: Option<ClaimToken>,
    pub(super) lease_until: Option<DateTime<Utc>>,
    pub(super) decided_token: Option<ClaimToken>,
    pub(super) attempts: u32,
    pub(super) lost_workers: u32,
    pub(super) failures: Failures,
    pub(super) progress: Option<Progress>,
    pub(super) error: Option<RunError>,
    pub(super) started_at: Option<DateTime<Utc>>,
    pub(super) ended_at: Option<DateTime<Utc>>,
}

/// The time that is `delay` from `now`, or the end of time.
pub(super) fn after(now: DateTime<Utc>, delay: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(delay).ok().and_then(|delay| now.checked_add_signed(delay)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

impl Head {
    /// Whether `token` may act for the run in this state.
    pub(super) fn held_by(&self, token: ClaimToken, state: State) -> bool {
        self.state == state && self.claim_token == Some(token)
    }

    /// Whether nobody can be at work on it: the lease ran out, or it was handed back until now.
    pub(super) fn lease_is_over(&self, now: DateTime<Utc>) -> bool {
        self.lease_until.is_some_and(|until| until <= now)
    }

    /// `queued` -> `succeeded`, with no attempt: it has no partitions. Its acceptance decided it, so its own id stands for
    /// the token that did.
    pub(super) fn have_nothing_to_do(&mut self, now: DateTime<Utc>) {
        self.decided_token = Some(ClaimToken(self.id.0));
        self.state = State::Succeeded;
        self.ended_at = Some(now);
    }

    /// `queued` -> `running`
    pub(super) fn start(&mut self, token: ClaimToken, now: DateTime<Utc>, lease: Duration) {
        self.state = State::Running;
        self.progress = Some(Progress::at(Stage::Claimed));
        self.hold(token, now, lease);
    }

    /// `committing` under a new token; what was decided stays.
    pub(super) fn resume(&mut self, token: ClaimToken, now: DateTime<Utc>, lease: Duration) {
        self.due_at = now;
        self.error = None;
        self.hold(token, now, lease);
    }

    /// `running` -> `committing`, which is final: from here on lost workers are not counted.
    pub(super) fn decide(&mut self, progress: &Progress) {
        self.progress = Some(progress.clone());
        self.state = State::Committing;
        self.decided_token = self.claim_token;
    }

    /// `committing` -> `succeeded`
    pub(super) fn succeed(&mut self, partitions: u64, now: DateTime<Utc>) {
        self.error = None;
        if let Some(progress) = &mut self.progress {
            progress.complete(partitions);
        }
        self.let_go();
        self.state = State::Succeeded;
        self.ended_at = Some(now);
    }

    /// Ends a running attempt as its worker says, or as `lost` where the worker says nothing more.
    pub(super) fn end_attempt(&mut self, ended: &Ended, now: DateTime<Utc>) {
        if self.cancel_requested || ended.outcome == AttemptOutcome::Cancelled {
            return self.end(State::Cancelled, None, now);
        }
        let class = ended.error.as_ref().map(|e| e.class);
        match ended.outcome {
            AttemptOutcome::Released => self.queue(now, self.error.clone()),
            AttemptOutcome::Failed if class != Some(FailureClass::Lost) => {
                self.count(class);
                match ended.retry_after {
                    Some(delay) => self.queue(after(now, delay), ended.error.clone()),
                    None => self.end(State::Failed, ended.error.clone(), now),
                }
            }
            _ => {
                self.lost_workers = self.lost_workers.saturating_add(1);
                let error = self.count_lost(ended);
                match self.lost_workers > ended.max_lost_workers {
                    true => self.end(State::Failed, Some(error), now),
                    false => self.queue(ended.retry_after.map_or(now, |delay| after(now, delay)), Some(error)),
                }
            }
        }
    }

    /// Still `committing`, with nobody at work on it until `due`.
    pub(super) fn postpone(&mut self, due: DateTime<Utc>, error: Option<&RunError>) {
        self.claim_token = None;
        self.lease_until = Some(due);
        self.due_at = due;
        self.error = error.cloned();
        if let Some(progress) = &mut self.progress {
            progress.estimated_end = None;
        }
    }

    /// `committing` -> `queued`: what was decided cannot be published.
    pub(super) fn undecide(&mut self, now: DateTime<Utc>) {
        self.queue(now, self.error.clone());
    }

    /// Cancels what has not begun, asks a worker to stop, or says why not.
    pub(super) fn cancel(&mut self, now: DateTime<Utc>) -> Cancelled {
        match self.state {
            State::Queued => {
                self.end(State::Cancelled, None, now);
                Cancelled::Now
            }
            State::Running => {
                self.cancel_requested = true;
                Cancelled::Asked
            }
            State::Cancelled => Cancelled::Now,
            state @ (State::Committing | State::Succeeded | State::Failed) => Cancelled::NotAllowed(state),
        }
    }

    /// Whether a retry by request is allowed.
    pub(super) fn may_retry(&self, if_attempt: Option<u32>) -> bool {
        matches!(self.state, State::Failed | State::Cancelled) && if_attempt.is_none_or(|n| n == self.attempts)
    }

    /// `failed` or `cancelled` -> `queued`, with a new place in the order (its number, and when it is due) and counts that
    /// start anew.
    pub(super) fn retry(&mut self, (sequence, due): (i64, DateTime<Utc>), definition: &DefinitionHash) {
        self.sequence = sequence;
        self.definition = definition.clone();
        self.failures = Failures::default();
        self.lost_workers = 0;
        self.ended_at = None;
        self.queue(due, None);
    }

    /// What is said of a run whose worker or engine was lost, with how many there were.
    fn count_lost(&self, ended: &Ended) -> RunError {
        let said_nothing = || {
            let detail = "it ended without a word from its worker".to_owned();
            RunError::new(FailureClass::Lost, "worker-lost", "The worker was lost", detail)
        };
        let error = ended.error.clone().unwrap_or_else(said_nothing);
        let (attempt, lost, max) = (self.attempts, self.lost_workers, ended.max_lost_workers);
        let detail =
            format!("{}; attempt {attempt}, {lost} workers or engines lost where at most {max} may be", error.detail);
        RunError { detail, ..error }
    }

    fn hold(&mut self, token: ClaimToken, now: DateTime<Utc>, lease: Duration) {
        self.claim_token = Some(token);
        self.lease_until = Some(after(now, lease));
        self.attempts += 1;
        self.started_at = self.started_at.or(Some(now));
    }

    fn let_go(&mut self) {
        self.claim_token = None;
        self.lease_until = None;
        self.cancel_requested = false;
    }

    fn queue(&mut self, due: DateTime<Utc>, error: Option<RunError>) {
        self.let_go();
        self.state = State::Queued;
        self.decided_token = None;
        self.due_at = due;
        self.progress = None;
        self.error = error;
    }

    fn end(&mut self, state: State, error: Option<RunError>, now: DateTime<Utc>) {
        self.let_go();
        self.state = state;
        self.error = error;
        self.ended_at = Some(now);
        if let Some(progress) = &mut self.progress {
            progress.rest();
        }
    }

    fn count(&mut self, class: Option<FailureClass>) {
        let failures = &mut self.failures;
        match class {
            Some(FailureClass::Source) => failures.source += 1,
            Some(FailureClass::Compute) => failures.compute += 1,
            Some(FailureClass::Service | FailureClass::Lost) | None => failures.service += 1,
        }
    }
}
