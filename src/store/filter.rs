//! Which runs and partitions are listed, and as of when.

use crate::partition::PartitionKey;
use crate::run::{CatalogEntry, IdempotencyKey, Principal, RunId, State, Totals};
use chrono::{DateTime, Utc};
use std::collections::BTreeSet;

/// Which runs a listing has.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Runs of this pipeline.
    pub pipeline: Option<String>,
    /// Runs of these pipelines; none for all.
    pub pipelines: Option<BTreeSet<String>>,
    /// Runs of this principal.
    pub principal: Option<Principal>,
    /// Runs in this state.
    pub state: Option<State>,
    /// Runs that name (or made) this partition.
    pub partition: Option<PartitionKey>,
    /// The run submitted under this key.
    pub idempotency_key: Option<(Principal, IdempotencyKey)>,
    /// Runs that have all of these labels.
    pub labels: Vec<(String, String)>,
    /// Accepted after this time.
    pub created_after: Option<DateTime<Utc>>,
    /// Accepted before this time.
    pub created_before: Option<DateTime<Utc>>,
    /// Only runs with a smaller id (newest first).
    pub before: Option<RunId>,
    /// At most this many.
    pub limit: u32,
}

/// Which of a table's partitions a listing has, by canonical key.
#[derive(Debug, Clone, Default)]
pub struct PartitionFilter {
    /// From this key on (inclusive).
    pub from: Option<PartitionKey>,
    /// Up to keys before this one (exclusive).
    pub until: Option<PartitionKey>,
    /// Only keys after this one (the page).
    pub after: Option<PartitionKey>,
    /// As the table was at this version; none for now. What confirmed an entry then is not told.
    pub as_of: Option<i64>,
    /// At most this many on the page.
    pub limit: u32,
}

/// A moment of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsOf {
    /// The version.
    Version(i64),
    /// When this run had finished: the version that it made, or where it changed nothing, the one that it found.
    Run(RunId),
    /// At this time: the last version that was committed by then.
    Time(DateTime<Utc>),
}

/// A table's partitions, with the sum over all that the range has.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The table's version; 0 where it was never written.
    pub version: i64,
    /// The oldest version that can be told. As of one before it the rest of this says nothing.
    pub history_from: i64,
    /// The page, in the order of the keys.
    pub entries: Vec<CatalogEntry>,
    /// Whether more follow.
    pub more: bool,
    /// Partitions in the range.
    pub partitions: u64,
    /// Their rows.
    pub rows: u64,
    /// Their totals.
    pub totals: Totals,
}
