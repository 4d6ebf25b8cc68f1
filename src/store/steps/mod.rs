//! The business steps, once for both databases: each is one transaction over the statements of its dialect.

mod attempt;
mod claim;
mod commit;
mod counted;
mod due;
mod outbox;
mod prune;
mod pulse;
mod read;
mod submit;
mod sums;
mod tokens;

pub use counted::FENCED_STEPS;

use super::bus::Bus;
use super::head::Head;
use super::tx::{Extent, Tx, values};
use super::{
    AsOf, Begun, Cancelled, Change, ClaimRequest, Claimed, Decision, Ended, EndedAt, Fenced, Glance, KnownKey, Listing,
    MessageClaim, NewRun, NewToken, OutboxDepth, PartitionFilter, Prunable, QueueDepth, Renewal, Retried, RunFilter,
    RunStore, StagingVerdict, StoreError, StoreResult, StoredDefinition, Submitted, Taken, TokenStore, Tokens, Tried,
    rows,
};
use crate::access::{TokenId, TokenRecord};
use crate::partition::PartitionKey;
use crate::run::{
    AttemptOutcome, CatalogEntry, ClaimToken, DefinitionHash, HistoryEntry, IdempotencyKey, Principal, Progress,
    QuarantineFile, Run, RunError, RunId, RunSummary, Scope, State, TableSum,
};
use crate::telemetry::METRIC_RUNS_ENDED;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sqlx::migrate::Migrator;
use std::time::Duration;
use tokio::sync::broadcast;
use uuid::Uuid;

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// One statement, which is a transaction by itself and gives the same when it is repeated.
    Statement,
    /// One snapshot, nothing written.
    Read,
    /// Every statement sees what was committed before it; rows are locked before they are judged.
    Write,
}

impl Access {
    /// How far such a transaction reaches.
    pub(super) fn extent(self) -> Extent {
        match self {
            Self::Statement => Extent::Statement,
            Self::Read | Self::Write => Extent::Block,
        }
    }
}

/// What the two databases do differently; all else is in the steps and the statements.
#[async_trait]
pub(super) trait Database: Send + Sync {
    /// Opens a transaction.
    async fn begin(&self, access: Access) -> StoreResult<Tx>;

    /// A connection was found broken: others that lay idle since before are not to be trusted.
    fn distrust(&self) {}

    /// Where changes are told.
    fn bus(&self) -> &Bus;

    /// The statement that accepts runs as [`submit::submit`] does, where round trips count.
    fn accept_runs(&self) -> Option<&'static str> {
        None
    }

    /// The migrations that this version knows.
    fn migrations(&self) -> &'static Migrator;
}

/// How often a step is done again that the database undid for another transaction's sake.
const CONFLICT_RETRIES: u32 = 5;

