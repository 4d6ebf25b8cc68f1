//! The run store: what was asked, who works on it, what was decided and what each partition is now.
//!
//! Each method is one business step and one transaction. Everything that a worker says is fenced by its claim token.
//!
//! ```text
//!   steps/     each business step, once: what is read, judged and written in its transaction
//!   head.rs    a run's control state and its legal moves, pure
//!   schema.rs  which databases this version works with
//!   tx.rs      a transaction on either database: statements, values, rows
//!   bus.rs     telling those who wait of changes
//!   sqlite/    sql.rs: the statements in SQLite's dialect; the file, its lock, the clock
//!   postgres/  sql.rs: the same statements in Postgres's; the pool, LISTEN
//! ```

mod bus;
mod depth;
mod error;
mod filter;
mod glance;
mod head;
mod outbox;
#[cfg(test)]
mod plans;
mod pool;
mod postgres;
mod prune;
mod rows;
mod schema;
mod sqlite;
mod statements;
mod steps;
mod tokens;
mod tx;
mod unreadable;
mod whole;

pub use depth::{PipelineDepth, QueueDepth};
pub use error::StoreError;
pub use filter::{AsOf, Listing, PartitionFilter, RunFilter};
pub use glance::Glance;
pub use outbox::{Message, MessageClaim, OutboxDepth, Recipient, Taken, Then, Tried, UnreadableMessage, Waiting};
pub use postgres::{PostgresOptions, PostgresStore};
pub use prune::{EndedAt, Prunable, PrunableRun};
pub use sqlite::{Clock, SqliteOptions, SqliteStore};
pub use steps::FENCED_STEPS;
pub use tokens::{NewToken, TokenStore, Tokens};
pub use unreadable::{RunControl, UnreadableRun};

use crate::partition::PartitionKey;
use crate::run::{
    AttemptOutcome, Audience, CatalogEntry, ClaimToken, Decided, DefinitionHash, Fingerprint, HistoryEntry,
    IdempotencyKey, Principal, Progress, Quarantine, QuarantineFile, RowCounts, Run, RunError, RunId, RunSummary,
    Scope, SourceFile, State, TableSum, Unmet, Warning,
};
use async_trait::async_trait;
use std::time::Duration;
use tokio::sync::broadcast;
use uuid::Uuid;

/// A result of the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// A definition as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDefinition {
    /// The sha256 of the parsed definition.
    pub hash: DefinitionHash,
    /// The pipeline's name.
    pub pipeline: String,
    /// The file's text.
    pub text: String,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownKey {
    /// Whose key it is.
    pub principal: Principal,
    /// The key.
    pub idempotency_key: IdempotencyKey,
    /// The run submitted under it.
    pub run_id: RunId,
    /// The pipeline that it is of.
    pub pipeline: String,
    /// What was asked.
    pub asked: crate::run::Asked,
    /// The run as it is now, unless its documents cannot be read.
    pub run: Result<Run, Box<UnreadableRun>>,
    /// The digest of what was asked.
    pub fingerprint: Fingerprint,
    /// The definition that it was first accepted with; see [`RunStore::definitions`].
    pub accepted_with: DefinitionHash,
}

/// A run to be accepted.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// Whose key it is.
    pub principal: Principal,
    /// Its key.
    pub idempotency_key: IdempotencyKey,
    /// What was asked; the scope is `asked.partitions`, or those among them that `asked.only` picks.
    pub asked: crate::run::Asked,
    /// The current definition; stored unless it is there already.
    pub definition: StoredDefinition,
    /// Who is told of it.
    pub audience: Audience,
}

/// How a submission ended.
#[derive(Debug)]
#[must_use]
pub enum Submitted {
    /// The run was accepted.
    New(Box<Run>),
    /// The key is known (it was taken meanwhile): ask [`RunStore::known_key`] again.
    KeyTaken,
    /// These partitions are not what the request says; nothing was accepted, and its key is free.
    PreconditionFailed(Vec<Unmet>),
    /// The request is to be refused where these runs, which have not ended, overlap it; so it was, and its key is free.
    Overlaps(Vec<RunId>),
    /// As many runs of its principal are queued as may be; nothing was accepted, and its key is free.
    TooManyQueued(u32),
}

/// A claim to be made.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The worker's name.
    pub worker: String,
    /// The new token.
    pub token: ClaimToken,
    /// How long the lease lasts, by the database's clock.
    pub lease: Duration,
    /// How many lost workers a run may have before its decision; one more fails it.
    pub max_lost_workers: u32,
}

