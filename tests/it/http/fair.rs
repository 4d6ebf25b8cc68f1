//! How much one principal may ask for.

use super::{App, MONTHLY, months, send};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::future::join_all;
use refrain::http::Limits;

const PIPELINES: [&str; 1] = [MONTHLY];

async fn within(limits: Limits) -> App {
    App::with(limits, &PIPELINES).await
}

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_back() {
    let app = within(Limits { max_requests_per_second: 1, ..Limits::default() }).await;
    let many = join_all((0..30).map(|_| app.get("/pipelines"))).await;
    let let_through = many.iter().filter(|answer| answer.status == StatusCode::OK).count();
    assert!((10..15).contains(&let_through), "{let_through} of 30");
    let refused = many.iter().find(|answer| answer.status != StatusCode::OK).unwrap();
    let body = refused.problem(429, "too-many-requests");
    assert_eq!((&body["principal"], refused.header("retry-after")), (&"default".into(), Some("1")));
    assert!(body["limit"].as_str().unwrap().starts_with("1 requests a second"), "{body}");
    for asked_by_those_who_keep_it_running in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(app.get(asked_by_those_who_keep_it_running).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn submissions_have_a_limit_of_their_own() {
    let app = within(Limits { max_submissions_per_minute: 2, ..Limits::default() }).await;
    let id = app.accepted("first", &months(&["2024-01"])).await;
    app.accepted("second", &months(&["2024-02"])).await;
    let refused = app.submit("third", &months(&["2024-03"])).await;
    let body = refused.problem(429, "too-many-requests");
    assert_eq!(body["limit"], "2 submissions a minute");
    let seconds: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((25..=31).contains(&seconds), "{seconds}");
    let retried = app.post(&format!("/runs/{id}/retry"), &serde_json::json!({})).await;
    retried.problem(429, "too-many-requests");
    assert_eq!(app.get(&format!("/runs/{id}")).await.status, StatusCode::OK, "others are counted by themselves");
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_clients_wait() {
    let app = within(Limits { max_waiting_clients: 1, ..Limits::default() }).await;
    let id = app.accepted("first", &months(&["2024-01"])).await;
    let asked = Request::get(format!("/runs/{id}?wait=20")).body(Body::empty()).unwrap();
    let mut waiting = Box::pin(send(&app.router, asked));
    let too_early = tokio::time::timeout(std::time::Duration::from_millis(300), &mut waiting).await;
    assert!(too_early.is_err(), "it does not wait: {too_early:?}");
    let refused = app.get(&format!("/runs/{id}?wait=20")).await;
    let body = refused.problem(429, "too-many-waiting");
    assert_eq!((&body["limit"], refused.header("retry-after")), (&1.into(), Some("1")));
    assert_eq!(app.get(&format!("/runs/{id}")).await.status, StatusCode::OK, "who does not wait needs no place");
    // A submission is done all the same, and answered at once.
    let request =
        super::json_request("/runs?wait=20", months(&["2024-02"]).to_string()).header("idempotency-key", "second");
    let began = std::time::Instant::now();
    let accepted = app.send(request.body(Body::from(months(&["2024-02"]).to_string())).unwrap()).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{accepted:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "it waited");
    assert_eq!(app.post(&format!("/runs/{id}/cancel"), &serde_json::json!({})).await.status, StatusCode::OK);
    assert_eq!(waiting.await.json()["state"], "cancelled");
    assert_eq!(app.get(&format!("/runs/{id}?wait=5")).await.status, StatusCode::OK, "the place is free again");
}
