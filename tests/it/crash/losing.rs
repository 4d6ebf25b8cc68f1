//! A store that does as it is told, and whose first answers to the two last steps are lost on their way.

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
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;
use uuid::Uuid;

pub(super) struct LosingStore {
    /// Nothing is lost: the first question to finish and every renewal hang for ever, and are not done.
    pub(super) hangs: bool,
    pub(super) inner: Arc<dyn RunStore>,
    /// How often each of them was asked.
    pub(super) begun: AtomicU32,
    pub(super) finished: AtomicU32,
}

/// The first answer is lost, the call itself was done.
fn lose<T>(asked: &AtomicU32, answer: StoreResult<T>) -> StoreResult<T> {
    match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Err(StoreError::Unavailable(sqlx::Error::Protocol("the connection was cut".to_owned()))),
        _ => answer,
    }
}

/// Passes on every step but those that are written out.
macro_rules! passing_on {
    ({ $($own:tt)* } $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl RunStore for LosingStore {
            $($own)*
            $(async fn $name(&self, $($arg: $type),*) -> StoreResult<$answer> {
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

passing_on! {
    {
        fn changes(&self) -> broadcast::Receiver<Change> {
            self.inner.changes()
        }

        fn accepts_at_once(&self) -> bool {
            self.inner.accepts_at_once()
        }

        async fn begin_commit(&self, id: RunId, token: ClaimToken, decision: &Decision) -> StoreResult<Begun> {
            if self.hangs {
                return self.inner.begin_commit(id, token, decision).await;
            }
            lose(&self.begun, self.inner.begin_commit(id, token, decision).await)
        }

        async fn renew(&self, id: RunId, token: ClaimToken, lease: Duration, told: &Progress) -> StoreResult<Renewal> {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            self.inner.renew(id, token, lease, told).await
        }

        async fn finish(&self, id: RunId, token: ClaimToken) -> StoreResult<Fenced> {
            if self.hangs && self.finished.fetch_add(1, Ordering::SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            if self.hangs {
                return self.inner.finish(id, token).await;
            }
            lose(&self.finished, self.inner.finish(id, token).await)
        }
    }
    ping() -> ();
    database_id() -> Uuid;
    warehouse_id() -> Option<Uuid>;
    bind_warehouse(id: Uuid) -> Uuid;
    known_keys(keys: &[(Principal, IdempotencyKey)]) -> Vec<KnownKey>;
    submit(run: &NewRun) -> Submitted;
    submit_together(runs: &[&NewRun]) -> Vec<Submitted>;
    runs(ids: &[RunId]) -> Vec<Run>;
    list(filter: &RunFilter) -> Vec<RunSummary>;
    claim(request: &ClaimRequest) -> Option<Claimed>;
    may_publish(id: RunId, token: ClaimToken) -> Fenced;
    end_attempt(id: RunId, token: ClaimToken, ended: &Ended) -> Fenced;
    postpone_publish(
        id: RunId, token: ClaimToken, delay: Duration, outcome: AttemptOutcome, error: Option<&RunError>
    ) -> Fenced;
    staging_lost(id: RunId, token: ClaimToken, live: &[PartitionKey]) -> Fenced;
    cancel(id: RunId) -> Cancelled;
    retry(id: RunId, if_attempt: Option<u32>, definition: &StoredDefinition) -> Retried;
    partitions(pipeline: &str, filter: &PartitionFilter) -> Listing;
    settle_sum(pipeline: &str) -> bool;
    sum_difference(pipeline: &str) -> Option<(TableSum, TableSum)>;
    entries(pipeline: &str, keys: Option<&[PartitionKey]>) -> Vec<CatalogEntry>;
    partition(pipeline: &str, key: &PartitionKey, before: Option<i64>, limit: u32) -> (Option<CatalogEntry>, Vec<HistoryEntry>);
    table_definitions(pipeline: &str) -> Vec<StoredDefinition>;
    definitions(hashes: &[DefinitionHash]) -> Vec<StoredDefinition>;
    table_version(pipeline: &str) -> i64;
    overlapping(pipeline: &str, scope: &Scope, limit: u32) -> Vec<(RunId, State)>;
    glances(ids: &[RunId]) -> Vec<Glance>;
    staging_verdicts(folders: &[(RunId, Option<ClaimToken>)]) -> Vec<StagingVerdict>;
    quarantine_verdicts(files: &[QuarantineFile]) -> Vec<StagingVerdict>;
    version_as_of(pipeline: &str, moment: AsOf) -> Option<i64>;
    prune_version(kept: Duration) -> bool;
    prunable(kept: Duration, after: EndedAt, limit: u32) -> Prunable;
    prune_runs(kept: Duration, runs: &[RunId]) -> u64;
    free_stranded() -> u64;
    queue_depth() -> QueueDepth;
    claim_message(request: &MessageClaim) -> Option<Taken>;
    message_tried(position: i64, token: Uuid, tried: &Tried) -> Fenced;
    outbox_depth() -> OutboxDepth;
}

#[async_trait]
impl TokenStore for LosingStore {
    async fn tokens(&self) -> StoreResult<Tokens> {
        self.inner.tokens().await
    }

    async fn put_token(&self, token: &NewToken) -> StoreResult<TokenRecord> {
        self.inner.put_token(token).await
    }

    async fn revoke_token(&self, id: &TokenId) -> StoreResult<Option<DateTime<Utc>>> {
        self.inner.revoke_token(id).await
    }
}
