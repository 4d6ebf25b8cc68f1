//! Runs of the same partitions that meet out of turn.

use super::{FLAGS, LATER, NEW, SOURCE, assert_well, made, overwrite, place, write_input};
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

/// A decided run whose worker is dead comes before the younger one that waits for it, and the younger one has the last word.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_committing_run_goes_before_a_younger_waiting_one(#[case] store: Store) {
    let place = place(store).await;
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let older = server.accept("older", &overwrite()).await;
    let younger = server.accept("younger", &overwrite()).await;
    assert!(server.stop().await.success());
    place.launch_with(&FLAGS, &[("REFRAIN_FAULT", "decided=kill")]).died().await;
    write_input(&place, LATER);
    let server = place.start_with(&["--workers", "2", "--lease-seconds", "1"], &[]).await;
    let (older, younger) = (server.wait(&older).await, server.wait(&younger).await);
    assert_eq!((&older["state"], &younger["state"]), (&json!("succeeded"), &json!("succeeded")));
    assert_eq!(older["attempts"].as_array().unwrap().len(), 2, "{older:#}");
    let (first_ended, then_started) = (&older["ended_at"], &younger["started_at"]);
    assert!(first_ended.as_str().unwrap() <= then_started.as_str().unwrap(), "{first_ended} {then_started}");
    let january = server.get("/pipelines/trips/partitions/pickup_month=2024-01").await.json();
    let wrote: Vec<&Value> = january["history"].as_array().unwrap().iter().map(|h| &h["run_id"]).collect();
    assert_eq!(wrote, [&younger["id"], &older["id"]], "newest first: {january:#}");
    assert_well(&place).await;
}
