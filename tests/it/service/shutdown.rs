//! Asked to stop: nothing new is begun, what is under way ends or is handed back, and no run is lost or run twice.

use super::slow::{of_attempts, quick_pipeline, slow_pipeline, stopped_engine, stopping};
use super::{Place, Store};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// Far longer than any of the tests: whoever waits for it, fails.
const LONG_LEASE: [&str; 4] = ["--workers", "1", "--lease-seconds", "600"];

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_under_way_finishes_and_nothing_new_is_begun(#[case] store: Store) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 20, "");
    quick_pipeline(&place);
    let flags = [&LONG_LEASE[..], &["--shutdown-grace-seconds", "60"]].concat();
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", &stopping(&place))]).await;
    let under_way = server.accept("slow", &json!({"pipeline": "slow", "partitions": ["2024-02"]})).await;
    let next = server.accept("quick", &json!({"pipeline": "quick", "partitions": ["2024-02"]})).await;
    let engine = stopped_engine(&server).await;

    let path = format!("/runs/{next}?wait=50");
    let in_flight = async {
        let began = Instant::now();
        (server.get(&path).await, began.elapsed())
    };
    let stopping = async {
        // The request is in the server's hands before the signal is.
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.stop_group();
    };
    let ((answer, took), ()) = tokio::join!(in_flight, stopping);
    assert_eq!((answer.status, &answer.json()["state"]), (200, &json!("queued")), "{answer:?}");
    assert!(took < Duration::from_secs(20), "it was answered after {took:?}");
    assert!(engine.is_alive(), "whether the engine ends is for the server to say");
    engine.signal(Signal::CONT);
    assert!(server.ended().await.success());

    let server = place.start_with(&["--workers", "0"], &[]).await;
    let run = server.get(&format!("/runs/{under_way}")).await.json();
    assert_eq!((&run["state"], of_attempts(&run, "outcome")), (&json!("succeeded"), vec!["succeeded"]), "{run:#}");
    let run = server.get(&format!("/runs/{next}")).await.json();
    assert_eq!((&run["state"], of_attempts(&run, "outcome").len()), (&json!("queued"), 0), "{run:#}");
    assert!(server.stop().await.success());
    let server = place.start().await;
    assert_eq!(server.wait(&next).await["state"], "succeeded");
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_takes_too_long_is_handed_back_at_once(#[case] store: Store) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 20, "");
    let flags = [&LONG_LEASE[..], &["--shutdown-grace-seconds", "1"]].concat();
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", &stopping(&place))]).await;
    let id = server.accept("slow", &json!({"pipeline": "slow", "partitions": ["2024-02"]})).await;
    let engine = stopped_engine(&server).await;
    // Over Postgres another server is there to take over.
    let other = match store {
        Store::Sqlite => None,
        Store::Postgres => Some(place.start_with(&flags, &[]).await),
    };
    server.stop_group();
    assert!(server.ended().await.success());
    assert!(!engine.is_alive(), "nothing of the attempt runs when its run is handed back");
    let other = match other {
        Some(other) => other,
        None => place.start_with(&flags, &[]).await,
    };
    let run = other.wait(&id).await;
    assert_eq!(of_attempts(&run, "outcome"), ["released", "succeeded"], "{run:#}");
    let workers = of_attempts(&run, "worker");
    assert_ne!(workers[0], workers[1], "{run:#}");
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_now(#[case] store: Store) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 20, "");
    let flags = ["--workers", "1", "--lease-seconds", "2", "--shutdown-grace-seconds", "600"];
    let server = place.start_with(&flags, &[("REFRAIN_FAULT", &stopping(&place))]).await;
    let id = server.accept("slow", &json!({"pipeline": "slow", "partitions": ["2024-02"]})).await;
    let engine = stopped_engine(&server).await;
    server.stop_group();
    // It has taken the first for what it is.
    let end = Instant::now() + Duration::from_secs(10);
    while !server.log_tail().contains("a second signal ends at once") {
        assert!(Instant::now() < end, "{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.stop_group();
    let asked = Instant::now();
    let status = server.ended().await;
    assert_eq!(status.code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
    engine.signal(Signal::CONT);
    engine.gone().await;

    let server = place.start_with(&flags, &[]).await;
    let run = server.wait(&id).await;
    assert_eq!(
        (&run["state"], of_attempts(&run, "outcome")),
        (&json!("succeeded"), vec!["lost", "succeeded"]),
        "{run:#}"
    );
}
