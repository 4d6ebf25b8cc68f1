//! A run ends while another one is about to stand behind it, on Postgres.

use super::bed::PostgresDatabase;
use super::make::{claim_request, failed, request, submit};
use refrain::store::{Claimed, Fenced, PostgresOptions, PostgresStore, RunStore};
use sqlx::{Connection, PgConnection};
use std::sync::Arc;
use std::time::Duration;

/// As a submission does, without its end.
const SUBMIT_SECOND: &str = "begin;
    insert into runs (id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
        due_at, created_at)
    select gen_random_uuid(), principal, 'second', pipeline, mode, asked, fingerprint, accepted_with, definition, 'queued',
        nextval('run_sequence'), due_at, created_at
    from runs where idempotency_key = 'first';
    insert into run_partitions (run_id, partition) select id, 'p=1' from runs where idempotency_key = 'second';
    insert into reservations (pipeline, partition, sequence, run_id)
    select pipeline, 'p=1', sequence, id from runs where idempotency_key = 'second'";

/// As an attempt's end does, without its own.
const END_FIRST: &str = "begin;
    update runs set state = 'failed', claim_token = null, lease_until = null, ended_at = now() where idempotency_key = 'first'";

/// A run that is held, and somebody else's connection.
async fn held() -> (PostgresDatabase, Arc<PostgresStore>, Claimed, PgConnection) {
    let database = PostgresDatabase::create().await;
    let hasty = PostgresOptions { statement_timeout: Duration::from_secs(5), ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::connect(&database.url(), hasty).await.unwrap());
    store.migrate().await.unwrap();
    submit(&*store, &request("trips", "first", &["p=1"])).await;
    let claimed = store.claim(&claim_request()).await.unwrap().unwrap();
    let other = PgConnection::connect_with(&database.options).await.unwrap();
    (database, store, claimed, other)
}

/// The second run is claimed, and all is closed.
async fn second_begins(database: PostgresDatabase, store: Arc<PostgresStore>, other: PgConnection) {
    let next = store.claim(&claim_request()).await.unwrap();
    assert_eq!(next.map(|claimed| claimed.run.idempotency_key.as_str().to_owned()).as_deref(), Some("second"));
    other.close().await.unwrap();
    drop(store);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_waits_for_who_is_about_to_stand_behind_it() {
    let (database, store, claimed, mut other) = held().await;
    sqlx::raw_sql(SUBMIT_SECOND).execute(&mut other).await.unwrap();
    let ending = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.end_attempt(claimed.run.id, claimed.token, &failed()).await.unwrap() }
    });
    let waits = "select exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    while !ending.is_finished() && !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut other).await.unwrap() {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    assert_eq!(ending.await.unwrap(), Fenced::Done);
    second_begins(database, store, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_a_run_ends_does_not_wait_for_it() {
    let (database, store, _, mut other) = held().await;
    sqlx::raw_sql(END_FIRST).execute(&mut other).await.unwrap();
    submit(&*store, &request("trips", "second", &["p=1"])).await;
    let stands = "select behind is not null from runs where idempotency_key = 'second'";
    assert!(!sqlx::query_scalar::<_, bool>(stands).fetch_one(&mut other).await.unwrap(), "it would not be let go");
    assert!(store.claim(&claim_request()).await.unwrap().is_none(), "the first one has not ended yet");
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    second_begins(database, store, other).await;
}
