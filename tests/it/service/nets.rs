//! Errors of runs that only a defect or somebody else's hand brings about, as who asks sees them.

use super::slow::quick_pipeline;
use super::{Place, Store};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_panics_fails_its_run_and_the_next_goes_on() {
    let place = Place::new(Store::Sqlite).await;
    quick_pipeline(&place);
    let once = format!("scanned=panic@{}", place.path("panicked").display());
    let server = place.start_with(&[], &[("REFRAIN_FAULT", &once)]).await;
    let february = json!({"pipeline": "quick", "partitions": ["2024-02"]});
    let run = server.run_to("failed", "first", &february).await;
    assert_eq!(run["error"]["type"], "urn:refrain:problem:engine-panicked", "{run:#}");
    assert_eq!(run["error"]["class"], "compute", "{run:#}");
    assert!(run["error"]["detail"].as_str().unwrap().contains("told to panic"), "{run:#}");
    server.run("second", &february).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_refuses_a_decision_is_asked_again() {
    let place = Place::new(Store::Sqlite).await;
    quick_pipeline(&place);
    let server = place.start_with(&["--retry-delay-seconds", "1"], &[]).await;
    let options = SqliteConnectOptions::new().filename(place.path("refrain-data/refrain.db"));
    let mut hand = SqliteConnection::connect_with(&options.busy_timeout(Duration::from_secs(10))).await.unwrap();
    let broken = "create trigger broken before update of outcome on run_partitions begin select raise(abort, 'out of order'); end";
    sqlx::query(broken).execute(&mut hand).await.unwrap();
    let february = json!({"pipeline": "quick", "partitions": ["2024-02"]});
    let id = server.accept("first", &february).await;
    let until = Instant::now() + Duration::from_secs(60);
    let error = loop {
        let run = server.get(&format!("/runs/{id}")).await.json();
        if let Some(error) =
            run["attempts"].as_array().and_then(|a| a.iter().find_map(|a| a.get("error").filter(|e| !e.is_null())))
        {
            break error.clone();
        }
        assert!(Instant::now() < until, "{run:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&error["type"], &error["class"]), (&json!("urn:refrain:problem:database-failed"), &json!("service")));
    assert!(error["detail"].as_str().unwrap().contains("out of order"), "{error:#}");
    sqlx::query("drop trigger broken").execute(&mut hand).await.unwrap();
    assert_eq!(server.wait(&id).await["state"], "succeeded");
}
