//! What only SQLite does: the lock of the serving process, the look beside it, the takeover at the start.

use super::bed::on_sqlite;
use super::make::{claim_request, decided, decision, request, submit};
use super::telling::anything;
use super::tokens::token;
use refrain::run::{AttemptOutcome, Outcome, State};
use refrain::store::{
    Begun, Cancelled, Fenced, RunStore, SqliteOptions, SqliteStore, StoreError, Taken, Then, TokenStore, Tried,
};
use sqlx::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[tokio::test]
async fn a_second_serving_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.db");
    let first = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let refused = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Setup(why) if why.contains("another process serves")), "{refused}");
    drop(first);
    SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_reader_looks_beside_the_server_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.db");
    let absent = SqliteStore::open_read_only(&path).await.unwrap_err();
    assert!(matches!(absent, StoreError::Setup(_)), "{absent}");
    assert!(!path.exists());
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let run = submit(&server, &request("trips", "a", &["p=1"])).await;
    let reader = SqliteStore::open_read_only(&path).await.unwrap();
    assert_eq!(reader.get(run.id).await.unwrap(), Some(run));
    assert_eq!(reader.database_id().await.unwrap(), server.database_id().await.unwrap());
    let refused = reader.submit(&request("trips", "b", &["p=1"])).await.unwrap_err();
    assert!(matches!(refused, StoreError::Setup(_)), "{refused}");
}

#[tokio::test]
async fn tokens_are_written_beside_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.db");
    let beside = async || SqliteStore::open_beside(&path, SqliteOptions::default()).await;
    // Where there is no file yet it is made, and let go of again.
    assert!(beside().await.unwrap().tokens().await.unwrap().records.is_empty());
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let made = beside().await.unwrap().put_token(&token(1)).await.unwrap();
    assert_eq!(server.tokens().await.unwrap().records[0].id, made.id);
    submit(&server, &request("trips", "a", &["p=1"])).await;
    beside().await.unwrap().revoke_token(&made.id).await.unwrap().unwrap();
    assert!(server.tokens().await.unwrap().records[0].revoked_at.is_some());
    // A schema of another version is left alone.
    let last = "version = (select max(version) from _sqlx_migrations)";
    for (change, told) in [
        ("update meta set oldest_schema = 1000".to_owned(), "needs a version of refrain that knows migration 1000"),
        (format!("delete from _sqlx_migrations where {last}"), "`refrain migrate` bring it along"),
    ] {
        let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(change)).execute(&mut connection).await.unwrap();
        let refused = beside().await.unwrap_err();
        assert!(matches!(&refused, StoreError::Setup(why) if why.contains(told)), "{refused}");
    }
}

#[tokio::test]
async fn what_was_held_is_taken_over_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.db");
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let committing = submit(&server, &request("trips", "a", &["p=1"])).await.id;
    let held = server.claim(&claim_request()).await.unwrap().unwrap();
    let decision = decision(vec![decided("p=1", Outcome::Created, 1)]);
    assert_eq!(server.begin_commit(committing, held.token, &decision).await.unwrap(), Begun::Committing);
    let running = submit(&server, &request("trips", "b", &["p=2"])).await.id;
    assert_eq!(server.claim(&claim_request()).await.unwrap().unwrap().run.id, running);
    let id = server.database_id().await.unwrap();
    drop(server);
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    assert_eq!(server.database_id().await.unwrap(), id);
    let first = server.claim(&claim_request()).await.unwrap().unwrap();
    assert_eq!((first.run.id, first.run.state, first.attempt), (committing, State::Committing, 2));
    let second = server.claim(&claim_request()).await.unwrap().unwrap();
    assert_eq!((second.run.id, second.run.state, second.attempt), (running, State::Running, 2));
    assert_eq!(second.run.attempts[0].outcome, Some(AttemptOutcome::Lost));
}

#[tokio::test]
async fn a_message_that_was_in_hand_is_due_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refrain.db");
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let mut told = request("trips", "a", &["p=1"]);
    told.audience.webhooks = vec!["https://hooks.example.org/".to_owned()];
    let id = submit(&server, &told).await.id;
    assert!(matches!(server.cancel(id).await.unwrap(), Cancelled::Now));
    let before = server.claim_message(&anything()).await.unwrap().unwrap();
    assert_eq!(server.claim_message(&anything()).await.unwrap(), None);
    drop(server);
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    assert_eq!(server.claim_message(&anything()).await.unwrap(), Some(before));
}

/// Here an id is a text, and so may be none; on Postgres it cannot.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_id_is_damaged_keeps_no_other_waiting() {
    on_sqlite(async |bed| {
        for name in ["spoilt", "good"] {
            let mut told = request("trips", name, &["p=1"]);
            told.audience.webhooks = vec![format!("https://hooks.example.org/{name}")];
            let id = submit(&*bed.store, &told).await.id;
            assert!(matches!(bed.store.cancel(id).await.unwrap(), Cancelled::Now));
        }
        bed.past_the_store("update outbox set id = 'damaged' where url like '%spoilt'").await.unwrap();
        let claim = anything();
        let Some(Taken::Unreadable(found)) = bed.store.claim_message(&claim).await.unwrap() else { panic!("which") };
        assert_eq!((found.id, found.tries), (None, 0));
        assert!(found.why.contains("column id has \"damaged\", expected a UUID"), "{found:?}");
        let put_off = Tried { status: None, error: Some(found.why), then: Then::Again(Duration::from_secs(60)) };
        assert_eq!(bed.store.message_tried(found.position, claim.token, &put_off).await.unwrap(), Fenced::Done);
        let Some(Taken::Message(next)) = bed.store.claim_message(&anything()).await.unwrap() else { panic!("none") };
        assert_eq!(next.notice.idempotency_key, "good");
        assert_eq!(bed.store.claim_message(&anything()).await.unwrap(), None, "it is put off");
        bed.pass(Duration::from_secs(60)).await;
        let Some(Taken::Unreadable(again)) = bed.store.claim_message(&anything()).await.unwrap() else {
            panic!("which")
        };
        assert_eq!((again.position, again.tries), (found.position, 1));
    })
    .await;
}

#[tokio::test]
async fn the_files_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    let path = folder.path().join("refrain.db");
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    submit(&server, &request("trips", "a", &["p=1"])).await;
    let reader = SqliteStore::open_read_only(&path).await.unwrap();
    reader.copy_to(&folder.path().join("copy")).await.unwrap();
    for name in ["refrain.db", "refrain.db-wal", "refrain.db-shm", "copy"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    drop((server, reader));
    // What an operator has set stays.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let server = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    submit(&server, &request("trips", "b", &["p=1"])).await;
    assert_eq!(mode("refrain.db"), 0o640);
}
