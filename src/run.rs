//! The domain of runs, pure: ids, keys, states and their legal moves, outcomes, totals, retry delays.

mod fingerprint;
mod notice;
mod outcome;
mod part_file;
mod precondition;
mod progress;
mod report;
mod retry;
mod sum;
mod totals;

pub use fingerprint::{Asked, AskedPartitions, Fingerprint, Labels, OnOverlap, Only};
pub use notice::{Audience, Delivery, DeliveryState, Notice, Occasion, PartitionCounts, Written};
pub use outcome::{Action, Base, Decided, ForeignFiles, Outcome, decide};
pub use part_file::PartFile;
pub use precondition::{Expected, Preconditions, Unmet, precondition_failed};
pub use progress::{Pace, Progress, Stage};
pub use report::{Quarantine, QuarantineFile, RowCounts, SourceFile, StagedPartition, Warning};
pub use retry::{FailureClass, RetryPolicy, RetryRule};
pub use sum::{Part, TableSum};
pub use totals::{Fold, Measured, Scalar, Totals, decimal_text};

use crate::partition::PartitionKey;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Bytes as two hex digits each, in lower case: how digests are told and kept.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |four: u8| char::from(DIGITS[usize::from(four)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The id of a run: a UUIDv7, so ids sort by the time of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// A new id, made from the clock and randomness.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who may act for a run now: a random id made at each claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimToken(pub Uuid);

impl ClaimToken {
    /// A new random token.
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

impl Default for ClaimToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name that idempotency keys belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(pub String);

impl Default for Principal {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// An idempotency key: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct IdempotencyKey(String);

/// Why a text is no idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyKeyError {
    /// Nothing in it.
    #[error("the idempotency key is empty, expected 1 to 255 visible ASCII characters")]
    Empty,
    /// Longer than [`IdempotencyKey::MAX_CHARS`].
    #[error("the idempotency key has {0} characters, expected at most 255")]
    TooLong(usize),
    /// A space, a control character or something outside ASCII.
    #[error("the idempotency key has {0:?} at character {1}, expected visible ASCII characters only")]
    Invisible(char, usize),
}

impl IdempotencyKey {
    /// The longest key.
    pub const MAX_CHARS: usize = 255;

    /// Checks a key given bare or quoted as in the IETF draft; both mean the same key.
    pub fn parse(text: &str) -> Result<Self, IdempotencyKeyError> {
        let bare = match text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
            Some(inner) if !inner.contains('"') => inner,
            _ => text,
        };
        let chars = bare.chars().count();
        if chars == 0 {
            return Err(IdempotencyKeyError::Empty);
        }
        if chars > Self::MAX_CHARS {
            return Err(IdempotencyKeyError::TooLong(chars));
        }
        match bare.chars().enumerate().find(|(_, c)| !c.is_ascii_graphic()) {
            Some((at, c)) => Err(IdempotencyKeyError::Invisible(c, at + 1)),
            None => Ok(Self(bare.to_owned())),
        }
    }

    /// Takes a key that was checked when it was stored.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The key, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a run does to its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Replace the named partitions and no other.
    Overwrite,
    /// Rebuild the whole table.
    Full,
}

/// What an attempt rebuilds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// These, and no other; sorted and unique.
    Partitions(Vec<PartitionKey>),
    /// Every partition that the sources hold.
    Full,
}

/// The sha256 of a parsed definition, in hex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DefinitionHash(pub String);

impl fmt::Display for DefinitionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a run is on its way: `queued -> running -> committing -> succeeded`, or `failed`, `cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for a worker, an earlier overlapping run or its due time.
    Queued,
    /// A worker computes it.
    Running,
    /// What will be published is decided.
    Committing,
    /// All of it is published.
    Succeeded,
    /// It ended without changing anything.
    Failed,
    /// It was ended by request without changing anything.
    Cancelled,
}

impl State {
    /// All states, in the order of a run's way.
    pub const ALL: [State; 6] =
        [State::Queued, State::Running, State::Committing, State::Succeeded, State::Failed, State::Cancelled];

    /// The state's name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Running => "running",
            State::Committing => "committing",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Whether nothing more happens unless somebody asks for a retry.
    pub fn is_ended(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::Cancelled)
    }

    /// Whether a worker holds it, so that overlapping runs wait.
    pub fn is_held(self) -> bool {
        matches!(self, State::Running | State::Committing)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// It finished the run.
    Succeeded,
    /// It failed; the run was queued again or failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// Its worker's lease ran out, or its engine died.
    Lost,
    /// Its worker gave the run back, shutting down.
    Released,
    /// A decided file was gone; the run was queued again.
    StagingLost,
}

impl AttemptOutcome {
    /// The outcome's name on the wire and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptOutcome::Succeeded => "succeeded",
            AttemptOutcome::Failed => "failed",
            AttemptOutcome::Cancelled => "cancelled",
            AttemptOutcome::Lost => "lost",
            AttemptOutcome::Released => "released",
            AttemptOutcome::StagingLost => "staging_lost",
        }
    }

    /// The outcome of that name.
    pub fn parse(text: &str) -> Option<Self> {
        use AttemptOutcome::{Cancelled, Failed, Lost, Released, StagingLost, Succeeded};
        [Succeeded, Failed, Cancelled, Lost, Released, StagingLost].into_iter().find(|o| o.as_str() == text)
    }
}

/// One try at a run by one worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// The worker's name.
    pub worker: String,
    /// When it was claimed.
    pub started_at: DateTime<Utc>,
    /// When it ended; null while it goes on.
    pub ended_at: Option<DateTime<Utc>>,
    /// How it ended; null while it goes on.
    pub outcome: Option<AttemptOutcome>,
    /// Why it ended, where it failed.
    pub error: Option<RunError>,
}

/// Why a run failed or a try at it did: a problem object of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// A stable name such as `source-missing` or `sum-overflow`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name in words.
    pub title: String,
    /// What was found, what was expected and where.
    pub detail: String,
    /// Which class of failure it is, and so how it is retried.
    pub class: FailureClass,
    /// How long the other side asked to be left alone, in seconds, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

impl RunError {
    /// What the names of errors begin with on the wire.
    pub const TYPE_PREFIX: &str = "urn:refrain:problem:";

    /// An error after which nobody asked to be left alone.
    pub fn new(class: FailureClass, kind: &str, title: &str, detail: String) -> Self {
        Self { kind: kind.to_owned(), title: title.to_owned(), detail, class, retry_after_seconds: None }
    }
}

/// One partition of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunPartition {
    /// The canonical key.
    pub partition: PartitionKey,
    /// What became of it; null before the decision.
    pub outcome: Option<Outcome>,
    /// What it holds after the run; null before the decision.
    pub content: Option<Content>,
    /// What it held before; null where it was not there.
    pub previous: Option<Previous>,
    /// What its rows were put into, where they were merged.
    pub base: Option<Base>,
    /// The last run that has changed it after this one; none where it is as this run left it.
    pub superseded_by: Option<RunId>,
}

impl RunPartition {
    /// A partition of a run before its decision.
    pub fn undecided(partition: PartitionKey) -> Self {
        Self { partition, outcome: None, content: None, previous: None, base: None, superseded_by: None }
    }
}

/// What a partition holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// Rows of the file.
    pub rows: u64,
    /// Each measure rolled up over the rows.
    pub totals: Totals,
    /// Source rows that went in.
    pub source_rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Digest of the file, in hex.
    pub sha256: String,
    /// The file's name. Left out where it is the first that there was, so that what was stored before is still the same.
    #[serde(default, skip_serializing_if = "PartFile::is_default")]
    pub file: PartFile,
}

/// What a partition held before a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Previous {
    /// Rows of the file.
    pub rows: u64,
    /// Each measure rolled up over the rows.
    pub totals: Totals,
    /// The run that wrote it.
    pub run_id: RunId,
}

/// A request to rebuild partitions, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Whose key it is.
    pub principal: Principal,
    /// The key that it was submitted under.
    pub idempotency_key: IdempotencyKey,
    /// The pipeline's name.
    pub pipeline: String,
    /// Overwrite or full.
    pub mode: Mode,
    /// Where it is.
    pub state: State,
    /// What was asked.
    pub asked: Asked,
    /// Its partitions in the order of their keys; for `full` known from the decision on.
    pub partitions: Vec<RunPartition>,
    /// The report's row counts, from the decision on.
    pub rows: Option<RowCounts>,
    /// The files read, from the decision on.
    pub sources: Vec<SourceFile>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// What it is doing; null before the first attempt.
    pub progress: Option<Progress>,
    /// What the reader should look at.
    pub warnings: Vec<Warning>,
    /// The rows that the last attempt which got so far kept apart.
    pub quarantine: Option<Quarantine>,
    /// Why it failed, or why its last try did while it waits for the next.
    pub error: Option<RunError>,
    /// The definition it is executed with.
    pub definition: DefinitionHash,
    /// Its place in the order of overlapping runs; below 0 where it takes that when it is due.
    pub sequence: i64,
    /// Whether somebody asked to cancel it.
    pub cancel_requested: bool,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it may be claimed next, while it waits for its time, for a retry or to be published.
    pub due_at: DateTime<Utc>,
    /// Who was told of its end, or is to be; oldest first.
    pub deliveries: Vec<Delivery>,
}

/// A run in a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// Whose key it is.
    pub principal: Principal,
    /// The pipeline's name.
    pub pipeline: String,
    /// The key that it was submitted under.
    pub idempotency_key: IdempotencyKey,
    /// Overwrite or full.
    pub mode: Mode,
    /// Where it is.
    pub state: State,
    /// What the caller calls it by.
    pub labels: Labels,
    /// How many partitions it names (or made, for `full`).
    pub partitions: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// Among due runs, those of a higher one are claimed first.
    pub priority: i32,
    /// The time before which it is not to begin.
    pub not_before: Option<DateTime<Utc>>,
    /// Why it failed.
    pub error: Option<RunError>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When it was first claimed.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
}

/// What the catalog says a partition is now.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogEntry {
    /// The canonical key.
    pub partition: PartitionKey,
    /// What it holds.
    pub content: Content,
    /// The run that wrote it.
    pub run_id: RunId,
    /// When that run finished.
    pub committed_at: DateTime<Utc>,
    /// The definition that the content is right for.
    pub definition: DefinitionHash,
    /// The last run that computed the same content again.
    pub confirmed_by: Option<RunId>,
    /// When that was.
    pub confirmed_at: Option<DateTime<Utc>>,
}

/// One change of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// The table version that the change made.
    pub version: i64,
    /// The run that made it.
    pub run_id: RunId,
    /// Whose run that was.
    pub principal: Principal,
    /// What its caller calls that run by.
    pub labels: Labels,
    /// When that run finished.
    pub committed_at: DateTime<Utc>,
    /// What it did.
    pub outcome: Outcome,
    /// What the partition held from then on; null where it was cleared.
    pub content: Option<Content>,
    /// The definition used.
    pub definition: DefinitionHash,
}