/// Runs one step in one transaction, again where the database undid it for another's sake, and once more where it turns out
/// that the connection was broken and that nothing is lost by it: a single statement is one that may be repeated.
macro_rules! step {
    ($store:expr, $access:ident, |$tx:ident| $step:expr) => {{
        let (mut tries, mut broken) = (0, false);
        loop {
            let counted = counted::Transaction::begins(Access::$access);
            let mut repeatable = true;
            let done = match $store.begin(Access::$access).await {
                Ok(mut transaction) => {
                    repeatable = Access::$access != Access::Write;
                    let $tx = &mut transaction;
                    match $step.await {
                        Ok(answer) => transaction.commit().await.map(|()| answer),
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            counted.ended(done.as_ref().err());
            match done {
                Err(error) if error.is_conflict() && tries < CONFLICT_RETRIES => tries += 1,
                Err(error) if error.is_broken_connection() && repeatable && !broken => {
                    $store.distrust();
                    broken = true;
                }
                done => break done,
            }
        }
    }};
}

#[async_trait]
impl<D: Database> RunStore for D {
    fn changes(&self) -> broadcast::Receiver<Change> {
        self.bus().local.subscribe()
    }

    fn accepts_at_once(&self) -> bool {
        self.accept_runs().is_some()
    }

    async fn ping(&self) -> StoreResult<()> {
        step!(self, Write, |tx| pulse::write(tx, self.migrations()))
    }

    async fn database_id(&self) -> StoreResult<Uuid> {
        Ok(step!(self, Read, |tx| read::identity(tx))?.0)
    }

    async fn warehouse_id(&self) -> StoreResult<Option<Uuid>> {
        Ok(step!(self, Read, |tx| read::identity(tx))?.1)
    }

    async fn bind_warehouse(&self, id: Uuid) -> StoreResult<Uuid> {
        step!(self, Write, |tx| submit::bind_warehouse(tx, id))
    }

    async fn known_keys(&self, keys: &[(Principal, IdempotencyKey)]) -> StoreResult<Vec<KnownKey>> {
        step!(self, Statement, |tx| read::known_keys(tx, keys))
    }

    async fn submit(&self, run: &NewRun) -> StoreResult<Submitted> {
        if !run.is_plain() {
            return step!(self, Write, |tx| submit::submit(tx, run));
        }
        let submitted = self.submit_together(&[run]).await?.pop();
        submitted.ok_or(StoreError::Refused(sqlx::Error::RowNotFound))
    }

    async fn submit_together(&self, runs: &[&NewRun]) -> StoreResult<Vec<Submitted>> {
        match self.accept_runs() {
            Some(statement) => step!(self, Statement, |tx| submit::at_once(tx, statement, runs)),
            None => step!(self, Write, |tx| submit::one_by_one(tx, runs)),
        }
    }

    async fn overlapping(&self, pipeline: &str, scope: &Scope, limit: u32) -> StoreResult<Vec<(RunId, State)>> {
        step!(self, Read, |tx| read::overlapping(tx, pipeline, scope, limit))
    }

    async fn glances(&self, ids: &[RunId]) -> StoreResult<Vec<Glance>> {
        step!(self, Statement, |tx| read::glances(tx, ids))
    }

    async fn runs(&self, ids: &[RunId]) -> StoreResult<Vec<Run>> {
        step!(self, Statement, |tx| read::runs(tx, ids))
    }

    async fn list(&self, filter: &RunFilter) -> StoreResult<Vec<RunSummary>> {
        step!(self, Read, |tx| read::list(tx, filter))
    }

    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Option<Claimed>> {
        let mut given_up = 0;
        loop {
            let mut reading = None;
            let answer = claim_readable(self, request, &mut reading).await;
            match (answer.as_ref().err().and_then(StoreError::unreadable), reading) {
                (Some(why), Some(id)) if given_up < MAX_GIVEN_UP => {
                    tracing::error!(run.id = %id, why, "the run cannot be read, it is given up");
                    step!(self, Write, |tx| claim::give_up_unreadable(tx, id, why))?;
                    given_up += 1;
                }
                _ => return answer,
            }
        }
    }

    async fn renew(&self, id: RunId, token: ClaimToken, lease: Duration, progress: &Progress) -> StoreResult<Renewal> {
        step!(self, Write, |tx| attempt::renew(tx, id, token, lease, progress))
    }

    async fn begin_commit(&self, id: RunId, token: ClaimToken, decision: &Decision) -> StoreResult<Begun> {
        counted::begun(step!(self, Write, |tx| commit::begin(tx, id, token, decision)))
    }

    async fn may_publish(&self, id: RunId, token: ClaimToken) -> StoreResult<Fenced> {
        counted::fenced("publish", step!(self, Write, |tx| commit::may_publish(tx, id, token)))
    }

    async fn finish(&self, id: RunId, token: ClaimToken) -> StoreResult<Fenced> {
        counted::fenced("finish", step!(self, Write, |tx| commit::finish(tx, id, token)))
    }

    async fn end_attempt(&self, id: RunId, token: ClaimToken, ended: &Ended) -> StoreResult<Fenced> {
        counted::fenced("end", step!(self, Write, |tx| attempt::end(tx, id, token, ended)))
    }

    async fn postpone_publish(
        &self,
        id: RunId,
        token: ClaimToken,
        delay: Duration,
        outcome: AttemptOutcome,
        error: Option<&RunError>,
    ) -> StoreResult<Fenced> {
        counted::fenced("postpone", step!(self, Write, |tx| commit::postpone(tx, id, token, delay, outcome, error)))
    }

    async fn staging_lost(&self, id: RunId, token: ClaimToken, live: &[PartitionKey]) -> StoreResult<Fenced> {
        counted::fenced("staging_lost", step!(self, Write, |tx| commit::staging_lost(tx, id, token, live)))
    }

    async fn cancel(&self, id: RunId) -> StoreResult<Cancelled> {
        step!(self, Write, |tx| submit::cancel(tx, id))
    }

    async fn retry(&self, id: RunId, if_attempt: Option<u32>, definition: &StoredDefinition) -> StoreResult<Retried> {
        step!(self, Write, |tx| submit::retry(tx, id, if_attempt, definition))
    }

    async fn table_version(&self, pipeline: &str) -> StoreResult<i64> {
        step!(self, Statement, |tx| read::table_version(tx, pipeline))
    }

    async fn version_as_of(&self, pipeline: &str, moment: AsOf) -> StoreResult<Option<i64>> {
        step!(self, Read, |tx| read::version_as_of(tx, pipeline, moment))
    }

    async fn partitions(&self, pipeline: &str, filter: &PartitionFilter) -> StoreResult<Listing> {
        step!(self, Read, |tx| read::partitions(tx, pipeline, filter))
    }

    async fn settle_sum(&self, pipeline: &str) -> StoreResult<bool> {
        step!(self, Write, |tx| sums::settle(tx, pipeline))
    }

    async fn sum_difference(&self, pipeline: &str) -> StoreResult<Option<(TableSum, TableSum)>> {
        step!(self, Read, |tx| sums::difference(tx, pipeline))
    }

    async fn entries(&self, pipeline: &str, keys: Option<&[PartitionKey]>) -> StoreResult<Vec<CatalogEntry>> {
        step!(self, Read, |tx| read::entries(tx, pipeline, keys))
    }

    async fn table_definitions(&self, pipeline: &str) -> StoreResult<Vec<StoredDefinition>> {
        step!(self, Statement, |tx| read::table_definitions(tx, pipeline))
    }

    async fn definitions(&self, hashes: &[DefinitionHash]) -> StoreResult<Vec<StoredDefinition>> {
        step!(self, Statement, |tx| read::definitions(tx, hashes))
    }

    async fn partition(
        &self,
        pipeline: &str,
        key: &PartitionKey,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<(Option<CatalogEntry>, Vec<HistoryEntry>)> {
        step!(self, Read, |tx| read::partition(tx, pipeline, key, before, limit))
    }

    async fn staging_verdicts(&self, folders: &[(RunId, Option<ClaimToken>)]) -> StoreResult<Vec<StagingVerdict>> {
        step!(self, Read, |tx| read::staging_verdicts(tx, folders))
    }

    async fn quarantine_verdicts(&self, files: &[QuarantineFile]) -> StoreResult<Vec<StagingVerdict>> {
        step!(self, Read, |tx| read::quarantine_verdicts(tx, files))
    }

    async fn prune_version(&self, kept: Duration) -> StoreResult<bool> {
        step!(self, Write, |tx| prune::version(tx, kept))
    }

    async fn prunable(&self, kept: Duration, after: EndedAt, limit: u32) -> StoreResult<Prunable> {
        step!(self, Read, |tx| prune::prunable(tx, kept, after, limit))
    }

    async fn prune_runs(&self, kept: Duration, runs: &[RunId]) -> StoreResult<u64> {
        step!(self, Write, |tx| prune::runs(tx, kept, runs))
    }

    async fn free_stranded(&self) -> StoreResult<u64> {
        step!(self, Write, |tx| claim::free_stranded(tx))
    }

    async fn queue_depth(&self) -> StoreResult<QueueDepth> {
        step!(self, Read, |tx| read::queue_depth(tx))
    }

    async fn claim_message(&self, request: &MessageClaim) -> StoreResult<Option<Taken>> {
        step!(self, Write, |tx| outbox::claim(tx, request))
    }

    async fn message_tried(&self, position: i64, token: Uuid, tried: &Tried) -> StoreResult<Fenced> {
        step!(self, Write, |tx| outbox::tried(tx, position, token, tried))
    }

    async fn outbox_depth(&self) -> StoreResult<OutboxDepth> {
        step!(self, Read, |tx| outbox::depth(tx))
    }
}

#[async_trait]
impl<D: Database> TokenStore for D {
    async fn tokens(&self) -> StoreResult<Tokens> {
        step!(self, Read, |tx| tokens::list(tx))
    }

    async fn put_token(&self, token: &NewToken) -> StoreResult<TokenRecord> {
        step!(self, Write, |tx| tokens::put(tx, token))
    }

    async fn revoke_token(&self, id: &TokenId) -> StoreResult<Option<DateTime<Utc>>> {
        step!(self, Write, |tx| tokens::revoke(tx, id))
    }
}

/// How many unreadable runs one claim gives up.
const MAX_GIVEN_UP: u32 = 100;

/// Claims; where that stops at a run that cannot be read, `reading` is that run.
async fn claim_readable<D: Database>(
    store: &D,
    request: &ClaimRequest,
    reading: &mut Option<RunId>,
) -> StoreResult<Option<Claimed>> {
    let mut passed = claim::Passed::default();
    loop {
        match step!(store, Statement, |tx| claim::look(tx, store.migrations(), &passed))? {
            claim::Found::Lost => {
                step!(store, Write, |tx| claim::take_over_lost(tx, request, reading))?;
                passed.lost = true;
            }
            claim::Found::Unfinished => {
                if let Some(claimed) = step!(store, Write, |tx| claim::resume(tx, request, reading))? {
                    return Ok(Some(claimed));
                }
                passed.unfinished = true;
            }
            claim::Found::Due(pipeline) => {
                if !step!(store, Write, |tx| claim::number(tx, &pipeline))? {
                    passed.locked.push(pipeline);
                }
            }
            claim::Found::Next(pipeline) => {
                match step!(store, Write, |tx| claim::start_unless_locked(tx, request, &pipeline, reading))? {
                    claim::Start::Claimed(claimed) => return Ok(Some(*claimed)),
                    claim::Start::Locked => passed.locked.push(pipeline),
                    claim::Start::Taken => passed.taken.push(pipeline),
                }
            }
            claim::Found::Nothing => break,
        }
    }
    for pipeline in &passed.locked {
        if let Some(claimed) = step!(store, Write, |tx| claim::start_of(tx, request, pipeline, reading))? {
            return Ok(Some(claimed));
        }
    }
    Ok(None)
}

/// A run's control state, which nobody else moves until the transaction ends.
async fn lock(tx: &mut Tx, id: RunId) -> StoreResult<Option<Head>> {
    tx.optional(tx.sql.lock_run, values![id]).await?.as_ref().map(rows::head).transpose()
}

/// Writes the control state back and tells the waiters of the run. A run that ended lets go of its partitions by a trigger of the database, and
/// those who are to be told of it will be: nothing but this and [`claim::give_up_unreadable`] ends a run.
async fn save(tx: &mut Tx, head: &Head) -> StoreResult<()> {
    tx.execute(tx.sql.save_run, rows::head_values(head)?).await?;
    if head.state.is_ended() {
        outbox::run_ended(tx, head.id).await?;
        ended(tx, head.pipeline.clone(), head.state);
    }
    tx.announce(Change::Run(head.id));
    Ok(())
}

/// Counts a run that has ended.
fn ended(tx: &mut Tx, pipeline: String, state: State) {
    tx.count(metrics::counter!(METRIC_RUNS_ENDED, "pipeline" => pipeline, "outcome" => state.as_str()));
}

async fn next_sequence(tx: &mut Tx) -> StoreResult<i64> {
    tx.one(tx.sql.next_sequence, Vec::new()).await?.int("sequence")
}
