//! A crash near the end of a run over many partitions.

use super::{FLAGS, TABLE, assert_well, live, until};
use crate::service::{Place, Shape, Store, month_of_trips, trips_of, trips_pipeline};
use rstest::rstest;
use serde_json::json;

const DAYS: usize = 90;

/// The engine dies when it has kept half of it, and while it stages the last partition but one; then its server, while the
/// next engine is at the last.
#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_partition_89_of_90_costs_one_partition(#[case] store: Store) {
    let place = Place::new(store).await;
    place.pipeline(TABLE, &trips_pipeline(TABLE, r#""raw/%Y-%m-%d.parquet""#, "", "").replace("month_of", "day_of"));
    let first: chrono::NaiveDate = "2024-01-01".parse().unwrap();
    let days: Vec<chrono::NaiveDate> = first.iter_days().take(DAYS).collect();
    for (number, at) in days.iter().enumerate() {
        let day = at.to_string();
        let mut trips = month_of_trips(&day[..7], 20 + u32::try_from(number).unwrap());
        trips.iter_mut().for_each(|trip| trip.pickup = at.and_time(trip.pickup.time()));
        place.source(&format!("raw/{day}.parquet"), trips_of(&trips, Shape::Wide));
    }
    let body = json!({"pipeline": TABLE, "partitions": [{"from": days[0], "to": days[DAYS - 1]}]});

    let [kept, engine, server] = ["kept", "engine", "server"].map(|mark| place.path(mark));
    let faults = format!(
        "checkpointed-45=kill@{},staged-89=kill@{},staged-90=delay:60000@{}",
        kept.display(),
        engine.display(),
        server.display()
    );
    let flags = [&FLAGS[..], &["--slice-source-mb", "0", "--sweep-seconds", "1"]].concat();
    let dying = place.start_with(&flags, &[("REFRAIN_FAULT", &faults)]).await;
    let id = dying.accept("the-run", &body).await;
    until("the last partition is staged", || server.exists()).await;
    let run = dying.get(&format!("/runs/{id}")).await.json();
    let outcomes = [0, 1].map(|attempt| run["attempts"][attempt]["outcome"].clone());
    assert_eq!((outcomes, kept.exists()), ([json!("lost"), json!("lost")], true), "{run:#}");
    dying.kill().await;

    let again = place.start_with(&flags, &[]).await;
    let run = again.wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 4, "{run:#}");
    assert_eq!(run["progress"]["partitions_taken_over"], DAYS - 1, "{run:#}");
    // Only the last day's were read.
    assert_eq!(run["progress"]["rows"], 20 + DAYS - 1, "{run:#}");
    assert_eq!(run["rows"]["read"], (20..20 + DAYS).sum::<usize>(), "{run:#}");
    let made = live(&place);
    assert_eq!(made.len(), DAYS);
    assert_well(&place).await;

    // All at once, and by nobody's leave.
    assert!(again.stop().await.success());
    let whole = place.start_with(&FLAGS, &[]).await;
    let run = whole.run("all-at-once", &body).await;
    assert!(run["partitions"].as_array().unwrap().iter().all(|p| p["outcome"] == "unchanged"), "{run:#}");
    assert_eq!(live(&place), made);
}
