//! A store whose reading steps fail in one way; the steps of workers are not called by the interface.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use refrain::access::{TokenId, TokenRecord};
use refrain::partition::PartitionKey;
use refrain::run::{
    AttemptOutcome, CatalogEntry, ClaimToken, DefinitionHash, HistoryEntry, IdempotencyKey, Principal, Progress,
    QuarantineFile, Run, RunError, RunId, RunSummary, Scope, State, TableSum,
};
use refrain::store::{
    AsOf, Begun, Cancelled, Change, ClaimRequest, Claimed, Decision, Ended, EndedAt, Fenced, Glance, KnownKey, Listing,
    MessageClaim, NewRun, NewToken, OutboxDepth, PartitionFilter, Prunable, QueueDepth, Renewal, Retried, RunFilter,
    RunStore, StagingVerdict, StoreError, StoreResult, StoredDefinition, Submitted, Taken, TokenStore, Tokens, Tried,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;
use uuid::Uuid;

/// How the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not.
    Nothing,
    /// The database does not answer.
    Unavailable,
    /// A stored value cannot be read.
    Corrupt,
    /// The step panics.
    Panic,
    /// The step never ends.
    Hang,
    /// The first look for a key does not find it, as if it were taken a moment later.
    KeyHiddenOnce,
    /// Definitions come in a language that this version does not speak.
    UnreadableDefinition,
    /// Whole runs can be read once, and listings of partitions never.
    OneRun,
    /// The database does not answer the second look at runs.
    AwayAtSecondLook,
    /// The second look at runs panics.
    BreaksAtSecondLook,
    /// Several runs cannot be looked at together.
    OneByOne,
    /// The tokens are there at the first look only.
    TokensLost,
    /// No run can be written.
    ReadOnly,
}

/// A definition in such a language, and its hash.
const OF_THE_ELDERS: &str = "language = \"of the elders\"";

pub(super) struct FaultyStore {
    inner: Arc<dyn RunStore>,
    fault: Fault,
    hidden: AtomicBool,
    looks: AtomicU32,
    token_looks: AtomicU32,
    asked: AtomicU32,
}

impl FaultyStore {
    pub(super) fn new(inner: Arc<dyn RunStore>, fault: Fault) -> Self {
        let [looks, token_looks, asked] = std::array::from_fn(|_| AtomicU32::new(0));
        Self { inner, fault, hidden: AtomicBool::new(false), looks, token_looks, asked }
    }

    /// How often it was asked for runs, keys or layouts, and to accept runs.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    async fn ask(&self) -> StoreResult<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.fail().await
    }

    /// How often runs were looked at.
    pub(super) fn looks(&self) -> u32 {
        self.looks.load(Ordering::SeqCst)
    }

    /// How often all tokens were looked at.
    pub(super) fn token_looks(&self) -> u32 {
        self.token_looks.load(Ordering::SeqCst)
    }

    async fn fail(&self) -> StoreResult<()> {
        match self.fault {
            Fault::Unavailable => Err(StoreError::Unavailable(sqlx::Error::Protocol("a secret".to_owned()))),
            Fault::Corrupt => Err(StoreError::Corrupt("a secret".to_owned())),
            Fault::Panic => panic!("a secret"),
            Fault::Hang => std::future::pending().await,
            Fault::Nothing
            | Fault::KeyHiddenOnce
            | Fault::UnreadableDefinition
            | Fault::OneRun
            | Fault::AwayAtSecondLook
            | Fault::BreaksAtSecondLook
            | Fault::OneByOne
            | Fault::TokensLost
            | Fault::ReadOnly => Ok(()),
        }
    }
}

#[async_trait]
impl RunStore for FaultyStore {
    fn changes(&self) -> broadcast::Receiver<Change> {
        self.inner.changes()
    }

    fn accepts_at_once(&self) -> bool {
        true
    }