/// A run that a worker holds now.
#[derive(Debug)]
pub struct Claimed {
    /// The run as it is, in state `running` or `committing`.
    pub run: Run,
    /// The claim's token.
    pub token: ClaimToken,
    /// The attempt's number.
    pub attempt: u32,
    /// Failures so far since the last retry by request, by class: source, service, compute.
    pub failures: Failures,
    /// For a committing run: how many attempts to publish what was decided have failed.
    pub publish_failures: u32,
    /// The definition to execute.
    pub definition: StoredDefinition,
    /// For a committing run: what was decided.
    pub decided: Option<DecidedRun>,
}

/// What was decided for a run: all that publishing needs.
#[derive(Debug, Clone, PartialEq)]
pub struct DecidedRun {
    /// The token that decided; its staging folder holds the files.
    pub token: ClaimToken,
    /// Each partition.
    pub partitions: Vec<Decided>,
    /// Whether the table has a manifest.
    pub manifest: bool,
}

/// Failures of a run since its last retry by request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// Source failures.
    pub source: u32,
    /// Service failures.
    pub service: u32,
    /// Compute failures.
    pub compute: u32,
}

/// What a renewal answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Renewal {
    /// The lease is longer now.
    Held,
    /// The lease is longer now, and somebody asked to cancel.
    CancelAsked,
    /// The token is no longer the run's: stop at once.
    Lost,
}

/// Whether a step that is fenced by a token was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// It was done, now or by an earlier call whose answer was lost.
    Done,
    /// The token is no longer the run's, or the run is not in the state that the step needs: nothing was done.
    Lost,
}

/// Whether what an attempt computed was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// The run is committing, now or by an earlier call whose answer was lost.
    Committing,
    /// Somebody asked to cancel before the decision, so nothing was decided: end the attempt as cancelled.
    CancelAsked,
    /// The rows of this partition were put into what the catalog does not have any more, so nothing was decided: compute
    /// again.
    BaseChanged(PartitionKey),
    /// These partitions are not what the request says any more, so nothing was decided: end the attempt and the run.
    PreconditionFailed(Vec<Unmet>),
    /// The token is no longer the run's: nothing was decided.
    Lost,
}

/// What is decided, with the report that goes with it.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Every partition of the scope; for `full` also those that go.
    pub partitions: Vec<Decided>,
    /// Whether the table has a manifest.
    pub manifest: bool,
    /// The books.
    pub rows: RowCounts,
    /// The files read.
    pub sources: Vec<SourceFile>,
    /// What the reader should look at.
    pub warnings: Vec<Warning>,
    /// What was kept apart; it takes the place of an earlier attempt's.
    pub quarantine: Option<Quarantine>,
    /// How far the attempt is.
    pub progress: Progress,
}

/// How an attempt ended without a result.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The attempt's outcome: `failed`, `cancelled`, `lost` (its engine died) or `released`.
    pub outcome: AttemptOutcome,
    /// Why; none for cancelled and released.
    pub error: Option<RunError>,
    /// What was kept apart. Where the attempt did not get so far, an earlier one's stays.
    pub quarantine: Option<Quarantine>,
    /// For `failed`: when to try again; none ends the run. `lost` comes back then, or at once, until its count is used up;
    /// `released` at once.
    pub retry_after: Option<Duration>,
    /// See [`ClaimRequest::max_lost_workers`].
    pub max_lost_workers: u32,
}

/// How a cancellation ended.
#[derive(Debug)]
#[must_use]
pub enum Cancelled {
    /// The run is cancelled (now, or it was before).
    Now,
    /// A worker was asked to stop.
    Asked,
    /// It is committing, or it ended otherwise.
    NotAllowed(State),
    /// There is no such run.
    Unknown,
}

/// How a retry by request ended.
#[derive(Debug)]
#[must_use]
pub enum Retried {
    /// The run is queued again, with a new sequence number.
    Queued,
    /// Its state does not allow it, or its last attempt is another.
    NotAllowed {
        /// Where it is.
        state: State,
        /// Its last attempt.
        last_attempt: u32,
    },
    /// These partitions are not what the request says; so it stays as it was.
    PreconditionFailed(Vec<Unmet>),
    /// The run is not to wait where these runs, which have not ended, overlap it; so it stays as it was.
    Overlaps(Vec<RunId>),
    /// As many runs of its principal are queued as may be; so it stays as it was.
    TooManyQueued(u32),
    /// There is no such run.
    Unknown,
}

/// A run or partition has changed: whoever waits for it should look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// This run changed its state.
    Run(RunId),
    /// Somebody else than who holds this run has changed it, and may have asked to cancel it or taken it over: its holder is to ask.
    Held(RunId),
    /// A run may be claimable.
    Queue,
}

/// What the sweeper may do with what attempts of a run have left: an attempt's staging folder, that of checkpoints (which has
/// no token), or a file of rows kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum StagingVerdict {
    /// Somebody may need it.
    Keep,
    /// Nobody does, and nobody will.
    Remove,
    /// The database has no such run: not ours to judge.
    Unknown,
}

