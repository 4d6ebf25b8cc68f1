//! `POST /runs?dry_run=true`: what would be done, and nothing done.

use super::{Answer, App, json_request, months};
use axum::body::Body;
use axum::http::StatusCode;
use refrain::http::Foresight;
use refrain::pipeline::sources::{self, Listing};
use refrain::run::{FailureClass, RunError};
use refrain::store::RunFilter;
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::Arc;

/// The files of the sources, each of 1000 bytes.
const FILES: [&str; 3] = ["trips_2024-01.parquet", "trips_2024-02.parquet", "trips_2024-04.parquet"];

struct Disk;

impl Listing for Disk {
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
        Ok(paths.iter().map(|path| FILES.contains(&path.as_str())).collect())
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, RunError> {
        if pattern.starts_with("events/") {
            let (kind, title) = ("source-unreachable".to_owned(), "A source cannot be read".to_owned());
            let detail = format!("{pattern}: the disk is away");
            return Err(RunError { kind, title, detail, class: FailureClass::Source, retry_after_seconds: None });
        }
        Ok(FILES.map(str::to_owned).into())
    }
}

pub(super) fn foresight() -> Foresight {
    Arc::new(|definition, scope| Box::pin(async move { sources::foresee(&definition, &scope, &Disk, |_| Some(1000)) }))
}

impl App {
    async fn plan(&self, key: Option<&str>, body: &Value) -> Answer {
        let mut request = json_request("/runs?dry_run=true", body.to_string());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn runs(&self) -> usize {
        self.store.list(&RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap().len()
    }
}

#[tokio::test]
async fn a_plan_says_what_would_be_replaced_read_and_waited_for() {
    let app = App::new().await;
    app.accepted("written", &months(&["2024-02"])).await;
    app.succeed(3).await;
    let held = app.accepted("held", &months(&["2024-03"])).await;
    let _held = app.claim().await;
    let waiting = app.accepted("waiting", &months(&["2024-03", "2024-05"])).await;
    app.accepted("disjoint", &months(&["2024-07"])).await;
    let before = app.runs().await;
    let answer = app.plan(Some("k"), &months(&["2024-03", "2024-02"])).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.header("idempotent-replayed"), None);
    let plan = answer.json();
    assert_eq!(plan["waits_for"], json!([{"id": held, "state": "running"}, {"id": waiting, "state": "queued"}]));
    insta::assert_json_snapshot!("plan", plan, {
        ".definition" => "[sha256]", ".waits_for[].id" => "[id]", ".partitions[].current.run_id" => "[id]",
    });
    assert_eq!(app.runs().await, before, "nothing was created");
    app.accepted("k", &months(&["2024-06"])).await;
}

#[tokio::test]
async fn a_plan_of_the_whole_table_has_what_stands() {
    let app = App::new().await;
    app.accepted("written", &months(&["2024-02", "2024-03"])).await;
    app.succeed(3).await;
    let waiting = app.accepted("waiting", &months(&["2024-09"])).await;
    let plan = app.plan(None, &json!({"pipeline": "monthly", "mode": "full"})).await.json();
    let would = |n: usize| (plan["partitions"][n]["partition"].clone(), plan["partitions"][n]["would"].clone());
    assert_eq!(would(0), (json!("month=2024-02"), json!("replace_or_remove")));
    assert_eq!(would(1), (json!("month=2024-03"), json!("replace_or_remove")));
    assert_eq!(plan["waits_for"], json!([{"id": waiting, "state": "queued"}]), "it overlaps everything");
    assert_eq!((&plan["sources"]["bytes"], &plan["sources"]["missing"]), (&json!(3000), &json!([])));
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_said_and_the_rest_is_planned() {
    let app = App::new().await;
    let body = json!({"pipeline": "hourly", "partitions": ["date=2024-02-28/hour=23"]});
    let plan = app.plan(None, &body).await.json();
    assert_eq!(plan["sources"]["error"]["type"], "urn:refrain:problem:source-unreachable", "{plan}");
    assert_eq!(plan["partitions"][0]["would"], "create_or_empty");
}

#[tokio::test]
async fn a_known_key_gets_the_answer_of_a_submission_and_nothing_is_done() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    app.fail(None).await;
    let mut again = months(&["2024-02"]);
    again["if_failed"] = json!("retry");
    let replayed = app.plan(Some("k"), &again).await;
    assert_eq!((replayed.status, replayed.header("idempotent-replayed")), (StatusCode::OK, Some("true")));
    assert_eq!(
        (&replayed.json()["id"], &replayed.json()["state"]),
        (&json!(id), &json!("failed")),
        "it is not retried"
    );
    app.plan(Some("k"), &months(&["2024-03"])).await.problem(422, "idempotency-key-reused");
    app.plan(Some("two words"), &months(&["2024-03"])).await.problem(400, "idempotency-key-invalid");
}

#[rstest]
#[case(json!({"pipeline": "monthly", "partitions": ["2024-13"]}), 422, "invalid-request")]
#[case(json!({"pipeline": "nope", "partitions": ["2024-02"]}), 422, "unknown-pipeline")]
#[case(json!({"pipeline": "monthly", "partitions": ["2024-02"], "on_overlap": "refuse"}), 409, "overlapping-runs")]
#[tokio::test]
async fn what_a_submission_would_be_refused_for_a_plan_is_too(
    #[case] body: Value,
    #[case] status: u16,
    #[case] problem: &str,
) {
    let app = App::new().await;
    app.accepted("in-the-way", &months(&["2024-02"])).await;
    app.plan(Some("k"), &body).await.problem(status, problem);
    assert_eq!(app.runs().await, 1);
}

#[tokio::test]
async fn a_dry_run_is_asked_for_by_true_or_false() {
    let app = App::new().await;
    let body = months(&["2024-02"]).to_string();
    let ask = async |value: &str| {
        let request = json_request(&format!("/runs?dry_run={value}"), body.clone()).header("idempotency-key", "k");
        app.send(request.body(Body::from(body.clone())).unwrap()).await
    };
    assert_eq!(ask("yes").await.problem(400, "invalid-parameter")["parameter"], "dry_run");
    assert_eq!(ask("false").await.status, StatusCode::ACCEPTED);
}
