//! The webhook of a submission: which URLs are taken, and what is shown of them.

use super::{App, months};
use axum::http::StatusCode;
use refrain::http::router;
use refrain::notify::{AllowedHosts, Audiences};
use rstest::rstest;
use serde_json::{Value, json};

const URL: &str = "https://hooks.example.org/refrain?key=hunter2";

async fn app(of_every_run: &[&str]) -> App {
    let hosts = ["hooks.example.org", "http://127.0.0.1:9000"].map(str::to_owned);
    let mut app = App::new().await;
    app.api.audiences = Audiences::new(Some(AllowedHosts::parse(&hosts).unwrap()), of_every_run, false).unwrap();
    app.router = router(app.api.clone());
    app
}

fn with(webhook: &str) -> Value {
    let mut body = months(&["2024-01"]);
    body["webhook"] = json!(webhook);
    body
}

#[rstest]
#[case::other_host("https://evil.example.org/")]
#[case::metadata("http://169.254.169.254/latest/meta-data/")]
#[case::loopback("http://127.0.0.1:9001/")]
#[case::disguised("http://[::ffff:127.0.0.1]:9001/")]
#[case::no_tls("http://hooks.example.org/")]
#[case::user("https://u:hunter2@hooks.example.org/")]
#[case::no_url("hooks.example.org/hunter2")]
#[case::file("file:///etc/passwd")]
#[case::nul("https://hooks.example.org/hunter2\0")]
#[case::line_break("https://hooks.example.org/\nhunter2")]
#[tokio::test]
async fn a_webhook_that_may_not_be_told_is_refused(#[case] url: &str) {
    let app = app(&[]).await;
    let (pointer, detail) = app.submit("key", &with(url)).await.field();
    assert_eq!(pointer, "/webhook");
    assert!(detail.contains(", expected ") && !detail.contains("hunter2"), "{detail}");
    let dry = app.post("/runs?dry_run=true", &with(url)).await.field();
    assert_eq!(dry.0, "/webhook", "a plan says so too");
    app.accepted("key", &with(URL)).await;
}

#[tokio::test]
async fn without_a_secret_there_are_no_webhooks() {
    let app = App::new().await;
    let (pointer, detail) = app.submit("key", &with(URL)).await.field();
    assert_eq!(pointer, "/webhook");
    assert!(detail.contains("--webhook-secret-file"), "{detail}");
    app.accepted("key", &months(&["2024-01"])).await;
}

#[tokio::test]
async fn a_webhook_is_part_of_what_is_asked_and_its_path_and_query_are_not_shown() {
    let app = app(&["https://hooks.example.org/all?key=hunter3"]).await;
    let id = app.accepted("key", &with(URL)).await;
    assert_eq!(app.submit("key", &with(URL)).await.status, StatusCode::OK);
    for other in [months(&["2024-01"]), with("https://hooks.example.org/refrain?key=other")] {
        let reused = app.submit("key", &other).await.problem(422, "idempotency-key-reused");
        assert_eq!(reused["fields"], json!(["webhook"]), "{reused}");
    }
    let shown = app.get(&format!("/runs/{id}")).await.json();
    assert_eq!(shown["webhook"], "https://hooks.example.org");
    assert!(shown.get("deliveries").is_none(), "{shown}");
    assert_eq!(app.post(&format!("/runs/{id}/cancel"), &json!({})).await.status, StatusCode::OK);
    let ended = app.get(&format!("/runs/{id}")).await.json();
    let urls: Vec<&str> =
        ended["deliveries"].as_array().unwrap().iter().map(|told| told["url"].as_str().unwrap()).collect();
    assert_eq!(urls, ["https://hooks.example.org"; 2]);
    for told in ended["deliveries"].as_array().unwrap() {
        assert_eq!(
            (&told["event"], &told["state"], &told["tries"]),
            (&json!("run.cancelled"), &json!("pending"), &json!(0))
        );
        assert!(told["next_try_at"].is_string() && told["last_status"].is_null(), "{told}");
    }
    assert!(!ended.to_string().contains("hunter"), "{ended}");
}