/// The business steps. Two implementations: Postgres and SQLite; one conformance suite.
#[async_trait]
pub trait RunStore: TokenStore {
    /// Wake-ups; subscribe before you query. They hurry, polling decides.
    fn changes(&self) -> broadcast::Receiver<Change>;

    /// Whether runs that are submitted together are one call, beside which a look before it is a second one. A look is cheaper where
    /// who writes waits for all who do.
    fn accepts_at_once(&self) -> bool;

    /// Whether the database answers, is still one for this version, and can be written: a row that nobody reads is, and is taken away
    /// again.
    async fn ping(&self) -> StoreResult<()>;

    /// The database's own random id, made with its schema.
    async fn database_id(&self) -> StoreResult<Uuid>;

    /// The warehouse that belongs to this database, if any.
    async fn warehouse_id(&self) -> StoreResult<Option<Uuid>>;

    /// Binds a warehouse to this database unless one is bound; answers the one that is.
    async fn bind_warehouse(&self, id: Uuid) -> StoreResult<Uuid>;

    /// What is known of these keys of principals, in any order: of those that are known.
    async fn known_keys(&self, keys: &[(Principal, IdempotencyKey)]) -> StoreResult<Vec<KnownKey>>;

    /// What is known of a principal's key.
    async fn known_key(&self, principal: &Principal, key: &IdempotencyKey) -> StoreResult<Option<KnownKey>> {
        Ok(self.known_keys(&[(principal.clone(), key.clone())]).await?.pop())
    }

    /// Accepts a run: its row is the queue entry and the idempotency record. Whether its key is taken comes before whether
    /// others overlap it. Which of the partitions asked for are picked is settled here; where none is, the run has succeeded.
    async fn submit(&self, run: &NewRun) -> StoreResult<Submitted>;

    /// The same of each of these runs that [`NewRun::is_plain`], in one transaction. Where it fails, it is as if none had been
    /// submitted.
    async fn submit_together(&self, runs: &[&NewRun]) -> StoreResult<Vec<Submitted>>;

    /// The runs that have not ended and overlap a scope of a pipeline, in their order, at most `limit`: a run that was
    /// accepted now would wait for them.
    async fn overlapping(&self, pipeline: &str, scope: &Scope, limit: u32) -> StoreResult<Vec<(RunId, State)>>;

    /// Where these runs are, those that there are in any order: what changes of a run before it ends, and little of it.
    async fn glances(&self, ids: &[RunId]) -> StoreResult<Vec<Glance>>;

    /// These runs with their last attempts, in any order: those that there are.
    async fn runs(&self, ids: &[RunId]) -> StoreResult<Vec<Run>>;

    /// One run, with its last attempts. Where its documents cannot be read the error says what can be told of it.
    async fn get(&self, id: RunId) -> StoreResult<Option<Run>> {
        Ok(self.runs(&[id]).await?.pop())
    }

    /// Summaries, newest first; up to `limit`.
    async fn list(&self, filter: &RunFilter) -> StoreResult<Vec<RunSummary>>;

    /// Takes over runs whose worker is lost, then claims the next run, if any is due: first a committing run whose
    /// lease ran out; then, of the principal whose last turn is the longest ago, the due queued run of the highest priority, and
    /// among these of the lowest sequence number, that overlaps no held run and no queued run (due or not) with a lower number.
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Option<Claimed>>;

    /// Renews the lease and notes the progress.
    async fn renew(&self, id: RunId, token: ClaimToken, lease: Duration, progress: &Progress) -> StoreResult<Renewal>;

    /// Decides: records what will be published and moves `running` to `committing`, unless somebody asked to cancel, a merge's
    /// base is not what the catalog has, or a partition is not what the request says. Idempotent per token.
    async fn begin_commit(&self, id: RunId, token: ClaimToken, decision: &Decision) -> StoreResult<Begun>;

    /// Asked under the publish lock: is this token still the run's, and the run committing?
    async fn may_publish(&self, id: RunId, token: ClaimToken) -> StoreResult<Fenced>;

    /// Finishes: catalog, history, table version and the run's success in one transaction. Idempotent per token.
    async fn finish(&self, id: RunId, token: ClaimToken) -> StoreResult<Fenced>;

    /// Ends a running attempt without a result. Idempotent per token.
    async fn end_attempt(&self, id: RunId, token: ClaimToken, ended: &Ended) -> StoreResult<Fenced>;

    /// Hands a committing run back, to be published after `delay`. The attempt's outcome is `failed`, where `error` says
    /// why and is the run's until the next claim, or `released`. Idempotent per token.
    async fn postpone_publish(
        &self,
        id: RunId,
        token: ClaimToken,
        delay: Duration,
        outcome: AttemptOutcome,
        error: Option<&RunError>,
    ) -> StoreResult<Fenced>;

