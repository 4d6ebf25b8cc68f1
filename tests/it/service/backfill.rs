//! A backfill as an orchestrator sends it: the range is one run, and only what is missing or outdated is computed.

use super::{Place, Store, assert_totals, field_of, summed, trips_pipeline, write_quarter};
use serde_json::json;

#[tokio::test]
async fn a_backfill_computes_what_is_missing_or_outdated_and_nothing_else() {
    let place = Place::new(Store::Sqlite).await;
    let trips = write_quarter(&place, 50);
    let pipeline = trips_pipeline("trips", r#""raw/trips_%Y-%m.parquet""#, "neighbours = 1", "");
    place.pipeline("trips", &pipeline);
    let server = place.start().await;
    let backfill =
        |only: &str| json!({"pipeline": "trips", "partitions": {"from": "2024-01", "to": "2024-03", "only": only}});
    server.run("february", &json!({"pipeline": "trips", "partitions": ["2024-02"]})).await;
    let missing = server.run("missing", &backfill("missing")).await;
    let created =
        [("pickup_month=2024-01".to_owned(), json!("created")), ("pickup_month=2024-03".to_owned(), json!("created"))];
    assert_eq!(field_of(&missing, "outcome"), created.into());
    assert_totals(&server.partitions("trips").await, &summed(&trips));
    let nothing = server.run("nothing", &backfill("missing")).await;
    assert_eq!((&nothing["partitions"], &nothing["attempts"]), (&json!([]), &json!([])), "{nothing:#}");
    let again = server.submit("missing", &backfill("missing")).await;
    assert_eq!((again.status, again.run_id()), (200, missing["id"].as_str().unwrap().to_owned()));

    server.stop().await;
    place.pipeline("trips", &pipeline.replace("trips = \"count(*)\"", "trips = \"count(amount)\""));
    let server = place.start().await;
    server.run("march", &json!({"pipeline": "trips", "partitions": ["2024-03"]})).await;
    let outdated = server.run("outdated", &backfill("outdated")).await;
    let names: Vec<String> = field_of(&outdated, "outcome").into_keys().collect();
    assert_eq!(names, ["pickup_month=2024-01", "pickup_month=2024-02"]);
}
