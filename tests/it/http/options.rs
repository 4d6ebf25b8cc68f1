//! The options of a submission: labels, preconditions, a time limit.

use super::{App, MONTHLY, months};
use axum::http::StatusCode;
use rstest::rstest;
use serde_json::{Value, json};

/// A request for these months with one more field.
fn with(partitions: &[&str], field: &str, value: Value) -> Value {
    let mut body = months(partitions);
    body[field] = value;
    body
}

fn ids(listed: &Value) -> Vec<&str> {
    listed["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn runs_are_found_by_their_labels_and_keys() {
    let app = App::new().await;
    let labels = |dag: &str| json!({"dag": dag, "team": "a:b c"});
    let one = app.accepted("one", &with(&["2024-01"], "labels", labels("x"))).await;
    let two = app.accepted("two", &with(&["2024-02"], "labels", labels("y"))).await;
    app.accepted("three", &months(&["2024-03"])).await;
    let list = async |query: &str| app.get(&format!("/runs?{query}")).await.json();
    assert_eq!(ids(&list("label=team:a:b%20c").await), [&two, &one]);
    assert_eq!(ids(&list("label=team:a:b%20c&label=dag:x").await), [&one]);
    assert_eq!(ids(&list("label=dag:x&label=dag:y").await), [""; 0]);
    assert_eq!(ids(&list("label=team:a").await), [""; 0], "texts are compared whole");
    assert_eq!(ids(&list("label=team:a:b%20c&partition=month=2024-02&pipeline=monthly").await), [&two]);
    let page = list("label=team:a:b%20c&limit=1").await;
    assert_eq!(ids(&page), [&two]);
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(ids(&list(&format!("label=team:a:b%20c&limit=1&cursor={cursor}")).await), [&one]);
    let by_key = list("idempotency_key=one").await;
    assert_eq!((ids(&by_key), &by_key["runs"][0]["labels"]), (vec![one.as_str()], &labels("x")));
    assert_eq!(ids(&list("idempotency_key=one&state=failed").await), [""; 0]);
    assert_eq!(app.get(&format!("/runs/{one}")).await.json()["labels"], labels("x"));
    for (query, parameter) in
        [("label=x", "label"), ("idempotency_key=", "idempotency_key"), ("state=a&state=b", "state")]
    {
        let refused = app.get(&format!("/runs?{query}")).await.problem(400, "invalid-parameter");
        assert_eq!(refused["parameter"], parameter);
    }
}

#[rstest]
#[case("labels", json!({"a:b": "c"}), "/labels/a:b")]
#[case("labels", json!({"": "c"}), "/labels/")]
#[case("labels", json!({"a": "b\n"}), "/labels/a")]
#[case("labels", json!({"a": "b".repeat(256)}), "/labels/a")]
#[case("labels", json!({"a": 1}), "/labels/a")]
#[case("labels", (0..21).map(|n| (n.to_string(), json!(""))).collect::<serde_json::Map<_, _>>().into(), "/labels")]
#[case("if_current", json!({"2024-02": "abc"}), "/if_current/2024-02")]
#[case("if_current", json!({"2024-03": null}), "/if_current/2024-03")]
#[case("if_current", json!({"nonsense": null}), "/if_current/nonsense")]
#[case("if_current", json!({"2024-02": null, "month=2024-02": "a".repeat(64)}), "/if_current/month=2024-02")]
#[case("timeout_seconds", json!(0), "/timeout_seconds")]
#[case("timeout_seconds", json!(1.5), "/timeout_seconds")]
#[case("not_before", json!("2024-03-01T06:00:00"), "/not_before")]
#[case("not_before", json!("tomorrow"), "/not_before")]
#[case("not_before", json!("2999-01-01T00:00:00Z"), "/not_before")]
#[case("not_before", json!(1_709_251_200), "/not_before")]
#[case("priority", json!(101), "/priority")]
#[case("priority", json!(-101), "/priority")]
#[case("priority", json!(0.5), "/priority")]
#[case("if_attempt", json!(1), "/if_attempt")]
#[tokio::test]
async fn options_that_make_no_sense_are_refused(#[case] field: &str, #[case] value: Value, #[case] pointer: &str) {
    let app = App::new().await;
    let (found, detail) = app.submit("k", &with(&["2024-02"], field, value)).await.field();
    assert_eq!(found, pointer, "{detail}");
    app.accepted("k", &months(&["2024-02"])).await;
}

#[rstest]
#[case("labels", json!({"team": "a"}), json!({"team": "b"}))]
#[case("if_current", json!({"2024-02": null}), json!({}))]
#[case("timeout_seconds", json!(60), json!(61))]
#[case("not_before", json!("2024-03-02T00:00:00Z"), json!("2024-03-02T00:00:00.000001Z"))]
#[case("priority", json!(5), json!(-5))]
#[tokio::test]
async fn an_option_is_part_of_the_request(#[case] field: &str, #[case] value: Value, #[case] other: Value) {
    let mut app = App::new().await;
    let asked = with(&["2024-02"], field, value);
    let id = app.accepted("k", &asked).await;
    app.reload(&[&MONTHLY.replace("month_of", "day_of")]);
    let again = app.submit("k", &asked).await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::OK, &json!(id)), "{again:?}");
    for different in [with(&["2024-02"], field, other), months(&["2024-02"])] {
        let refused = app.submit("k", &different).await.problem(422, "idempotency-key-reused");
        assert_eq!(refused["fields"], json!([field]));
    }
    let plain = app.accepted("plain", &json!({"pipeline": "monthly", "partitions": ["2024-02-01"]})).await;
    let mut explicit = json!({"pipeline": "monthly", "partitions": ["2024-02-01"], "labels": {}, "if_current": {}});
    explicit["timeout_seconds"] = Value::Null;
    explicit["not_before"] = Value::Null;
    explicit["priority"] = json!(0);
    assert_eq!(app.submit("plain", &explicit).await.json()["id"], plain, "defaults make no difference");
}