    /// A decided file is gone and the live file is not it: back to `queued` (attempt outcome `staging_lost`), with the
    /// partitions in `live` entered in the catalog since they are live as decided.
    async fn staging_lost(&self, id: RunId, token: ClaimToken, live: &[PartitionKey]) -> StoreResult<Fenced>;

    /// Cancels a queued run, or asks the worker of a running one to stop.
    async fn cancel(&self, id: RunId) -> StoreResult<Cancelled>;

    /// Queues a failed or cancelled run again, as a new attempt with a new sequence number and `definition`; only if
    /// its last attempt was `if_attempt`, where given. The counts of failures start anew.
    async fn retry(&self, id: RunId, if_attempt: Option<u32>, definition: &StoredDefinition) -> StoreResult<Retried>;

    /// A table's version; 0 where it was never written.
    async fn table_version(&self, pipeline: &str) -> StoreResult<i64>;

    /// The version of a table at a moment; none where there was no such version, or no such run of it that succeeded. Where it
    /// is below [`Listing::history_from`] it stands for any of those that were forgotten.
    async fn version_as_of(&self, pipeline: &str, moment: AsOf) -> StoreResult<Option<i64>>;

    /// A table's partitions with totals, all from one snapshot.
    async fn partitions(&self, pipeline: &str, filter: &PartitionFilter) -> StoreResult<Listing>;

    /// Counts what a table sums up to anew and keeps it; whether something else was kept, which nothing that this version does explains.
    async fn settle_sum(&self, pipeline: &str) -> StoreResult<bool>;

    /// What is kept as the sum of a table and what its partitions sum up to, where the two differ.
    async fn sum_difference(&self, pipeline: &str) -> StoreResult<Option<(TableSum, TableSum)>>;

    /// The catalog's entries of these partitions, or of the whole table.
    async fn entries(&self, pipeline: &str, keys: Option<&[PartitionKey]>) -> StoreResult<Vec<CatalogEntry>>;

    /// The definitions that the entries of this table are right for, in the order of their hashes.
    async fn table_definitions(&self, pipeline: &str) -> StoreResult<Vec<StoredDefinition>>;

    /// The definitions that have these hashes, in the order of those. None is ever forgotten.
    async fn definitions(&self, hashes: &[DefinitionHash]) -> StoreResult<Vec<StoredDefinition>>;

    /// One partition from one snapshot: its entry, and its changes before that version, newest first, at most `limit`.
    async fn partition(
        &self,
        pipeline: &str,
        key: &PartitionKey,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<(Option<CatalogEntry>, Vec<HistoryEntry>)>;

    /// What the sweeper may do with these attempts' staging folders, in the order given: keep those of runs that have not
    /// ended whose token, if there is one, is current or decided.
    async fn staging_verdicts(&self, folders: &[(RunId, Option<ClaimToken>)]) -> StoreResult<Vec<StagingVerdict>>;

    /// What the sweeper may do with these files of rows kept apart, in the order given: keep what a run's record names, and
    /// what a claim that is current may still have recorded.
    async fn quarantine_verdicts(&self, files: &[QuarantineFile]) -> StoreResult<Vec<StagingVerdict>>;

    /// Forgets the oldest version of a table, where the next one was committed longer ago than `kept`; whether there was one.
    /// What is told of later versions stays as it is.
    async fn prune_version(&self, kept: Duration) -> StoreResult<bool>;

    /// Runs that ended longer ago than `kept` and that neither the catalog nor what is left of its history refers to: those
    /// among the `limit` ones after a place in the order of their ends.
    async fn prunable(&self, kept: Duration, after: EndedAt, limit: u32) -> StoreResult<Prunable>;

    /// Forgets these runs with their keys and all that was recorded of them, but those that are not prunable any more; how many
    /// they were.
    async fn prune_runs(&self, kept: Duration, runs: &[RunId]) -> StoreResult<u64>;

    /// Lets queued runs go that stand behind one that has ended, which nothing explains; how many there were.
    async fn free_stranded(&self) -> StoreResult<u64>;

    /// Counts for metrics.
    async fn queue_depth(&self) -> StoreResult<QueueDepth>;

    /// Takes in hand the message that has been due longest, if any is: over all servers one has it at a time. Of the lineage of
    /// a run it is the first one that is pending.
    async fn claim_message(&self, request: &MessageClaim) -> StoreResult<Option<Taken>>;

    /// Notes how a try with a message that is in hand ended. Nothing of it changes the run.
    async fn message_tried(&self, position: i64, token: Uuid, tried: &Tried) -> StoreResult<Fenced>;

    /// Counts of messages that were not delivered, for metrics.
    async fn outbox_depth(&self) -> StoreResult<OutboxDepth>;
}
