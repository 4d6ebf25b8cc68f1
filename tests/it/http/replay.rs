//! Repetitions under a key that were once refused, though they are the same request.

use super::faulty::{Fault, FaultyStore};
use super::{Answer, App, BY_KIND, HOURLY, MONTHLY, json_request, months, send};
use axum::body::Body;
use axum::http::{StatusCode, header};
use refrain::http::{Limits, router};
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::Arc;

#[rstest]
#[case::one_partition(json!("2024-02"), 11)]
#[case::overlapping_ranges(json!({"from": "2024-01", "to": "2024-03"}), 11)]
#[tokio::test]
async fn a_request_that_repeats_itself_is_the_same_when_it_is_sent_again(#[case] entry: Value, #[case] times: usize) {
    let app = App::new().await;
    let body = json!({"pipeline": "monthly", "partitions": vec![entry; times]});
    let id = app.accepted("k", &body).await;
    let again = app.submit("k", &body).await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::OK, &json!(id)), "{again:?}");
}

#[tokio::test]
async fn a_lower_limit_does_not_break_what_was_accepted_under_a_higher_one() {
    let mut app = App::new().await;
    let many = json!({"pipeline": "monthly", "partitions": [{"from": "2020-01", "to": "2024-12"}]});
    let repeated = months(&["2024-02"; 300]);
    app.accepted("many", &many).await;
    app.accepted("repeated", &repeated).await;
    app.api.limits.max_partitions_per_run = 2;
    app.reload(&[MONTHLY]);
    assert_eq!(app.submit("many", &many).await.status, StatusCode::OK);
    assert_eq!(app.submit("repeated", &repeated).await.status, StatusCode::OK);
    app.submit("new", &many).await.field();
}

#[tokio::test]
async fn repeats_have_a_limit_that_is_named() {
    let app = App::with(Limits { max_partitions_per_run: 3, ..Limits::default() }, &[MONTHLY]).await;
    app.accepted("k", &months(&["2024-02"; 30])).await;
    let (pointer, detail) = app.submit("k2", &months(&["2024-02"; 31])).await.field();
    assert!(pointer == "/partitions" && detail.contains("30 times"), "{pointer}: {detail}");
}

/// Submits under the key `k` to a service that cannot read the definition which the key's run was accepted with.
async fn submit_unreadable(app: &App, body: &Value) -> Answer {
    let mut api = app.api.clone();
    api.store = Arc::new(FaultyStore::new(Arc::clone(&app.store), Fault::UnreadableDefinition));
    let request = json_request("/runs", body.to_string()).header("idempotency-key", "k");
    send(&router(api), request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn a_replay_outlives_a_definition_that_can_no_longer_be_read() {
    let mut app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02", "2024-03"])).await;
    let range = json!({"pipeline": "monthly", "partitions": [{"from": "2024-02", "to": "2024-03"}]});
    let literal = months(&["month=2024-03", "month=2024-02", "month=2024-03"]);
    for same in [&range, &literal] {
        let answer = submit_unreadable(&app, same).await;
        assert_eq!((answer.status, &answer.json()["id"]), (StatusCode::OK, &json!(id)), "by the current definition");
    }
    let other = months(&["month=2024-03"]);
    let refused = submit_unreadable(&app, &other).await.problem(422, "idempotency-key-reused");
    assert_eq!((&refused["run_id"], &refused["fields"]), (&json!(id), &json!(["partitions"])));

    app.reload(&[&MONTHLY.replace("month_of", "day_of"), HOURLY, BY_KIND]);
    assert_eq!(submit_unreadable(&app, &literal).await.status, StatusCode::OK, "its texts are canonical");
    submit_unreadable(&app, &other).await.problem(422, "idempotency-key-reused");
    submit_unreadable(&app, &range).await.problem(422, "idempotency-key-reused");
    app.reload(&[HOURLY]);
    assert_eq!(submit_unreadable(&app, &literal).await.status, StatusCode::OK, "the pipeline is gone");
}

#[tokio::test]
async fn a_full_run_is_replayed_without_its_definition_too() {
    let mut app = App::new().await;
    let full = json!({"pipeline": "monthly", "mode": "full"});
    app.accepted("k", &full).await;
    app.reload(&[HOURLY]);
    assert_eq!(submit_unreadable(&app, &full).await.status, StatusCode::OK);
    let refused = submit_unreadable(&app, &months(&["month=2024-02"])).await.problem(422, "idempotency-key-reused");
    assert_eq!(refused["fields"], json!(["mode", "partitions"]));
}

#[tokio::test]
async fn a_submission_may_wait_for_the_end_of_its_run() {
    // No time beside the wait: the wait has its own.
    let app = App::with(Limits { request_timeout_seconds: 0, ..Limits::default() }, &[MONTHLY]).await;
    let text = months(&["2024-02"]).to_string();
    let request = |path: &str| json_request(path, text.clone()).header("idempotency-key", "k");
    let waited = app.send(request("/runs?wait=0.2").body(Body::from(text.clone())).unwrap()).await;
    assert_eq!((waited.status, &waited.json()["state"]), (StatusCode::ACCEPTED, &json!("queued")));
    let preferring = request("/runs").header("prefer", "wait=30").body(Body::from(text.clone())).unwrap();
    let (replayed, ()) = tokio::join!(app.send(preferring), app.succeed(3));
    assert_eq!((replayed.status, &replayed.json()["state"]), (StatusCode::OK, &json!("succeeded")), "{replayed:?}");
    assert_eq!(replayed.header("preference-applied"), Some("wait=30"));
    let bad = app.send(request("/runs?wait=soon").body(Body::from(text.clone())).unwrap()).await;
    assert_eq!(bad.problem(400, "invalid-parameter")["parameter"], "wait");
}

#[tokio::test]
async fn a_wish_for_an_encoding_stands_in_the_way_of_no_run() {
    let app = App::new().await;
    let text = months(&["2024-02"]).to_string();
    for (wish, status) in [("identity;q=0", StatusCode::ACCEPTED), ("br, *;q=0.0", StatusCode::OK)] {
        let request = json_request("/runs", text.clone()).header("idempotency-key", "k");
        let request = request.header(header::ACCEPT_ENCODING, wish).body(Body::from(text.clone()));
        assert_eq!(app.send(request.unwrap()).await.status, status, "{wish}");
    }
}
