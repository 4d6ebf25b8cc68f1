//! Runs that ended long ago, and may go.

use crate::run::{Quarantine, RunId};
use chrono::{DateTime, Utc};
use uuid::Uuid;

/// A place in the order in which runs ended; the default is before all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedAt {
    /// When the run ended.
    pub(super) time: DateTime<Utc>,
    /// The run, among those that ended at the same time.
    pub(super) run: Uuid,
}

/// Some of the runs that ended long ago.
#[derive(Debug, Clone, PartialEq)]
pub struct Prunable {
    /// Those of them that nothing refers to any more, in the order of their ends.
    pub runs: Vec<PrunableRun>,
    /// Where the others begin, if there are any.
    pub next: Option<EndedAt>,
}

/// A run that may go.
#[derive(Debug, Clone, PartialEq)]
pub struct PrunableRun {
    /// Its id.
    pub id: RunId,
    /// How many partitions go with it.
    pub partitions: u64,
    /// What it has kept apart, which is to be removed before its record is.
    pub quarantine: Option<Quarantine>,
}
