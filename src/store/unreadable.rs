//! A run whose documents cannot be read: what can be told of it all the same.

use crate::partition::PartitionKey;
use crate::run::{FailureClass, Mode, Principal, Run, RunError, RunId, State};

/// What of a run stands outside its documents, so that it can be read whatever became of those.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunControl {
    /// Its id.
    pub id: RunId,
    /// Whose it is.
    pub principal: Principal,
    /// The pipeline's name.
    pub pipeline: String,
    /// How it rebuilds its table.
    pub mode: Mode,
    /// Where it is.
    pub state: State,
    /// The number of its last attempt, 0 before the first.
    pub last_attempt: u32,
    /// The partitions that it names, or that a full run has made.
    pub partitions: Vec<PartitionKey>,
}

impl From<Run> for RunControl {
    fn from(run: Run) -> Self {
        Self {
            id: run.id,
            principal: run.principal,
            pipeline: run.pipeline,
            mode: run.mode,
            state: run.state,
            last_attempt: run.attempts.last().map_or(0, |attempt| attempt.number),
            partitions: run.partitions.into_iter().map(|partition| partition.partition).collect(),
        }
    }
}

/// A run that cannot be shown as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRun {
    /// What can be told of it.
    pub control: RunControl,
    /// Which of its documents cannot be read, what was found and what was expected.
    pub why: String,
}

/// Why a run has failed that cannot be read, or what is shown instead of an error that cannot.
pub(super) fn run_unreadable(why: String) -> RunError {
    RunError::new(FailureClass::Service, "run-unreadable", "The run cannot be read", why)
}
