//! `POST /runs`.

use super::{App, BY_KIND, HOURLY, MONTHLY, json_request, months};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::future::join_all;
use refrain::http::Limits;
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test]
async fn a_new_request_is_accepted_and_its_repeat_gives_the_same_run() {
    let app = App::new().await;
    let first = app.submit("k", &months(&["2024-02", "month=2024-01"])).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    let run = first.json();
    let id = run["id"].as_str().unwrap();
    assert_eq!(first.header("location"), Some(format!("/runs/{id}").as_str()));
    assert_eq!(first.header("retry-after"), Some("1"));
    assert_eq!(first.header("idempotent-replayed"), None);
    assert!(first.header("etag").is_some());
    insta::assert_json_snapshot!("accepted_run", run, {".id" => "[id]", ".definition" => "[sha256]"});

    // Field order, partition order, repeats, explicit defaults and nulls, and quotes make no difference.
    let same = json!({"if_failed": "return", "mode": "overwrite", "on_overlap": "wait", "idempotency_key": null, "pipeline": "monthly",
        "partitions": [{"month": "2024-01"}, "2024-02", {"from": "2024-01", "to": "2024-02"}]});
    let again = app.submit("\"k\"", &same).await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json(), run);
}

#[tokio::test]
async fn one_key_is_one_run_however_many_ask_at_once() {
    let app = App::new().await;
    let body = months(&["2024-01", "2024-02"]);
    let answers = join_all((0..64).map(|_| app.submit("storm", &body))).await;
    let accepted = answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count();
    let replayed = answers.iter().filter(|answer| answer.header("idempotent-replayed") == Some("true")).count();
    assert_eq!((accepted, replayed), (1, 63));
    let ids: BTreeSet<String> = answers.iter().map(|answer| answer.json()["id"].to_string()).collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn a_replay_shows_the_run_as_it_is_now_whatever_the_pipeline_says() {
    let mut app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    app.succeed(3).await;
    app.reload(&[HOURLY]);
    let again = app.submit("k", &months(&["2024-02"])).await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::OK, &json!(id)), "the pipeline is gone");
    assert_eq!(again.json()["state"], "succeeded");
    assert_eq!(again.header("retry-after"), None);
    app.reload(&[&MONTHLY.replace("month_of", "day_of")]);
    assert_eq!(app.submit("k", &months(&["2024-02"])).await.status, StatusCode::OK, "its columns are others");
    app.submit("new", &months(&["2024-02"])).await.problem(422, "invalid-request");
}

#[rstest]
#[case(months(&["2024-03"]), &["partitions"])]
#[case(months(&["nonsense"]), &["partitions"])]
#[case(json!({"pipeline": "monthly", "partitions": []}), &["partitions"])]
#[case(json!({"pipeline": "monthly", "mode": "full"}), &["mode", "partitions"])]
#[case(json!({"pipeline": "monthly", "mode": "append", "partitions": ["2024-02"]}), &["mode"])]
#[case(json!({"pipeline": "unheard_of", "partitions": ["2024-02"]}), &["pipeline"])]
#[case(json!({"pipeline": "monthly", "partitions": ["2024-02"], "on_overlap": "refuse"}), &["on_overlap"])]
#[tokio::test]
async fn another_request_under_a_known_key_is_refused(#[case] other: Value, #[case] fields: &[&str]) {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let body = app.submit("k", &other).await.problem(422, "idempotency-key-reused");
    assert_eq!((&body["run_id"], &body["fields"]), (&json!(id), &json!(fields)));
    assert_eq!(app.get("/runs").await.json()["runs"].as_array().unwrap().len(), 1, "nothing was accepted");
}

