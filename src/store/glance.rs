//! What changes of a run before it ends.

use crate::run::{Progress, RunError, RunId, State};
use chrono::{DateTime, Utc};

/// Where a run is, for those who wait for it or look on.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// Its id.
    pub id: RunId,
    /// Where it is.
    pub state: State,
    /// Its last attempt; 0 before the first.
    pub attempt: u32,
    /// Its place in the order of overlapping runs, which is another after each retry by request.
    pub sequence: i64,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// What it is doing.
    pub progress: Option<Progress>,
    /// Why it failed, or why its last try did while it waits for the next.
    pub error: Option<RunError>,
    /// When it may be claimed next, while it waits for a retry or to be published.
    pub due_at: DateTime<Utc>,
}
