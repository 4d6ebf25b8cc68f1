//! A run whose engine dies is tried its number of times and then fails saying so; nothing else suffers from it.

use super::slow::{engine_at_work, engines_of, of_attempts, quick_pipeline, slow_pipeline};
use super::{Place, Server, Store};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::File;
use std::time::Duration;

const ENGINE_LOST: &str = "urn:refrain:problem:engine-lost";

fn february(pipeline: &str) -> Value {
    json!({"pipeline": pipeline, "partitions": ["2024-02"]})
}

/// Kills every engine of the run until it has ended; answers the run.
async fn kill_every_engine(server: &Server, id: &str) -> Value {
    loop {
        let run = server.get(&format!("/runs/{id}")).await.json();
        if !run["ended_at"].is_null() {
            return run;
        }
        if run["state"] == "running" {
            engines_of(server).iter().for_each(|engine| engine.signal(Signal::KILL));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_killed_every_time_fails_its_run_and_no_other(#[case] store: Store) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 600, "");
    quick_pipeline(&place);
    let server = place.start_with(&["--workers", "1", "--max-lost-workers", "2"], &[]).await;
    let poison = server.accept("poison", &february("slow")).await;
    let engine = engine_at_work(&server, &poison).await;
    // One worker, and it is younger: between two tries of the other it has its turn.
    let quick = server.accept("quick", &february("quick")).await;
    engine.signal(Signal::KILL);
    assert_eq!(server.wait(&quick).await["state"], "succeeded");
    let run = server.get(&format!("/runs/{poison}")).await.json();
    assert_eq!(run["ended_at"], Value::Null, "it had its turn in between: {run:#}");
    let run = kill_every_engine(&server, &poison).await;
    assert_eq!((&run["state"], of_attempts(&run, "outcome")), (&json!("failed"), vec!["lost"; 3]), "{run:#}");
    assert_eq!((&run["error"]["type"], &run["error"]["class"]), (&json!(ENGINE_LOST), &json!("lost")), "{run:#}");
    let said = run["error"]["detail"].as_str().unwrap();
    assert!(said.contains("killed by signal 9") && said.contains("3 workers or engines lost"), "{said}");
    server.run("after", &february("quick")).await;
    assert!(!place.table("slow").exists(), "nothing was published");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_needs_more_memory_than_it_may_have_fails_its_run_and_no_other() {
    let place = Place::new(Store::Sqlite).await;
    slow_pipeline(&place, 600, "");
    quick_pipeline(&place);
    let flags = ["--workers", "1", "--max-lost-workers", "1", "--engine-memory-mb", MEMORY_MB];
    let server = place.start_with(&flags, &[]).await;
    let run = server.run_to("failed", "poison", &february("slow")).await;
    assert_eq!(
        (&run["error"]["type"], of_attempts(&run, "outcome")),
        (&json!(ENGINE_LOST), vec!["lost"; 2]),
        "{run:#}"
    );
    server.run("quick", &february("quick")).await;
}

const MEMORY_MB: &str = "100";

/// Polars maps its sources, so a file that is cut short while it is read kills whoever reads it.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_cut_short_while_it_is_read_kills_the_engine_alone() {
    let place = Place::new(Store::Sqlite).await;
    slow_pipeline(&place, 600, "[retry]\nsource = { attempts = 2, delay_seconds = 1 }\n");
    quick_pipeline(&place);
    let server = place.start_with(&["--workers", "1"], &[]).await;
    let id = server.accept("slow", &february("slow")).await;
    let engine = engine_at_work(&server, &id).await;
    engine.signal(Signal::STOP);
    // All the names are of this one file.
    let source = File::options().write(true).open(place.path("slow/0000.parquet")).unwrap();
    source.set_len(4096).unwrap();
    engine.signal(Signal::CONT);
    let run = server.wait(&id).await;
    assert_eq!(run["state"], "failed", "what is left is no Parquet file: {run:#}");
    let first = &run["attempts"][0];
    assert_eq!(first["outcome"], "lost", "{run:#}");
    assert!(first["error"]["detail"].as_str().unwrap().contains("killed by signal 7"), "{run:#}");
    server.run("quick", &february("quick")).await;
}