#[tokio::test]
async fn the_key_may_be_in_the_header_or_the_body() {
    let app = App::new().await;
    let with = |key: &str| json!({"pipeline": "monthly", "partitions": ["2024-02"], "idempotency_key": key});
    assert_eq!(app.post("/runs", &with("k")).await.status, StatusCode::ACCEPTED);
    assert_eq!(app.submit("k", &with("\"k\"")).await.status, StatusCode::OK);
    let body = app.submit("other", &with("k")).await.problem(400, "idempotency-key-invalid");
    assert!(body["detail"].as_str().unwrap().contains(r#""other""#), "{body}");
    app.post("/runs", &months(&["2024-02"])).await.problem(400, "idempotency-key-missing");
    let twice = json_request("/runs", with("k").to_string()).header("idempotency-key", "k");
    let twice = twice.header("idempotency-key", "k").body(Body::from(with("k").to_string())).unwrap();
    app.send(twice).await.problem(400, "idempotency-key-invalid");
}

#[rstest]
#[case("")]
#[case("\"\"")]
#[case("two words")]
#[case("caf\u{e9}")]
#[tokio::test]
async fn a_bad_key_is_refused(#[case] key: &str) {
    let app = App::new().await;
    app.submit(key, &months(&["2024-02"])).await.problem(400, "idempotency-key-invalid");
}

#[tokio::test]
async fn a_key_has_up_to_255_characters() {
    let app = App::new().await;
    app.submit(&"k".repeat(256), &months(&["2024-02"])).await.problem(400, "idempotency-key-invalid");
    app.accepted(&"k".repeat(255), &months(&["2024-02"])).await;
}

#[rstest]
#[case::empty(json!({"pipeline": "monthly", "partitions": []}), "/partitions")]
#[case::null(json!({"pipeline": "monthly", "partitions": null}), "/partitions")]
#[case::absent(json!({"pipeline": "monthly"}), "/partitions")]
#[case::text(json!({"pipeline": "monthly", "partitions": "2024-02"}), "/partitions")]
#[case::number(json!({"pipeline": "monthly", "partitions": ["2024-02", 2024]}), "/partitions/1")]
#[case::month_13(json!({"pipeline": "monthly", "partitions": ["2024-02", "2024-13"]}), "/partitions/1")]
#[case::other_column(json!({"pipeline": "monthly", "partitions": ["day=2024-02"]}), "/partitions/0")]
#[case::traversal(json!({"pipeline": "monthly", "partitions": ["month=../../x"]}), "/partitions/0")]
#[case::backwards(json!({"pipeline": "monthly", "partitions": [{"from": "2024-03", "to": "2024-01"}]}), "/partitions/0")]
#[case::half_a_range(json!({"pipeline": "monthly", "partitions": [{"from": "2024-03"}]}), "/partitions/0")]
#[case::range_field(
    json!({"pipeline": "monthly", "partitions": [{"from": "2024-01", "to": "2024-03", "by": "1"}]}), "/partitions/0/by"
)]
#[case::object_of_numbers(json!({"pipeline": "monthly", "partitions": [{"month": 2}]}), "/partitions/0/month")]
#[case::misspelt(json!({"pipeline": "monthly", "partitions": ["2024-02"], "partition": []}), "/partition")]
#[case::append(json!({"pipeline": "monthly", "partitions": ["2024-02"], "mode": "append"}), "/mode")]
#[case::mode(json!({"pipeline": "monthly", "partitions": ["2024-02"], "mode": "merge"}), "/mode")]
#[case::full_with_partitions(json!({"pipeline": "monthly", "mode": "full", "partitions": ["2024-02"]}), "/partitions")]
#[case::if_failed(json!({"pipeline": "monthly", "partitions": ["2024-02"], "if_failed": "ignore"}), "/if_failed")]
#[case::on_overlap(json!({"pipeline": "monthly", "partitions": ["2024-02"], "on_overlap": "skip"}), "/on_overlap")]
#[case::no_pipeline(json!({"partitions": ["2024-02"]}), "")]
#[case::pipeline_null(json!({"pipeline": null, "partitions": ["2024-02"]}), "/pipeline")]
#[case::two_columns(json!({"pipeline": "hourly", "partitions": ["2024-02-01"]}), "/partitions/0")]
#[case::list(json!([]), "")]
#[tokio::test]
async fn an_invalid_request_says_where_and_uses_up_nothing(#[case] body: Value, #[case] pointer: &str) {
    let app = App::new().await;
    let (found, detail) = app.submit("k", &body).await.field();
    assert_eq!(found, pointer, "{detail}");
    app.accepted("k", &months(&["2024-02"])).await;
}

#[tokio::test]
async fn all_that_is_wrong_with_the_fields_is_said_at_once() {
    let app = App::new().await;
    let body = json!({"pipeline": "monthly", "mode": "append", "partitions": ["2024-13", "2024-02", "24-02"]});
    let problem = app.submit("k", &body).await.problem(422, "invalid-request");
    let pointers: Vec<&Value> = problem["errors"].as_array().unwrap().iter().map(|e| &e["pointer"]).collect();
    assert_eq!(json!(pointers), json!(["/mode", "/partitions/0", "/partitions/2"]));
    insta::assert_json_snapshot!("invalid_request", problem);
}

#[tokio::test]
async fn an_unknown_pipeline_is_answered_with_those_that_there_are() {
    let app = App::new().await;
    let body = json!({"pipeline": "nope", "partitions": ["2024-02"]});
    let problem = app.submit("k", &body).await.problem(422, "unknown-pipeline");
    assert_eq!(problem["pipelines"], json!(["by_kind", "hourly", "monthly"]));
    assert_eq!(problem["errors"][0]["pointer"], "/pipeline");
    app.accepted("k", &months(&["2024-02"])).await;
}

#[tokio::test]
async fn partitions_of_several_columns_are_objects_or_canonical() {
    let app = App::new().await;
    let both = json!([{"date": "2024-02-29", "hour": "05"}, "date=2024-02-28/hour=23"]);
    let answer = app.submit("k", &json!({"pipeline": "hourly", "partitions": both})).await;
    let names: Vec<Value> =
        answer.json()["partitions"].as_array().unwrap().iter().map(|p| p["partition"].clone()).collect();
    assert_eq!(json!(names), json!(["date=2024-02-28/hour=23", "date=2024-02-29/hour=05"]));
}

