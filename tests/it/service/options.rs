//! The options of a request, as the worker of the real server heeds them.

use super::slow::{quick_pipeline, slow_pipeline, wait_for_state};
use super::{Place, Store, trips_pipeline, write_quarter};
use serde_json::{Value, json};

#[tokio::test]
async fn a_run_whose_partition_has_changed_since_fails_and_is_not_tried_again() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 50);
    let pipeline = trips_pipeline("trips", r#""raw/trips_%Y-%m.parquet""#, "neighbours = 1", "");
    place.pipeline("trips", &format!("{pipeline}\n[retry]\ncompute = {{ attempts = 5, delay_seconds = 1 }}\n"));
    // Both are accepted before the first one begins.
    let server = place.start_with(&["--workers", "0"], &[]).await;
    let first = server.accept("first", &json!({"pipeline": "trips", "partitions": ["2024-02"]})).await;
    let body = json!({"pipeline": "trips", "partitions": ["2024-01", "2024-02"], "if_current": {"2024-02": null}});
    let second = server.accept("second", &body).await;
    assert!(server.stop().await.success());
    let server = place.start().await;
    let first = server.wait(&first).await;
    let failed = server.wait(&second).await;
    assert_eq!((&first["state"], &failed["state"]), (&json!("succeeded"), &json!("failed")), "{failed:#}");
    assert_eq!(failed["error"]["type"], "urn:refrain:problem:precondition-failed");
    let detail = failed["error"]["detail"].as_str().unwrap();
    assert!(detail.contains(first["id"].as_str().unwrap()), "it says who came first: {detail}");
    assert_eq!(failed["attempts"].as_array().unwrap().len(), 1, "{failed:#}");
    let listed: Vec<String> = server.partitions("trips").await.into_keys().collect();
    assert_eq!(listed, ["pickup_month=2024-02"], "nothing of it was published");
    let retry = server.call(reqwest::Method::POST, &format!("/runs/{second}/retry"), None, None).await;
    assert_eq!((retry.status, &retry.json()["type"]), (409, &json!("urn:refrain:problem:precondition-failed")));
}

#[tokio::test]
async fn a_request_may_give_its_attempts_less_time_than_the_pipeline() {
    let place = Place::new(Store::Sqlite).await;
    slow_pipeline(&place, 600, "[limits]\ntimeout_seconds = 600\n");
    quick_pipeline(&place);
    let server = place.start().await;
    let slow: Value = json!({"pipeline": "slow", "partitions": ["2024-02"], "timeout_seconds": 1});
    let id = server.accept("slow", &slow).await;
    let failed = wait_for_state(&server, &id, "failed").await;
    assert_eq!(failed["error"]["type"], "urn:refrain:problem:time-limit", "{failed:#}");
    assert!(failed["error"]["detail"].as_str().unwrap().contains("timeout_seconds of the request"), "{failed:#}");
    server.run("quick", &json!({"pipeline": "quick", "partitions": ["2024-02"], "timeout_seconds": 60})).await;
}
