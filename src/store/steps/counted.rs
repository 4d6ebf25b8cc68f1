//! What metrics say of the steps.

use super::Access;
use crate::store::{Begun, Fenced, StoreError, StoreResult};
use crate::telemetry::{METRIC_CONFLICTS, METRIC_DATABASE_FAILURES, METRIC_REFUSED_STEPS, METRIC_TRANSACTION_SECONDS};
use std::time::Instant;

/// The steps that are refused where the claim is no longer the run's.
pub const FENCED_STEPS: [&str; 7] = ["renew", "decide", "publish", "finish", "end", "postpone", "staging_lost"];

/// A transaction, from the wait for its connection on.
pub(super) struct Transaction {
    access: Access,
    since: Instant,
}

impl Transaction {
    pub(super) fn begins(access: Access) -> Self {
        Self { access, since: Instant::now() }
    }

    pub(super) fn ended(self, error: Option<&StoreError>) {
        let seconds = self.since.elapsed().as_secs_f64();
        metrics::histogram!(METRIC_TRANSACTION_SECONDS, "access" => name(self.access)).record(seconds);
        match error {
            Some(error) if error.is_conflict() => metrics::counter!(METRIC_CONFLICTS).increment(1),
            Some(StoreError::Unavailable(_)) => metrics::counter!(METRIC_DATABASE_FAILURES).increment(1),
            _ => {}
        }
    }
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Statement => "statement",
        Access::Read => "read",
        Access::Write => "write",
    }
}

pub(super) fn begun(answer: StoreResult<Begun>) -> StoreResult<Begun> {
    refused("decide", matches!(answer, Ok(Begun::Lost)));
    answer
}

pub(super) fn fenced(step: &'static str, answer: StoreResult<Fenced>) -> StoreResult<Fenced> {
    refused(step, matches!(answer, Ok(Fenced::Lost)));
    answer
}

fn refused(step: &'static str, is_refused: bool) {
    if is_refused {
        metrics::counter!(METRIC_REFUSED_STEPS, "step" => step).increment(1);
    }
}
