//! Cancelling in each state, and the time limit of a pipeline.

use super::slow::{
    engine_at_work, engines_of, of_attempts, quick_pipeline, slow_pipeline, stopped_engine, stopping, wait_for_state,
};
use super::{Place, Server, Store, trips_pipeline};
use reqwest::Method;
use rstest::rstest;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fs::File;
use std::time::{Duration, Instant};

/// Longer than a test: a worker that hears of a cancellation only when it renews its lease is too late.
const FLAGS: [&str; 4] = ["--workers", "1", "--lease-seconds", "600"];

async fn cancel(server: &Server, run: &str) -> (u16, Value) {
    let answer = server.call(Method::POST, &format!("/runs/{run}/cancel"), None, None).await;
    (answer.status, answer.json())
}

/// A cancellation that must be refused, with the state that the run is in.
async fn refused(server: &Server, run: &str, state: &str) {
    let (status, problem) = cancel(server, run).await;
    assert_eq!((status, &problem["state"]), (409, &json!(state)), "{problem:#}");
    assert!(problem["type"].as_str().unwrap().ends_with("invalid-state"), "{problem:#}");
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_cancelled_in_each_state_that_allows_it(#[case] store: Store) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 20, "");
    quick_pipeline(&place);
    let missing = trips_pipeline("missing", r#""missing.parquet""#, "", "");
    place.pipeline("missing", &format!("{missing}\n[retry]\nsource = {{ attempts = 1 }}\n"));
    let server = place.start_with(&FLAGS, &[("REFRAIN_FAULT", &stopping(&place))]).await;
    let february = |pipeline: &str| json!({"pipeline": pipeline, "partitions": ["2024-02"]});

    let running = server.accept("running", &february("slow")).await;
    let queued = server.accept("queued", &february("slow")).await;
    let engine = stopped_engine(&server).await;
    for _ in 0..2 {
        let (status, run) = cancel(&server, &queued).await;
        assert_eq!(
            (status, &run["state"], of_attempts(&run, "outcome").len()),
            (200, &json!("cancelled"), 0),
            "{run:#}"
        );
    }
    let (status, run) = cancel(&server, &running).await;
    assert_eq!((status, &run["state"]), (202, &json!("running")), "{run:#}");
    let run = server.wait(&running).await;
    assert_eq!((&run["state"], of_attempts(&run, "outcome")), (&json!("cancelled"), vec!["cancelled"]), "{run:#}");
    assert!(!engine.is_alive());
    assert_eq!(place.parquet_files().iter().filter(|path| path.contains("warehouse")).count(), 0);

    // As a publisher that is stuck inside the lock.
    let done = server.run("done", &february("quick")).await;
    let lock = File::open(place.path("refrain-data/warehouse/.locks/quick")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let committing = server.accept("committing", &february("quick")).await;
    wait_for_state(&server, &committing, "committing").await;
    refused(&server, &committing, "committing").await;
    drop(lock);
    assert_eq!(server.wait(&committing).await["state"], "succeeded");
    refused(&server, &committing, "succeeded").await;
    refused(&server, done["id"].as_str().unwrap(), "succeeded").await;

    let failed = server.run_to("failed", "failed", &february("missing")).await;
    refused(&server, failed["id"].as_str().unwrap(), "failed").await;

    let again = server.call(Method::POST, &format!("/runs/{running}/retry"), None, None).await;
    assert_eq!(again.status, 202, "{again:?}");
    let run = server.wait(&running).await;
    assert_eq!(of_attempts(&run, "outcome"), ["cancelled", "succeeded"], "{run:#}");
}

#[rstest]
#[case::sqlite(Store::Sqlite, 0)]
#[case::by_another_server(Store::Postgres, 1)]
#[tokio::test(flavor = "multi_thread")]
async fn a_running_query_stops_within_a_second(#[case] store: Store, #[case] by: usize) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 600, "");
    let mut servers = vec![place.start_with(&FLAGS, &[]).await];
    if by > 0 {
        servers.push(place.start_with(&["--workers", "0"], &[]).await);
    }
    // On a busy machine the answers alone may take a second, so the best of three counts.
    let mut fastest = Duration::MAX;
    for round in 0..3 {
        let body = json!({"pipeline": "slow", "partitions": ["2024-02"]});
        let id = servers[0].accept(&format!("slow/{round}"), &body).await;
        let engine = engine_at_work(&servers[0], &id).await;
        assert_eq!(cancel(&servers[by], &id).await.0, 202);
        let asked = Instant::now();
        let run = servers[by].wait(&id).await;
        fastest = fastest.min(asked.elapsed());
        assert_eq!(run["state"], "cancelled", "{run:#}");
        assert!(!engine.is_alive(), "the query goes on");
        if fastest < Duration::from_secs(1) {
            return;
        }
    }
    panic!("it took {fastest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_longer_than_its_limit_fails_and_is_not_tried_again() {
    let place = Place::new(Store::Sqlite).await;
    slow_pipeline(&place, 600, "[limits]\ntimeout_seconds = 1\n");
    quick_pipeline(&place);
    let server = place.start_with(&FLAGS, &[]).await;
    let id = server.accept("slow", &json!({"pipeline": "slow", "partitions": ["2024-02"]})).await;
    let run = server.wait(&id).await;
    assert_eq!((&run["state"], of_attempts(&run, "outcome")), (&json!("failed"), vec!["failed"]), "{run:#}");
    let error = &run["error"];
    assert_eq!(
        (error["type"].as_str(), error["class"].as_str()),
        (Some("urn:refrain:problem:time-limit"), Some("compute")),
        "{run:#}"
    );
    assert!(error["detail"].as_str().unwrap().contains("1 s"), "{run:#}");
    assert!(engines_of(&server).is_empty(), "nothing of it runs any more");
    assert_eq!(place.parquet_files().iter().filter(|path| path.contains("warehouse")).count(), 0);
    server.run("quick", &json!({"pipeline": "quick", "partitions": ["2024-02"]})).await;
}
