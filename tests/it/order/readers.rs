//! Promise 3: while a partition is overwritten, whoever reads it sees it as it was or as it is.

use super::{MadeUp, Workers, on_both_stores, pipeline_named, request, submit, succeeded};
use crate::store::bed::Bed;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::FutureExt;
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use refrain::http::{Api, Fairness, Gate, Limits, OpenTo, Watches, router};
use refrain::notify::Audiences;
use refrain::pipeline::sources::Foreseen;
use refrain::telemetry::Metrics;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

on_both_stores! {
    readers_of_the_file_and_of_the_api_see_every_state_whole_and_in_order,
}

const OVERWRITES: u32 = 500;

/// Half of them read the file, the others ask the API.
const READERS: usize = 8;

/// Between two reads, so that the writers get their turn on a small machine.
const PAUSE: Duration = Duration::from_millis(4);

/// How many runs wait at a time.
const QUEUED: u32 = 20;

const KEY: &str = "date=2024-02-29/hour=01";

/// State `n`: its number again and again, over several pages and of a length of its own.
fn state(n: u32) -> Vec<u8> {
    format!("{n:>8}").repeat(2_000 + usize::try_from(n).unwrap() % 7).into_bytes()
}

async fn readers_of_the_file_and_of_the_api_see_every_state_whole_and_in_order(bed: &Bed) {
    let made = Arc::new(AtomicU32::new(0));
    let engine = MadeUp {
        computes: Box::new(|_| async {}.boxed()),
        makes: Box::new(move |_, _| {
            let n = made.fetch_add(1, Ordering::SeqCst) + 1;
            Some((state(n), n))
        }),
    };
    let workers = Workers::start(bed, 4, engine).await;
    let first = request("trips", &[KEY]);
    submit(&*bed.store, &first).await;
    succeeded(bed, first.id).await;

    let done = Arc::new(AtomicBool::new(false));
    let table = workers.warehouse.root().join("trips");
    let mut readers = Vec::new();
    for reader in 0..READERS {
        let done = done.clone();
        if reader % 2 == 0 {
            let table = table.clone();
            readers.push(tokio::task::spawn_blocking(move || read_until(&done, || read_table(&table))));
        } else {
            let api = api(bed, reader);
            readers.push(tokio::spawn(async move { ask_until(&done, &api).await }));
        }
    }
    let mut waiting = std::collections::VecDeque::new();
    for _ in 1..OVERWRITES {
        let run = request("trips", &[KEY]);
        submit(&*bed.store, &run).await;
        waiting.push_back(run.id);
        if waiting.len() >= QUEUED as usize {
            succeeded(bed, waiting.pop_front().unwrap()).await;
        }
    }
    for id in waiting {
        succeeded(bed, id).await;
    }
    done.store(true, Ordering::SeqCst);
    let (mut reads, mut states) = (0, 0);
    for reader in readers {
        let (read, seen) = reader.await.unwrap();
        assert!(seen > 1, "a reader saw no change");
        (reads, states) = (reads + read, states + seen);
    }
    crate::counted(format_args!("{OVERWRITES} overwrites, {READERS} readers, {reads} reads that saw {states} changes"));
    assert_eq!(read_table(&table), OVERWRITES);
    workers.stop().await;
}

/// Reads until it is done; answers how often, and how many states it saw.
fn read_until(done: &AtomicBool, read: impl Fn() -> u32) -> (u32, u32) {
    let (mut reads, mut states, mut last) = (0, 0, 0);
    while !done.load(Ordering::SeqCst) {
        std::thread::sleep(PAUSE);
        let n = read();
        assert!(n >= last, "state {n} after state {last}");
        (reads, states, last) = (reads + 1, states + u32::from(n > last), n);
    }
    (reads, states)
}

/// As an engine reads a Hive table: lists it, opens what it found, reads.
fn read_table(table: &Path) -> u32 {
    let mut files = Vec::new();
    list(table, &mut files);
    assert_eq!(files.len(), 1, "one partition, one file: {files:?}");
    let mut content = Vec::new();
    std::fs::File::open(&files[0]).unwrap().read_to_end(&mut content).unwrap();
    let n = std::str::from_utf8(&content[..8]).unwrap().trim().parse().unwrap();
    assert!(content == state(n), "state {n} is not whole");
    n
}

/// Every Parquet file below a folder, whatever its name.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}

fn api(bed: &Bed, reader: usize) -> Router {
    let definition = pipeline_named("trips");
    let store = super::store_of(bed, reader / 2);
    router(Api {
        faults: refrain::fault::Faults::default(),
        foresight: Arc::new(|_, _| async { Ok(Foreseen { files: Vec::new(), missing: Vec::new() }) }.boxed()),
        gate: Gate::new(Arc::clone(&store) as _, Gate::FRESH_FOR, OpenTo::ThisMachine),
        watches: Watches::new(Arc::clone(&store), 1),
        store,
        files: Arc::new(crate::http::Shelf::default()),
        audiences: Audiences::default(),
        pipelines: watch::channel(Arc::new([(definition.name.clone(), Arc::new(definition))].into())).1,
        fairness: Fairness::new(&Limits::default()),
        limits: Limits::default(),
        readiness: Arc::new(|| async { Vec::new() }.boxed()),
        metrics: Metrics::of(PrometheusBuilder::new().build_recorder().handle()),
        shutdown: CancellationToken::new(),
    })
}

async fn ask_until(done: &AtomicBool, api: &Router) -> (u32, u32) {
    let (mut reads, mut states, mut last) = (0, 0, (0, 0));
    while !done.load(Ordering::SeqCst) {
        tokio::time::sleep(PAUSE).await;
        let listed = ask(api, "/pipelines/trips/partitions").await;
        let partitions = listed["partitions"].as_array().unwrap();
        assert_eq!(partitions.len(), 1, "{listed}");
        let n = trips_of(&partitions[0]);
        assert_eq!((trips_of(&listed["total"]), &listed["total"]["rows"]), (n, &n.into()), "{listed}");
        assert_eq!(partitions[0]["sha256"], super::sha256(&state(n)), "{listed}");
        let seen = (n, listed["version"].as_u64().unwrap());
        assert_eq!(u64::from(n), seen.1, "each overwrite is a version: {listed}");
        assert!(seen >= last, "{seen:?} after {last:?}");
        let one = ask(api, &format!("/pipelines/trips/partitions/{KEY}")).await;
        assert!(trips_of(&one) >= n, "{one} after {n}");
        (reads, states, last) = (reads + 1, states + u32::from(seen > last), seen);
    }
    (reads, states)
}

fn trips_of(entry: &Value) -> u32 {
    u32::try_from(entry["totals"]["trips"].as_u64().unwrap_or_else(|| panic!("{entry}"))).unwrap()
}

async fn ask(api: &Router, path: &str) -> Value {
    let answer = api.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(status, StatusCode::OK, "{path}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}