    async fn known_keys(&self, keys: &[(Principal, IdempotencyKey)]) -> StoreResult<Vec<KnownKey>> {
        self.ask().await?;
        if self.fault == Fault::KeyHiddenOnce && !self.hidden.swap(true, Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let mut known = self.inner.known_keys(keys).await?;
        for known in known.iter_mut().filter(|_| self.fault == Fault::UnreadableDefinition) {
            known.accepted_with = DefinitionHash(OF_THE_ELDERS.to_owned());
        }
        Ok(known)
    }

    async fn submit(&self, run: &NewRun) -> StoreResult<Submitted> {
        self.ask().await?;
        self.inner.submit(run).await
    }

    async fn submit_together(&self, runs: &[&NewRun]) -> StoreResult<Vec<Submitted>> {
        self.ask().await?;
        if self.fault == Fault::ReadOnly {
            return Err(StoreError::Unavailable(sqlx::Error::Protocol("a secret".to_owned())));
        }
        self.inner.submit_together(runs).await
    }

    async fn runs(&self, ids: &[RunId]) -> StoreResult<Vec<Run>> {
        self.ask().await?;
        if self.fault == Fault::OneRun && self.hidden.swap(true, Ordering::SeqCst) {
            return Err(StoreError::Corrupt("a run was read again".to_owned()));
        }
        self.inner.runs(ids).await
    }

    async fn list(&self, filter: &RunFilter) -> StoreResult<Vec<RunSummary>> {
        self.fail().await?;
        self.inner.list(filter).await
    }

    async fn cancel(&self, id: RunId) -> StoreResult<Cancelled> {
        self.fail().await?;
        self.inner.cancel(id).await
    }

    async fn retry(&self, id: RunId, if_attempt: Option<u32>, definition: &StoredDefinition) -> StoreResult<Retried> {
        self.fail().await?;
        self.inner.retry(id, if_attempt, definition).await
    }

    async fn partitions(&self, pipeline: &str, filter: &PartitionFilter) -> StoreResult<Listing> {
        self.fail().await?;
        if self.fault == Fault::OneRun {
            return Err(StoreError::Corrupt("partitions were listed".to_owned()));
        }
        self.inner.partitions(pipeline, filter).await
    }

    async fn settle_sum(&self, pipeline: &str) -> StoreResult<bool> {
        self.fail().await?;
        self.inner.settle_sum(pipeline).await
    }

    async fn sum_difference(&self, pipeline: &str) -> StoreResult<Option<(TableSum, TableSum)>> {
        self.fail().await?;
        self.inner.sum_difference(pipeline).await
    }

    async fn entries(&self, pipeline: &str, keys: Option<&[PartitionKey]>) -> StoreResult<Vec<CatalogEntry>> {
        self.fail().await?;
        self.inner.entries(pipeline, keys).await
    }

    async fn table_definitions(&self, pipeline: &str) -> StoreResult<Vec<StoredDefinition>> {
        self.ask().await?;
        self.inner.table_definitions(pipeline).await
    }

    async fn definitions(&self, hashes: &[DefinitionHash]) -> StoreResult<Vec<StoredDefinition>> {
        self.fail().await?;
        let hash = DefinitionHash(OF_THE_ELDERS.to_owned());
        if hashes.contains(&hash) {
            let (pipeline, text) = ("monthly".to_owned(), OF_THE_ELDERS.to_owned());
            return Ok(vec![StoredDefinition { hash, pipeline, text }]);
        }
        self.inner.definitions(hashes).await
    }

    async fn partition(
        &self,
        pipeline: &str,
        key: &PartitionKey,
        before: Option<i64>,
        limit: u32,
    ) -> StoreResult<(Option<CatalogEntry>, Vec<HistoryEntry>)> {
        self.fail().await?;
        self.inner.partition(pipeline, key, before, limit).await
    }

    async fn version_as_of(&self, pipeline: &str, moment: AsOf) -> StoreResult<Option<i64>> {
        self.fail().await?;
        self.inner.version_as_of(pipeline, moment).await
    }

    async fn table_version(&self, pipeline: &str) -> StoreResult<i64> {
        self.fail().await?;
        self.inner.table_version(pipeline).await
    }

    async fn overlapping(&self, pipeline: &str, scope: &Scope, limit: u32) -> StoreResult<Vec<(RunId, State)>> {
        self.fail().await?;
        self.inner.overlapping(pipeline, scope, limit).await
    }

    async fn glances(&self, ids: &[RunId]) -> StoreResult<Vec<Glance>> {
        self.fail().await?;
        let look = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fault {
            Fault::AwayAtSecondLook if look == 2 => return Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)),
            Fault::BreaksAtSecondLook if look == 2 => panic!("a secret"),
            Fault::OneByOne if ids.len() > 1 => return Err(StoreError::Corrupt("one of them".to_owned())),
            _ => {}
        }
        self.inner.glances(ids).await
    }

    async fn ping(&self) -> StoreResult<()> {
        unreachable!()
    }

    async fn database_id(&self) -> StoreResult<Uuid> {
        unreachable!()
    }

    async fn warehouse_id(&self) -> StoreResult<Option<Uuid>> {
        unreachable!()
    }

    async fn bind_warehouse(&self, _: Uuid) -> StoreResult<Uuid> {
        unreachable!()
    }

    async fn claim(&self, _: &ClaimRequest) -> StoreResult<Option<Claimed>> {
        unreachable!()
    }

    async fn renew(&self, _: RunId, _: ClaimToken, _: Duration, _: &Progress) -> StoreResult<Renewal> {
        unreachable!()
    }

    async fn begin_commit(&self, _: RunId, _: ClaimToken, _: &Decision) -> StoreResult<Begun> {
        unreachable!()
    }

    async fn may_publish(&self, _: RunId, _: ClaimToken) -> StoreResult<Fenced> {
        unreachable!()
    }

    async fn finish(&self, _: RunId, _: ClaimToken) -> StoreResult<Fenced> {
        unreachable!()
    }

    async fn end_attempt(&self, _: RunId, _: ClaimToken, _: &Ended) -> StoreResult<Fenced> {
        unreachable!()
    }

    async fn postpone_publish(
        &self,
        _: RunId,
        _: ClaimToken,
        _: Duration,
        _: AttemptOutcome,
        _: Option<&RunError>,
    ) -> StoreResult<Fenced> {
        unreachable!()
    }

    async fn staging_lost(&self, _: RunId, _: ClaimToken, _: &[PartitionKey]) -> StoreResult<Fenced> {
        unreachable!()
    }

    async fn staging_verdicts(&self, _: &[(RunId, Option<ClaimToken>)]) -> StoreResult<Vec<StagingVerdict>> {
        unreachable!()
    }

    async fn quarantine_verdicts(&self, _: &[QuarantineFile]) -> StoreResult<Vec<StagingVerdict>> {
        unreachable!()
    }

    async fn prune_version(&self, _: Duration) -> StoreResult<bool> {
        unreachable!()
    }

    async fn prunable(&self, _: Duration, _: EndedAt, _: u32) -> StoreResult<Prunable> {
        unreachable!()
    }

    async fn prune_runs(&self, _: Duration, _: &[RunId]) -> StoreResult<u64> {
        unreachable!()
    }

    async fn free_stranded(&self) -> StoreResult<u64> {
        unreachable!()
    }

    async fn queue_depth(&self) -> StoreResult<QueueDepth> {
        unreachable!()
    }

    async fn claim_message(&self, _: &MessageClaim) -> StoreResult<Option<Taken>> {
        unreachable!()
    }

    async fn message_tried(&self, _: i64, _: Uuid, _: &Tried) -> StoreResult<Fenced> {
        unreachable!()
    }

    async fn outbox_depth(&self) -> StoreResult<OutboxDepth> {
        unreachable!()
    }
}

#[async_trait]
impl TokenStore for FaultyStore {
    async fn tokens(&self) -> StoreResult<Tokens> {
        self.fail().await?;
        let tokens = self.inner.tokens().await?;
        match self.token_looks.fetch_add(1, Ordering::SeqCst) {
            1.. if self.fault == Fault::TokensLost => Ok(Tokens { records: Vec::new(), ..tokens }),
            _ => Ok(tokens),
        }
    }

    async fn put_token(&self, token: &NewToken) -> StoreResult<TokenRecord> {
        self.inner.put_token(token).await
    }

    async fn revoke_token(&self, id: &TokenId) -> StoreResult<Option<DateTime<Utc>>> {
        self.inner.revoke_token(id).await
    }
}
