//! Promise 3 and the end of a server: killed at any time, or asked to stop.

use super::{MONTHS, Place, Server, Store, assert_totals, summed, trips_pipeline, write_quarter};
use rstest::rstest;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const FLAGS: [&str; 6] = ["--workers", "1", "--lease-seconds", "2", "--max-lost-workers", "1000"];

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn killed_with_runs_queued_and_running_they_end_once_each(#[case] store: Store) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 20_000);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let mut accepted: Vec<(String, Value, String)> = Vec::new();
    let mut server = place.start_with(&FLAGS, &[]).await;
    for round in 0..4 {
        for (at, partitions) in [&MONTHS[..], &MONTHS[..2], &MONTHS[1..], &MONTHS[2..]].into_iter().enumerate() {
            let (key, body) = (format!("{round}/{at}"), json!({"pipeline": "trips", "partitions": partitions}));
            let id = server.accept(&key, &body).await;
            accepted.push((key, body, id));
        }
        wait_for_a_worker(&server).await;
        server.kill().await;
        server = place.start_with(&FLAGS, &[]).await;
    }
    for (key, body, id) in &accepted {
        let run = server.wait(id).await;
        assert_eq!(run["state"], "succeeded", "{run:#}");
        let attempts = run["attempts"].as_array().unwrap();
        let ended_well = attempts.iter().filter(|attempt| attempt["outcome"] == "succeeded").count();
        assert_eq!(ended_well, 1, "{run:#}");
        let again = server.submit(key, body).await;
        assert_eq!((again.status, again.run_id()), (200, id.clone()), "{again:?}");
    }
    let listed = server.get("/runs?pipeline=trips&limit=100").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), accepted.len());
    assert_totals(&server.partitions("trips").await, &summed(&trips));
    nothing_is_left_in_staging(&place).await;
}

/// Until a worker holds a run, so that the kill hits it. Three more wait in the queue meanwhile.
async fn wait_for_a_worker(server: &Server) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let listed = server.get("/runs?limit=100").await.json();
        let states: Vec<&str> =
            listed["runs"].as_array().unwrap().iter().map(|r| r["state"].as_str().unwrap()).collect();
        if states.iter().any(|state| ["running", "committing"].contains(state)) {
            return;
        }
        assert!(Instant::now() < end, "no worker took a run: {states:?}\n{}", server.log_tail());
        assert!(states.contains(&"queued"), "all ended before the kill: {states:?}");
    }
}

pub(super) async fn nothing_is_left_in_staging(place: &Place) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let left: Vec<String> = place.parquet_files().into_iter().filter(|path| path.contains(".staging")).collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "left in staging: {left:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn asked_to_stop_it_ends_well_and_the_next_one_goes_on(#[case] store: Store) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 5_000);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let server = place.start().await;
    let mut accepted = Vec::new();
    for at in 0..3 {
        let body = json!({"pipeline": "trips", "partitions": MONTHS});
        accepted.push(server.accept(&format!("k{at}"), &body).await);
    }
    wait_for_a_worker(&server).await;
    assert!(server.stop().await.success());
    let server = place.start().await;
    for id in &accepted {
        assert_eq!(server.wait(id).await["state"], "succeeded");
    }
    assert_totals(&server.partitions("trips").await, &summed(&trips));
}

#[tokio::test]
async fn a_second_server_on_one_sqlite_file_is_refused() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 10);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let first = place.start().await;
    let second = tokio::process::Command::new(env!("CARGO_BIN_EXE_refrain"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(place.path("refrain-data"))
        .arg("--pipelines")
        .arg(place.path("pipelines"))
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(Duration::from_secs(30), second).await.unwrap().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("refrain-data"), "it says where the other one is: {said}");
    assert_eq!(first.get("/readyz").await.status, 200, "the first goes on");
}
