//! Looking at runs, waiting for them, listing, cancelling and retrying them.

use super::{App, json_request, months};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use refrain::http::Limits;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_run_is_shown_from_its_queue_to_its_end() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-01", "2024-02"])).await;
    app.succeed(3).await;
    let path = format!("/runs/{id}");
    insta::assert_json_snapshot!("succeeded_run", app.get(&path).await.json(), {
        ".id" => "[id]", ".definition" => "[sha256]",
    });
    let second = app.accepted("k2", &months(&["2024-02"])).await;
    app.succeed(5).await;
    let run = app.get(&format!("/runs/{second}")).await.json();
    assert_eq!(run["partitions"][0]["outcome"], "replaced");
    assert_eq!(run["partitions"][0]["previous"]["totals"], json!({"trips": 3, "revenue": "4.50", "mean": 1.5}));
    assert_eq!(run["partitions"][0]["previous"]["run_id"], json!(id));
    let third = app.accepted("k3", &months(&["2024-02"])).await;
    app.succeed(0).await;
    let cleared = app.get(&format!("/runs/{third}")).await.json()["partitions"][0].clone();
    assert_eq!(cleared["outcome"], "cleared");
    assert!(cleared.get("rows").is_none() && cleared["previous"]["rows"] == 5, "{cleared}");
}

#[tokio::test]
async fn a_run_that_waits_for_a_retry_says_why_and_until_when() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    assert!(app.get(&format!("/runs/{id}")).await.json().get("due_at").is_none());
    app.fail(Some(Duration::from_secs(30))).await;
    insta::assert_json_snapshot!("run_waiting_for_a_retry", app.get(&format!("/runs/{id}")).await.json(), {
        ".id" => "[id]", ".definition" => "[sha256]",
    });
}

#[tokio::test]
async fn a_known_answer_is_not_sent_again() {
    let app = App::new().await;
    let path = format!("/runs/{}", app.accepted("k", &months(&["2024-02"])).await);
    let first = app.get(&path).await;
    let tag = first.header("etag").unwrap().to_owned();
    let same = app.get_if_changed(&path, &format!("\"x\", W/{tag}")).await;
    assert_eq!((same.status, same.body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(same.header("etag"), Some(format!("W/{tag}").as_str()), "as the client has it");
    assert_eq!(same.header("retry-after"), Some("1"));
    app.succeed(3).await;
    let changed = app.get_if_changed(&path, &tag).await;
    assert_eq!(changed.status, StatusCode::OK);
    assert_ne!(changed.header("etag"), Some(tag.as_str()));
}

#[tokio::test]
async fn a_wait_ends_with_the_run() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let path = format!("/runs/{id}?wait=30");
    let start = Instant::now();
    let (waited, ()) = tokio::join!(app.get(&path), app.succeed(3));
    assert_eq!(waited.json()["state"], "succeeded");
    assert!(start.elapsed() < Duration::from_secs(20), "it did not wait for its whole time");
}

#[tokio::test]
async fn a_wait_ends_with_its_time() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let start = Instant::now();
    let waited = app.get(&format!("/runs/{id}?wait=0.3")).await;
    assert_eq!(waited.json()["state"], "queued");
    assert!(start.elapsed() >= Duration::from_millis(300));
    let preferred = Request::get(format!("/runs/{id}")).header("prefer", "wait=0").body(Body::empty()).unwrap();
    let preferred = app.send(preferred).await;
    assert_eq!(preferred.header("preference-applied"), Some("wait=0"));
}

#[tokio::test]
async fn a_wait_ends_with_the_service() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let path = format!("/runs/{id}?wait=30");
    let (waited, ()) = tokio::join!(app.get(&path), async { app.api.shutdown.cancel() });
    assert_eq!((waited.status, &waited.json()["state"]), (StatusCode::OK, &json!("queued")));
}

