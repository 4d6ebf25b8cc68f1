//! What the service is told: by flags, variables and files, and by its pipelines' files while it runs.

use super::cli::refrain_with;
use super::slow::{of_attempts, stopped_engine, stopping, wait_until_unwell, wait_until_well};
use super::{Place, Server, Store, trips_pipeline, write_quarter};
use rstest::rstest;
use rustix::process::{Signal, kill_process_group};
use serde_json::json;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn trips(more: &str) -> String {
    format!("{}{more}", trips_pipeline("trips", r#""raw/*.parquet""#, "", ""))
}

/// Waits until the server has these measures in its pipeline.
async fn wait_for_measures(server: &Server, count: usize) {
    let end = Instant::now() + SOON;
    loop {
        let found = server.get("/pipelines/trips").await.json();
        if found["measures"].as_array().unwrap().len() == count {
            return;
        }
        assert!(Instant::now() < end, "not {count} measures: {found:#}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn pipelines_are_read_again_when_asked(#[case] store: Store) {
    let place = Place::new(store).await;
    write_quarter(&place, 50);
    place.pipeline("trips", &trips(""));
    let server = place.start().await;
    let request = json!({"pipeline": "trips", "partitions": ["2024-01"]});
    let first = server.accept("first", &request).await;
    let before = server.wait(&first).await;
    let measures = server.get("/pipelines/trips").await.json()["measures"].as_array().unwrap().len();

    place.pipeline("trips", &trips("more = \"count(amount)\"\n"));
    server.signal(Signal::HUP);
    wait_for_measures(&server, measures + 1).await;
    let second = server.accept("second", &request).await;
    let after = server.wait(&second).await;
    assert_ne!(before["definition"], after["definition"]);
    assert!(after["partitions"][0]["totals"]["more"].is_u64(), "{after:#}");

    // A bad file leaves its pipeline as it was, and is told; others are taken over all the same.
    place.pipeline("trips", "name = \"trips\"\nnonsense = 1\n");
    place.pipeline("others", &trips("").replace("name = \"trips\"", "name = \"others\""));
    server.signal(Signal::HUP);
    wait_until_unwell(&server, 200, &["trips.toml", "nonsense"]).await;
    assert!(server.log().contains("nonsense"), "{}", server.log_tail());
    wait_for_measures(&server, measures + 1).await;
    assert_eq!(server.get("/pipelines/others").await.status, 200);
    let third = server.accept("third", &request).await;
    assert_eq!(server.wait(&third).await["definition"], after["definition"]);

    // A file that is gone takes its pipeline with it, and the errors are those of the last look.
    place.remove("pipelines/others.toml");
    place.pipeline("trips", &trips(""));
    server.signal(Signal::HUP);
    wait_for_measures(&server, measures).await;
    assert_eq!(server.get("/pipelines/others").await.status, 404);
    wait_until_well(&server).await;
    assert!(server.stop().await.success());
}

/// As a terminal that closes sends it, or a supervisor that knows the group alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_of_the_whole_group_ends_no_attempt() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 50);
    place.pipeline("trips", &trips(""));
    let server = place.start_with(&["--workers", "1"], &[("REFRAIN_FAULT", &stopping(&place))]).await;
    let run = server.accept("first", &json!({"pipeline": "trips", "partitions": ["2024-01"]})).await;
    let engine = stopped_engine(&server).await;
    kill_process_group(server.pid(), Signal::HUP).unwrap();
    engine.signal(Signal::CONT);
    assert_eq!(of_attempts(&server.wait(&run).await, "outcome"), ["succeeded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_force_says_where_it_comes_from() {
    let environment = [("REFRAIN_WORKERS", "3"), ("REFRAIN_DATABASE_URL", "postgres://u:hunter2@h/d")];
    let said = refrain_with(&["config", "--lease-seconds", "20"], &environment).await;
    assert_eq!(said.code, 0, "{said:?}");
    let line = |flag: &str| said.out.lines().find(|line| line.starts_with(flag)).unwrap().to_owned();
    assert!(line("--workers ").contains(" 3 ") && line("--workers ").ends_with("REFRAIN_WORKERS"), "{said:?}");
    assert!(line("--lease-seconds ").contains(" 20 ") && line("--lease-seconds ").ends_with("the flag"), "{said:?}");
    assert!(line("--log-format ").ends_with("text"), "{said:?}");
    assert!(line("--database-url ").contains("not shown"), "{said:?}");
    let listed = refrain_with(&["config", "--json"], &environment).await;
    let workers = listed.json()["settings"].as_array().unwrap().iter().find(|s| s["flag"] == "--workers").cloned();
    let expected = json!({"flag": "--workers", "variable": "REFRAIN_WORKERS", "value": "3", "from": "environment"});
    assert_eq!(workers, Some(expected), "{listed:?}");
    assert!(!format!("{said:?}{listed:?}").contains("hunter2"));

    let wrong = refrain_with(&["config"], &[("REFRAIN_WORKER", "3")]).await;
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.out.contains("REFRAIN_WORKER is set and is no setting"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_databases_url_may_be_in_a_file() {
    let place = Place::new(Store::Postgres).await;
    write_quarter(&place, 50);
    place.pipeline("trips", &trips(""));
    let file = place.path("secret");
    std::fs::write(&file, format!("{}\n", place.database_url().unwrap())).unwrap();
    let server = place.start_by_file(&file).await;
    let run = server.accept("first", &json!({"pipeline": "trips", "partitions": ["2024-01"]})).await;
    assert_eq!(server.wait(&run).await["state"], "succeeded");
    assert!(place.store().await.get(refrain::run::RunId(run.parse().unwrap())).await.unwrap().is_some());

    let gone = ["worker", "--database-url-file", "/nowhere/secret"];
    let said = refrain_with(&gone, &[]).await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("cannot read the secret in /nowhere/secret"), "{said:?}");
}
