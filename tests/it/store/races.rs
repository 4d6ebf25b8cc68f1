//! A run ends while another one is about to stand behind it, on Postgres.

use super::bed::PostgresDatabase;
use super::make::{claim_request, failed, request, submit};
use refrain::store::{Claimed, Fenced, PostgresOptions, PostgresStore, RunStore};
use rstest::rstest;
use sqlx::{Connection, PgConnection};
use std::sync::Arc;
use std::time::Duration;

/// As a submission does, without its end.
const SUBMIT_SECOND: &str = "begin;
    select count(*) from accept_together('[]', '{\"default\": 1}', (
        select json_build_array(json_build_object('id', gen_random_uuid(), 'principal', principal, 'key', 'second', 'pipeline', pipeline,
            'mode', mode, 'asked', asked, 'fingerprint', fingerprint, 'definition', definition, 'priority', 0, 'labels', '{}'::json,
            'scope', '[\"p=1\"]'::json))
        from runs where idempotency_key = 'first'
    ), null)";

/// As one to a server of the version before does.
const SUBMIT_SECOND_AS_BEFORE: &str = "begin;
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

#[rstest]
#[case::now(SUBMIT_SECOND)]
#[case::before(SUBMIT_SECOND_AS_BEFORE)]
#[tokio::test(flavor = "multi_thread")]
async fn an_end_waits_for_who_is_about_to_stand_behind_it(#[case] submit_second: &'static str) {
    let (database, store, claimed, mut other) = held().await;
    sqlx::raw_sql(submit_second).execute(&mut other).await.unwrap();
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

/// So whoever has the pipeline for itself sees every number below those that come after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_submission_waits_for_who_has_its_pipeline() {
    let (database, store, _, mut other) = held().await;
    let alone = "begin; select pg_advisory_xact_lock(hashtextextended('refrain/trips', 0))";
    sqlx::raw_sql(alone).execute(&mut other).await.unwrap();
    let elsewhere = request("zones", "elsewhere", &["p=1"]);
    submit(&*store, &elsewhere).await;
    let submitting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { submit(&*store, &request("trips", "second", &["p=2"])).await }
    });
    let waits = "select exists (select 1 from pg_locks where locktype = 'advisory' and not granted and database = (
        select oid from pg_database where datname = current_database()))";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut other).await.unwrap() {
        assert!(!submitting.is_finished(), "it did not wait");
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("commit").execute(&mut other).await.unwrap();
    submitting.await.unwrap();
    other.close().await.unwrap();
    drop(store);
    database.drop().await;
}
