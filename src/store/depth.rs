//! How much is waiting.

use chrono::{DateTime, Utc};
use std::time::Duration;

/// Counts for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Queued runs.
    pub queued: u64,
    /// Those of them whose time, `not_before`, has not come.
    pub scheduled: u64,
    /// Running runs.
    pub running: u64,
    /// Committing runs.
    pub committing: u64,
    /// How long the oldest due queued run has been waiting.
    pub oldest_due: Option<Duration>,
    /// Each pipeline that ever had a run, by name.
    pub pipelines: Vec<PipelineDepth>,
}

/// Counts for metrics, of one pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipelineDepth {
    /// Its name.
    pub pipeline: String,
    /// Queued runs that are due.
    pub due: u64,
    /// How long the oldest of them has been waiting.
    pub oldest_due: Option<Duration>,
    /// When a run last succeeded.
    pub last_success: Option<DateTime<Utc>>,
}
