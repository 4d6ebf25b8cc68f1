//! The database did it, and the worker did not hear of it.

use super::losing::LosingStore;
use super::{FLAGS, NEW, assert_well, full, overwrite, place, write_input};
use crate::service::{Place, Store};
use refrain::engine::ChildEngine;
use refrain::partition::PartitionKey;
use refrain::table::Warehouse;
use refrain::worker::{NoProbe, Worker, WorkerSettings};
use rstest::rstest;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_of_deciding_and_finishing_are_asked_for_again() {
    let (place, store, run) = succeeded_by(Duration::from_secs(30), false).await;
    assert_eq!((store.begun.load(Ordering::SeqCst), store.finished.load(Ordering::SeqCst)), (2, 2));
    let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
    assert_eq!(outcomes, [&json!("succeeded")], "one attempt, with both steps asked twice");
    let january = PartitionKey::from_canonical("pickup_month=2024-01");
    let (_, history) = place.store().await.partition(super::TABLE, &january, None, 100).await.unwrap();
    let wrote = history.iter().filter(|entry| run["id"] == entry.run_id.to_string()).count();
    assert_eq!(wrote, 1, "it was entered once: {history:#?}");
    assert_well(&place).await;
}

/// The database says nothing more while the attempt holds the publish lock. When its lease is over it lets go of the lock in
/// bounded time, after it has asked once more.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_must_stop_does_not_wait_for_an_answer_under_the_lock() {
    let since = Instant::now();
    let (place, store, run) = succeeded_by(Duration::from_secs(4), true).await;
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    assert_eq!(store.finished.load(Ordering::SeqCst), 2);
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");
    assert_well(&place).await;
}

/// Has a run done by a worker over a store that loses answers, or hangs.
async fn succeeded_by(lease: Duration, hangs: bool) -> (Place, Arc<LosingStore>, Value) {
    let place = place(Store::Postgres).await;
    let server = place.start_with(&FLAGS, &[]).await;
    server.run("first", &full()).await;
    assert!(server.stop().await.success());
    write_input(&place, NEW);
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let id = server.accept("second", &full()).await;

    let inner = place.store().await;
    let (bound, database) = (inner.warehouse_id().await.unwrap(), inner.database_id().await.unwrap());
    let store = Arc::new(LosingStore { inner, hangs, begun: AtomicU32::new(0), finished: AtomicU32::new(0) });
    let worker = Worker {
        store: store.clone(),
        engine: Arc::new(ChildEngine { program: PathBuf::from(env!("CARGO_BIN_EXE_refrain")), memory_mb: None }),
        warehouse: Warehouse::open(&place.path("refrain-data/warehouse"), bound, database).unwrap(),
        settings: WorkerSettings {
            name: "it".to_owned(),
            source_root: place.path(""),
            slice_source_bytes: u64::MAX,
            read_bytes: None,
            sort_bytes: u64::MAX,
            web: refrain::engine::WebSettings::default(),
            lease,
            retry_delay_seconds: 0,
            max_lost_workers: 0,
            poll: Duration::from_millis(100),
            shutdown_grace: Duration::from_secs(10),
        },
        probe: Arc::new(NoProbe),
        pulse: refrain::worker::Pulse::default(),
    };
    let shutdown = CancellationToken::new();
    let working = tokio::spawn(worker.run(shutdown.clone()));
    let run = server.wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    shutdown.cancel();
    working.await.unwrap();
    (place, store, run)
}

/// The answers of a cancellation and of a retry are lost: what was asked is done once, and asked again it says so.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_and_a_retry_whose_answers_are_lost_are_done_once(#[case] store: Store) {
    let place = place(store).await;
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let id = server.accept("the-run", &overwrite()).await;
    assert!(server.stop().await.success());
    for (what, body, state, again) in
        [("cancel", None, "cancelled", 200), ("retry", Some(r#"{"if_attempt": 0}"#), "queued", 409)]
    {
        let fault = format!("answering=fail@{}", place.path(what).display());
        let server = place.start_with(&["--workers", "0"], &[("REFRAIN_FAULT", &fault)]).await;
        let ask = async || {
            let path = format!("/runs/{id}/{what}");
            server.call(reqwest::Method::POST, &path, None, body.map(str::to_owned)).await.status
        };
        assert_eq!(ask().await, 500, "{what}");
        let run = server.get(&format!("/runs/{id}")).await.json();
        assert_eq!(run["state"], state, "{run:#}");
        assert_eq!(ask().await, again, "{what}");
        assert!(server.stop().await.success());
    }
}
