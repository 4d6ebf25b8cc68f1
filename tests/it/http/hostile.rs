//! Requests that no client means to send: each gets a problem that says what is wrong.

use super::{Answer, App, json_request};
use axum::body::Body;
use axum::http::StatusCode;
use rstest::rstest;

async fn submit(app: &App, text: String) -> Answer {
    let request = json_request("/runs", text.clone()).header("idempotency-key", "k");
    app.send(request.body(Body::from(text)).unwrap()).await
}

#[rstest]
#[case::twice(r#"{"pipeline": "monthly", "pipeline": "hourly", "partitions": ["2024-02"]}"#, "duplicate field")]
#[case::huge_integer(r#"{"pipeline": "monthly", "partitions": [123456789012345678901234567890]}"#, "invalid type")]
#[case::nul(r#"{"pipeline": "by_kind", "partitions": [{"kind": "a\u0000b"}]}"#, "")]
#[case::nul_in_a_name(r#"{"pipeline": "by_kind", "partitions": [{"ki\u0000nd": "a"}]}"#, "no such partition column")]
#[tokio::test]
async fn a_body_that_is_json_and_no_request_says_why(#[case] text: &str, #[case] expected: &str) {
    let app = App::new().await;
    let (_, detail) = submit(&app, text.to_owned()).await.field();
    assert!(detail.contains(expected), "{detail}");
}

#[tokio::test]
async fn a_number_that_no_computer_holds_is_refused() {
    let app = App::new().await;
    submit(&app, r#"{"pipeline": 1e999, "partitions": ["2024-02"]}"#.to_owned()).await.problem(400, "not-json");
    let digits = "9".repeat(500_000);
    let answer =
        submit(&app, format!(r#"{{"pipeline": "monthly", "partitions": ["2024-02"], "mode": {digits}}}"#)).await;
    assert!(answer.status.is_client_error() && answer.body.len() < 2_000, "{}", answer.status);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn depth_costs_no_stack() {
    let app = App::new().await;
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{open}{close}");
    for (text, status) in [
        (nested.clone(), 422),
        (open, 400),
        (format!(r#"{{"pipeline": "monthly", "partitions": {nested}}}"#), 422),
        (format!(r#"{{"pipeline": "monthly", "partitions": [{{"kind": {nested}}}]}}"#), 422),
        (format!(r#"{{"pipeline": {nested}}}"#), 422),
        (format!(r#"{{"other": {nested}}}"#), 422),
        (format!("{}1{}", r#"{"pipeline":"#.repeat(50_000), "}".repeat(50_000)), 422),
    ] {
        let answer = submit(&app, text).await;
        let name = if status == 422 { "invalid-request" } else { "not-json" };
        answer.problem(status, name);
    }
}

#[rstest]
#[case("/runs/%FF", 400)]
#[case("/runs/%FF/cancel", 405)]
#[case("/pipelines/%C3%28", 400)]
#[case("/pipelines/%FF/partitions", 400)]
#[case("/pipelines/by_kind/partitions/kind=%F0%9F", 400)]
#[case("/%FF", 404)]
#[case("/runs?partition=kind%3D%FF", 400)]
#[case("/runs?%FF=1", 400)]
#[case("/runs?%C3%28", 400)]
#[case("/pipelines/monthly/partitions?from=%ED%A0%80", 400)]
#[case("/runs?limit=1&limit=2", 400)]
#[case("/runs?pipeline=monthly&pipeline=monthly", 400)]
#[case("/runs?limit=%", 400)]
#[case("/runs?=", 400)]
#[tokio::test]
async fn what_cannot_be_decoded_or_is_there_twice_is_a_problem(#[case] path: &str, #[case] status: u16) {
    let app = App::new().await;
    let answer = app.get(path).await;
    assert_eq!(answer.status.as_u16(), status, "{path}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}: {answer:?}");
}

#[tokio::test]
async fn characters_of_other_scripts_pass() {
    let app = App::new().await;
    let found = app.get("/runs?partition=kind%3D%C3%A9%20+%E6%97%A5").await;
    assert_eq!(found.status, StatusCode::OK, "{found:?}");
}
