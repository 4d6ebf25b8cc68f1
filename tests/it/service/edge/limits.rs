//! So many queued runs of one principal, over both stores.

use super::super::{Answer, Place, Store};
use super::quick_pipeline;
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

fn month(month: u32) -> Value {
    json!({"pipeline": "quick", "partitions": [format!("2024-{month:02}")]})
}

#[track_caller]
fn refused(answer: &Answer) {
    let body = answer.json();
    assert_eq!((answer.status, &body["type"]), (429, &json!("urn:refrain:problem:too-many-queued-runs")), "{answer:?}");
    assert_eq!((&body["limit"], &body["principal"]), (&json!(2), &json!("default")));
    assert_eq!(answer.header("retry-after"), "10");
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn so_many_runs_of_one_principal_are_queued(#[case] store: Store) {
    let place = Place::new(store).await;
    quick_pipeline(&place);
    let server = place.start_with(&["--workers", "0", "--max-queued-runs", "2"], &[]).await;
    let first = server.accept("first", &month(1)).await;
    server.accept("second", &month(2)).await;
    refused(&server.submit("third", &month(3)).await);
    let replayed = server.submit("first", &month(1)).await;
    assert_eq!((replayed.status, replayed.header("idempotent-replayed")), (200, "true"), "{replayed:?}");
    let in_an_hour = (chrono::Utc::now() + chrono::TimeDelta::hours(1)).to_rfc3339();
    let later = json!({"pipeline": "quick", "partitions": ["2024-03"], "not_before": in_an_hour});
    refused(&server.submit("later", &later).await);

    let cancelled = server.call(Method::POST, &format!("/runs/{first}/cancel"), None, None).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    // The key that was refused is free, and there is room.
    server.accept("third", &month(3)).await;
    refused(&server.call(Method::POST, &format!("/runs/{first}/retry"), None, None).await);
    let again = json!({"pipeline": "quick", "partitions": ["2024-01"], "if_failed": "retry"});
    refused(&server.submit("first", &again).await);
    assert_eq!(server.get(&format!("/runs/{first}")).await.json()["state"], "cancelled");
    let replayed = server.submit("first", &month(1)).await;
    assert_eq!((replayed.status, &replayed.json()["state"]), (200, &json!("cancelled")), "{replayed:?}");
}
