//! The database did it, and the worker did not hear of it.

use super::losing::LosingStore;
use super::{FLAGS, NEW, assert_well, full, place, write_input};
use crate::service::Store;
use refrain::engine::ChildEngine;
use refrain::table::Warehouse;
use refrain::worker::{NoProbe, Worker, WorkerSettings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_of_deciding_and_finishing_are_asked_for_again() {
    let place = place(Store::Postgres).await;
    let server = place.start_with(&FLAGS, &[]).await;
    server.run("first", &full()).await;
    assert!(server.stop().await.success());
    write_input(&place, NEW);
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let id = server.accept("second", &full()).await;

    let inner = place.store().await;
    let (bound, database) = (inner.warehouse_id().await.unwrap(), inner.database_id().await.unwrap());
    let store = Arc::new(LosingStore { inner, begun: AtomicU32::new(0), finished: AtomicU32::new(0) });
    let worker = Worker {
        store: store.clone(),
        engine: Arc::new(ChildEngine { program: PathBuf::from(env!("CARGO_BIN_EXE_refrain")), memory_mb: None }),
        warehouse: Warehouse::open(&place.path("refrain-data/warehouse"), bound, database).unwrap(),
        settings: WorkerSettings {
            name: "it".to_owned(),
            source_root: place.path(""),
            slice_source_bytes: u64::MAX,
            lease: Duration::from_secs(30),
            retry_delay_seconds: 0,
            max_lost_workers: 0,
            poll: Duration::from_millis(100),
            shutdown_grace: Duration::from_secs(10),
        },
        probe: Arc::new(NoProbe),
    };
    let shutdown = CancellationToken::new();
    let working = tokio::spawn(worker.run(shutdown.clone()));
    let run = server.wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    shutdown.cancel();
    working.await.unwrap();

    assert_eq!((store.begun.load(Ordering::SeqCst), store.finished.load(Ordering::SeqCst)), (2, 2));
    let outcomes: Vec<&Value> = run["attempts"].as_array().unwrap().iter().map(|a| &a["outcome"]).collect();
    assert_eq!(outcomes, [&json!("succeeded")], "one attempt, with both steps asked twice");
    let january = server.get("/pipelines/trips/partitions/pickup_month=2024-01").await.json();
    let wrote: Vec<&Value> = january["history"].as_array().unwrap().iter().filter(|h| h["run_id"] == id).collect();
    assert_eq!(wrote.len(), 1, "it was entered once: {january:#}");
    assert_well(&place).await;
}