#[tokio::test]
async fn a_wait_has_bounds() {
    let app = App::with(Limits { max_wait_seconds: 1, ..Limits::default() }, &[super::MONTHLY]).await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let path = format!("/runs/{id}");
    let start = Instant::now();
    let preferred = Request::get(&path).header("prefer", "wait=600").body(Body::empty()).unwrap();
    let longer = format!("{path}?wait=1e300");
    let (longer, preferred) = tokio::join!(app.get(&longer), app.send(preferred));
    assert!((Duration::from_secs(1)..Duration::from_secs(20)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!((&longer.json()["state"], &preferred.json()["state"]), (&json!("queued"), &json!("queued")));
    assert_eq!(preferred.header("preference-applied"), Some("wait=1"), "either is cut to the limit");
    for bad in ["-1", "NaN", "inf", "1e999", "soon", ""] {
        let problem = app.get(&format!("/runs/{id}?wait={bad}")).await.problem(400, "invalid-parameter");
        assert_eq!(problem["parameter"], "wait", "{bad}");
    }
    app.get(&format!("/runs/{id}?waits=1")).await.problem(400, "invalid-parameter");
    app.get(&format!("/runs/{id}?wait=0&wait=0")).await.problem(400, "invalid-parameter");
}

#[tokio::test]
async fn what_is_no_run_is_not_found() {
    let app = App::new().await;
    for id in ["0199-nope", "01990000-0000-7000-8000-000000000000", "%20"] {
        app.get(&format!("/runs/{id}")).await.problem(404, "run-not-found");
        for verb in ["cancel", "retry"] {
            app.post(&format!("/runs/{id}/{verb}"), &json!({})).await.problem(404, "run-not-found");
        }
    }
}

#[tokio::test]
async fn runs_are_listed_newest_first_and_page_by_page() {
    let app = App::new().await;
    let mut ids = Vec::new();
    for n in 1..=5 {
        ids.insert(0, app.accepted(&format!("k{n}"), &months(&[&format!("2024-0{n}")])).await);
    }
    let mut listed = Vec::new();
    let mut path = "/runs?limit=2".to_owned();
    loop {
        let page = app.get(&path).await.json();
        let runs = page["runs"].as_array().unwrap();
        assert!(runs.len() <= 2);
        listed.extend(runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/runs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(listed, ids);
    assert_eq!(app.get("/runs?limit=5").await.json()["next_cursor"], Value::Null, "a full last page is the last");
}

#[tokio::test]
async fn runs_are_found_by_what_they_are() {
    let app = App::new().await;
    let first = app.accepted("k1", &months(&["2024-01", "2024-02"])).await;
    app.succeed(3).await;
    *app.clock.lock().unwrap() += chrono::Duration::hours(1);
    let second = app.accepted("k2", &json!({"pipeline": "by_kind", "partitions": ["a=b"]})).await;
    let cases = [
        ("pipeline=monthly", vec![&first]),
        ("pipeline=unheard_of", vec![]),
        ("state=queued", vec![&second]),
        ("state=succeeded", vec![&first]),
        ("partition=month%3D2024-02", vec![&first]),
        ("partition=2024-02&pipeline=monthly", vec![&first]),
        ("partition=month%3D2024-03", vec![]),
        ("partition=kind%3Da%253Db", vec![&second]),
        ("created_after=2024-03-01T06:30:00Z", vec![&second]),
        ("created_before=2024-03-01T07:30:00%2B01:00&created_after=2024-03-01T05:00:00Z", vec![&first]),
        ("", vec![&second, &first]),
    ];
    for (query, expected) in cases {
        let answer = app.get(&format!("/runs?{query}")).await;
        let found = answer.json();
        let found: Vec<&Value> = found["runs"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
        assert_eq!(json!(found), json!(expected), "{query}");
    }
    let listed = app.get("/runs").await.json();
    insta::assert_json_snapshot!("run_list", listed, {".runs[].id" => "[id]"});
}

#[tokio::test]
async fn a_filter_that_cannot_be_is_refused() {
    let app = App::with(Limits { max_page: 10, ..Limits::default() }, &[super::MONTHLY]).await;
    let cases = [
        ("colour=red", "colour"),
        ("state=done", "state"),
        ("limit=0", "limit"),
        ("limit=11", "limit"),
        ("limit=ten", "limit"),
        ("cursor=zz", "cursor"),
        ("cursor=abab", "cursor"),
        ("created_after=yesterday", "created_after"),
        ("partition=2024-02", "partition"),
        ("partition=month%3D%00", "partition"),
        ("pipeline=%00", "pipeline"),
        ("partition=2024-13&pipeline=monthly", "partition"),
    ];
    for (query, parameter) in cases {
        let problem = app.get(&format!("/runs?{query}")).await.problem(400, "invalid-parameter");
        assert_eq!(problem["parameter"], parameter, "{query}");
    }
}

#[tokio::test]
async fn a_queued_run_is_cancelled_at_once_and_can_be_retried() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let (cancel, retry) = (format!("/runs/{id}/cancel"), format!("/runs/{id}/retry"));
    app.post(&retry, &json!({})).await.problem(409, "invalid-state");
    let cancelled = app.send(Request::post(&cancel).body(Body::empty()).unwrap()).await;
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (StatusCode::OK, &json!("cancelled")));
    assert_eq!(app.post(&cancel, &json!({})).await.status, StatusCode::OK, "cancelling twice is cancelling once");
    let queued = app.send(Request::post(&retry).body(Body::empty()).unwrap()).await;
    assert_eq!((queued.status, &queued.json()["state"]), (StatusCode::ACCEPTED, &json!("queued")));
    assert_eq!(queued.header("location"), Some(format!("/runs/{id}").as_str()));
}

#[tokio::test]
async fn a_running_run_is_asked_to_stop_and_a_committing_one_is_not() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let cancel = format!("/runs/{id}/cancel");
    let claimed = app.claim().await;
    let asked = app.post(&cancel, &json!({})).await;
    assert_eq!(asked.status, StatusCode::ACCEPTED);
    assert_eq!((&asked.json()["state"], &asked.json()["cancel_requested"]), (&json!("running"), &json!(true)));
    drop(claimed);

    let other = app.accepted("k2", &months(&["2024-03"])).await;
    let claimed = app.claim().await;
    app.decide(&claimed, 3).await;
    let problem = app.post(&format!("/runs/{other}/cancel"), &json!({})).await.problem(409, "invalid-state");
    assert_eq!((&problem["state"], &problem["run_id"]), (&json!("committing"), &json!(other)));
}

#[tokio::test]
async fn a_retry_may_be_bound_to_the_last_attempt() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let retry = format!("/runs/{id}/retry");
    app.fail(None).await;
    app.post(&retry, &json!({"if_attempt": 2})).await.problem(409, "invalid-state");
    let bound = json!({"if_attempt": 1});
    assert_eq!(app.post(&retry, &bound).await.status, StatusCode::ACCEPTED);
    app.fail(None).await;
    app.post(&retry, &bound).await.problem(409, "invalid-state");
    assert_eq!(app.post(&retry, &json!({"if_attempt": null})).await.status, StatusCode::ACCEPTED);
    app.succeed(3).await;
    app.post(&retry, &json!({})).await.problem(409, "invalid-state");
}

#[tokio::test]
async fn the_bodies_of_changes_are_checked_too() {
    let app = App::new().await;
    let id = app.accepted("k", &months(&["2024-02"])).await;
    let (pointer, _) = app.post(&format!("/runs/{id}/cancel"), &json!({"force": true})).await.field();
    assert_eq!(pointer, "/force");
    let (pointer, _) = app.post(&format!("/runs/{id}/retry"), &json!({"if_attempt": "1"})).await.field();
    assert_eq!(pointer, "/if_attempt");
    let broken = json_request(&format!("/runs/{id}/retry"), "{".to_owned()).body(Body::from("{")).unwrap();
    app.send(broken).await.problem(400, "not-json");
    for path in ["cancel?force=1", "retry?if_attempt=1"] {
        app.post(&format!("/runs/{id}/{path}"), &json!({})).await.problem(400, "invalid-parameter");
    }
    assert_eq!(app.get(&format!("/runs/{id}")).await.json()["state"], "queued");
}