#[tokio::test]
async fn a_run_names_a_limited_number_of_partitions() {
    let limits = Limits { max_partitions_per_run: 3, ..Limits::default() };
    let app = App::with(limits, &[MONTHLY]).await;
    let range = |to: &str| json!({"pipeline": "monthly", "partitions": [{"from": "2024-01", "to": to}]});
    app.submit("k", &range("2024-04")).await.field();
    app.submit("k", &months(&["2024-01", "2024-02", "2024-03", "2024-04"])).await.field();
    app.accepted("k", &range("2024-03")).await;
    let repeated = app.submit("k", &months(&["2024-01", "2024-02", "2024-01", "2024-03", "2024-03"])).await;
    assert_eq!(repeated.status, StatusCode::OK, "repeats make no difference: {repeated:?}");
}

#[tokio::test]
async fn a_request_that_is_not_to_wait_is_refused_and_uses_up_nothing() {
    let app = App::new().await;
    let first = app.accepted("first", &months(&["2024-02"])).await;
    let mut body = months(&["2024-02", "2024-03"]);
    body["on_overlap"] = json!("refuse");
    for _ in 0..2 {
        let problem = app.submit("k", &body).await.problem(409, "overlapping-runs");
        assert_eq!(problem["run_ids"], json!([first]));
    }
    app.fail(None).await;
    let run = app.submit("k", &body).await;
    assert_eq!(run.status, StatusCode::ACCEPTED, "{run:?}");
    assert_eq!(app.submit("k", &body).await.json()["id"], run.json()["id"], "its own run is not in its way");
}

#[tokio::test]
async fn a_failed_run_is_given_back_or_queued_again() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    app.fail(None).await;
    let given_back = app.submit("k", &months(&["2024-02"])).await;
    assert_eq!(given_back.json()["state"], "failed");
    let mut retry = months(&["2024-02"]);
    retry["if_failed"] = json!("retry");
    let again = app.submit("k", &retry).await;
    assert_eq!((again.status, &again.json()["state"]), (StatusCode::OK, &json!("queued")), "{again:?}");
    assert_eq!((&again.json()["id"], again.header("idempotent-replayed")), (&json!(id), Some("true")));
    let queued = app.submit("k", &retry).await;
    assert_eq!(queued.json(), again.json(), "one retry, however often it is sent");
    app.succeed(3).await;
    assert_eq!(app.submit("k", &retry).await.json()["state"], "succeeded");
}

#[tokio::test]
async fn a_failed_run_is_not_queued_again_for_partitions_that_the_pipeline_no_longer_has() {
    let mut app = App::new().await;
    app.accepted("k", &months(&["2024-02"])).await;
    app.fail(None).await;
    let mut retry = months(&["2024-02"]);
    retry["if_failed"] = json!("retry");
    app.reload(&[&MONTHLY.replace("month_of", "day_of")]);
    app.submit("k", &retry).await.problem(409, "definition-changed");
    app.reload(&[BY_KIND]);
    app.submit("k", &retry).await.problem(409, "definition-changed");
    app.reload(&[&MONTHLY.replace("sum(amount)", "min(amount)")]);
    assert_eq!(app.submit("k", &retry).await.json()["state"], "queued");
}

#[rstest]
#[case("")]
#[case("{not json")]
#[case(r#"{"pipeline": "monthly""#)]
#[case(r#"{"nope": 1, "#)]
#[case("{} trailing")]
#[tokio::test]
async fn what_is_not_json_is_a_bad_request(#[case] text: &'static str) {
    let app = App::new().await;
    let request = json_request("/runs", text.to_owned()).header("idempotency-key", "k").body(Body::from(text));
    app.send(request.unwrap()).await.problem(400, "not-json");
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_refused() {
    let app = App::new().await;
    let texts = [
        (r#"{"pipeline": "monthly", "partitions": ["2024-02"], "partitions": ["2024-03"]}"#, ""),
        (r#"{"pipeline": "monthly", "partitions": [{"month": "2024-02", "month": "2024-03"}]}"#, "/partitions/0"),
    ];
    for (text, pointer) in texts {
        let request = json_request("/runs", text.to_owned()).header("idempotency-key", "k").body(Body::from(text));
        let (found, detail) = app.send(request.unwrap()).await.field();
        assert!(found.starts_with(pointer) && detail.starts_with("duplicate field"), "{found} {detail}");
    }
}

#[rstest]
#[case(None)]
#[case(Some("text/plain"))]
#[case(Some("application/x-www-form-urlencoded"))]
#[tokio::test]
async fn a_body_that_is_not_declared_as_json_is_refused(#[case] kind: Option<&str>) {
    let app = App::new().await;
    let mut request = Request::post("/runs").header("idempotency-key", "k");
    if let Some(kind) = kind {
        request = request.header("content-type", kind);
    }
    let body = Body::from(months(&["2024-02"]).to_string());
    app.send(request.body(body).unwrap()).await.problem(415, "unsupported-media-type");
}
