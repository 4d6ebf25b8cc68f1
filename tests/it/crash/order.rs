//! Runs of the same partitions that meet out of turn.

use super::{LATER, NEW, SOURCE, assert_well, made, overwrite, place, write_input};
use crate::service::{Store, month_of_trips};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

/// The older run is tried again while a younger one is at work: it takes its place behind it.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_older_run_waits_for_a_running_younger_one(#[case] store: Store) {
    let place = place(store).await;
    let zones_only = crate::service::trips_of(&month_of_trips("2024-01", 20), crate::service::Shape::Wide);
    place.source(SOURCE, zones_only.into_iter().skip(1).collect());
    let mark = place.path("struck");
    let fault = format!("staged=delay:1500@{}", mark.display());
    let server = place.start_with(&["--workers", "2"], &[("REFRAIN_FAULT", &fault)]).await;
    let older = server.run_to("failed", "older", &overwrite()).await;
    let older = older["id"].as_str().unwrap();

    write_input(&place, NEW);
    let younger = server.accept("younger", &overwrite()).await;
    made(&mark).await;
    // What the younger one has read is old by now; the retry makes the last word.
    write_input(&place, LATER);
    assert_eq!(server.call(Method::POST, &format!("/runs/{older}/retry"), None, None).await.status, 202);
    assert_eq!(server.get(&format!("/runs/{older}")).await.json()["state"], "queued");
    let (younger, again) = (server.wait(&younger).await, server.wait(older).await);
    assert_eq!((&younger["state"], &again["state"]), (&json!("succeeded"), &json!("succeeded")));
    let (first_ended, then_started) = (&younger["attempts"][0]["ended_at"], &again["attempts"][1]["started_at"]);
    assert!(first_ended.as_str().unwrap() <= then_started.as_str().unwrap(), "{first_ended} {then_started}");
    let january = server.get("/pipelines/trips/partitions/pickup_month=2024-01").await.json();
    assert_eq!(january["run_id"], older, "{january:#}");
    let wrote: Vec<&Value> = january["history"].as_array().unwrap().iter().map(|h| &h["run_id"]).collect();
    assert_eq!(wrote, [&json!(older), &younger["id"]], "newest first: {january:#}");
    assert_well(&place).await;
}