#[tokio::test]
async fn what_is_not_as_expected_is_not_replaced() {
    let app = App::new().await;
    let nothing = with(&["2024-02"], "if_current", json!({"2024-02": null}));
    let first = app.accepted("first", &nothing).await;
    app.succeed(3).await;
    let current = app.get("/pipelines/monthly/partitions").await.json()["partitions"][0].clone();
    for (name, path) in [("submitted", "/runs"), ("planned", "/runs?dry_run=true")] {
        let mut body = nothing.clone();
        body["idempotency_key"] = json!("second");
        let refused = app.post(path, &body).await.problem(409, "precondition-failed");
        let found = json!({"sha256": current["sha256"], "run_id": first});
        let expected = json!([{"partition": "month=2024-02", "expected": null, "found": found}]);
        assert_eq!(refused["partitions"], expected, "{name}");
    }
    assert_eq!(app.submit("first", &nothing).await.status, StatusCode::OK, "a replay is not judged again");
    let by_run = app.accepted("second", &with(&["2024-02"], "if_current", json!({"2024-02": first}))).await;
    let by_file = app.accepted("third", &with(&["2024-02"], "if_current", json!({"2024-02": current["sha256"]}))).await;
    app.succeed(4).await;
    let shown = app.get(&format!("/runs/{by_run}")).await.json();
    assert_eq!((&shown["state"], &shown["if_current"]), (&json!("succeeded"), &json!({"month=2024-02": first})));
    // What the worker of the third run does when it is told so is in `service::options`.
    let claimed = app.claim().await;
    assert_eq!(claimed.run.id.to_string(), by_file);
    app.decide(&claimed, 5).await;
    assert_eq!(app.get(&format!("/runs/{by_file}")).await.json()["state"], "running", "nothing was decided");
    let refused = app.submit("fourth", &with(&["2024-02"], "if_current", json!({"2024-02": first}))).await;
    assert_eq!(refused.problem(409, "precondition-failed")["partitions"][0]["found"]["run_id"], by_run);
}

#[tokio::test]
async fn a_time_to_begin_is_shown_and_means_the_moment() {
    let app = App::new().await;
    let id = app.accepted("k", &with(&["2024-02"], "not_before", json!("2024-03-02T01:00:00+01:00"))).await;
    let same = app.submit("k", &with(&["2024-02"], "not_before", json!("2024-03-02T00:00:00Z"))).await;
    assert_eq!((same.status, &same.json()["id"]), (StatusCode::OK, &json!(id)), "{same:?}");
    let listed = app.get("/runs").await.json();
    for shown in [&same.json(), &listed["runs"][0]] {
        assert_eq!((&shown["not_before"], &shown["priority"]), (&json!("2024-03-02T00:00:00Z"), &json!(0)), "{shown}");
    }
    // It is in nobody's way yet, so no plan has it.
    let plan = async |body: Value| app.post("/runs?dry_run=true", &body).await.json();
    assert_eq!(plan(months(&["2024-02"])).await["waits_for"], json!([]));
    *app.clock.lock().unwrap() += chrono::TimeDelta::days(1);
    assert_eq!(plan(months(&["2024-02"])).await["waits_for"], json!([{"id": id, "state": "queued"}]));
    let planned = plan(with(&["2024-03"], "not_before", json!("2024-05-01T00:00:00Z"))).await;
    assert_eq!(planned["not_before"], "2024-05-01T00:00:00Z");
    let mut both = with(&["2024-02"], "not_before", json!("2024-05-01T00:00:00Z"));
    both["on_overlap"] = json!("refuse");
    assert_eq!(app.submit("both", &both).await.field().0, "/not_before");
}

#[tokio::test]
async fn a_retry_with_a_submission_is_for_the_attempt_that_was_seen() {
    let app = App::new().await;
    let mut asked = months(&["2024-02"]);
    let id = app.accepted("k", &asked).await;
    app.fail(None).await;
    asked["if_failed"] = json!("retry");
    let state = async |body: &Value| app.submit("k", body).await.json()["state"].clone();
    asked["if_attempt"] = json!(2);
    assert_eq!(state(&asked).await, "failed", "its last attempt was the first");
    asked["if_attempt"] = json!(1);
    assert_eq!(state(&asked).await, "queued");
    app.fail(None).await;
    let again = app.submit("k", &asked).await;
    assert_eq!((again.status, again.json()["id"].as_str()), (StatusCode::OK, Some(id.as_str())));
    assert_eq!(again.json()["state"], "failed", "the same request again retries nothing twice");
    asked["if_attempt"] = Value::Null;
    assert_eq!(state(&asked).await, "queued");
}
