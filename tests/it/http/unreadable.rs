//! Runs of which what is kept cannot be read: they are named, and others are served beside them.

use super::{Answer, App, months};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use refrain::access::TokenScope;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::time::Duration;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

impl App {
    /// Puts something else into a column of the run of a key.
    async fn spoil(&self, key: &str, column: &str, text: &str) {
        let options = SqliteConnectOptions::new().filename(self.folder.path().join("db"));
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let spoil = AssertSqlSafe(format!("update runs set {column} = ?1 where idempotency_key = ?2"));
        sqlx::query(spoil).bind(text).bind(key).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}

/// Checks that the answer names the run, where it is, and the column.
#[track_caller]
fn named(answer: &Answer, id: &str, state: &str, column: &str) {
    let problem = answer.problem(500, "run-unreadable");
    assert_eq!(
        (&problem["run_id"], &problem["state"], &problem["pipeline"]),
        (&json!(id), &json!(state), &json!("monthly"))
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(id) && detail.contains(&format!("column \"{column}\"")), "{detail}");
}

async fn listed(app: &App, path: &str) -> Vec<Value> {
    app.get(path).await.json()["runs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_run_that_cannot_be_read_is_named_and_hides_no_other() {
    let app = App::new().await;
    let id = app.accepted("spoilt", &months(&["2024-02"])).await;
    app.fail(None).await;
    app.accepted("good", &months(&["2024-03"])).await;
    // As a file that was damaged has it.
    app.spoil("spoilt", "sources", "[{\"path\": \"tri").await;
    for path in [format!("/runs/{id}"), format!("/runs/{id}?wait=30")] {
        let answer = app.get(&path).await;
        named(&answer, &id, "failed", "sources");
        assert_eq!(answer.json()["attempt"], 1);
    }
    named(&app.submit("spoilt", &months(&["2024-02"])).await, &id, "failed", "sources");
    app.submit("spoilt", &months(&["2024-01"])).await.problem(422, "idempotency-key-reused");
    app.post(&format!("/runs/{id}/cancel"), &json!({})).await.problem(409, "invalid-state");

    app.spoil("spoilt", "error", "{}").await;
    let runs = listed(&app, "/runs").await;
    assert_eq!((runs.len(), &runs[1]["state"]), (2, &json!("failed")));
    assert_eq!(runs[1]["error"]["type"], "urn:refrain:problem:run-unreadable", "{runs:#?}");
    let followed = app.send(Request::get(format!("/runs/{id}/events")).body(Body::empty()).unwrap());
    let events = tokio::time::timeout(SOON, followed).await.unwrap_or_else(|_| panic!("the stream does not end"));
    assert_eq!(events.status, StatusCode::OK);
    let told = String::from_utf8(events.body).unwrap();
    let (state, end) = told.split_once("event: end\n").unwrap();
    assert!(state.contains("\"state\":\"failed\"") && state.contains("run-unreadable"), "{told}");
    assert!(end.contains("urn:refrain:problem:run-unreadable") && end.contains("\"state\":\"failed\""), "{told}");
}

#[tokio::test]
async fn a_retry_makes_anew_what_an_attempt_has_left() {
    let app = App::new().await;
    for (key, column) in [("first", "sources"), ("second", "warnings"), ("third", "rows")] {
        let id = app.accepted(key, &months(&["2024-02"])).await;
        app.fail(None).await;
        app.spoil(key, column, "7").await;
        named(&app.get(&format!("/runs/{id}")).await, &id, "failed", column);
        let retried = match key {
            "first" => app.post(&format!("/runs/{id}/retry"), &json!({"if_attempt": 1})).await,
            _ => {
                let mut again = months(&["2024-02"]);
                again["if_failed"] = json!("retry");
                app.submit(key, &again).await
            }
        };
        assert_eq!((retried.status.is_success(), &retried.json()["state"]), (true, &json!("queued")), "{retried:?}");
        app.succeed(3).await;
        assert_eq!(app.get(&format!("/runs/{id}")).await.json()["state"], "succeeded");
    }
}

#[tokio::test]
async fn what_was_asked_cannot_be_read() {
    let app = App::new().await;
    let id = app.accepted("spoilt", &months(&["2024-02"])).await;
    app.fail(None).await;
    app.spoil("spoilt", "asked", "{}").await;
    let again = months(&["2024-02"]);
    named(&app.submit("spoilt", &again).await, &id, "failed", "asked");
    named(&app.post(&format!("/runs/{id}/retry"), &json!({})).await, &id, "failed", "asked");
    assert_eq!(listed(&app, "/runs?idempotency_key=spoilt").await.len(), 1);

    // Nothing is told of it to who does not see its pipeline.
    let all = app.token("default", TokenScope::Run, &[]).await;
    let some = app.token("default", TokenScope::Run, &["hourly"]).await;
    app.until(None, 401).await;
    named(&app.get_as(&all, &format!("/runs/{id}")).await, &id, "failed", "asked");
    for path in ["", "?wait=30", "/events"] {
        app.get_as(&some, &format!("/runs/{id}{path}")).await.problem(404, "run-not-found");
    }
    let hourly = json!({"pipeline": "hourly", "mode": "full"});
    let hidden = app.submit_as(&some, "spoilt", &hourly).await.problem(422, "idempotency-key-reused");
    assert!(!hidden.to_string().contains(&id) && !hidden.to_string().contains("monthly"), "{hidden}");
}

#[tokio::test]
async fn a_run_that_waits_and_cannot_be_read_is_cancelled_all_the_same() {
    let app = App::new().await;
    let id = app.accepted("spoilt", &months(&["2024-02"])).await;
    app.spoil("spoilt", "warnings", "{}").await;
    for _ in 0..2 {
        named(&app.post(&format!("/runs/{id}/cancel"), &json!({})).await, &id, "cancelled", "warnings");
    }
    app.spoil("spoilt", "warnings", "[]").await;
    assert_eq!(app.get(&format!("/runs/{id}")).await.json()["state"], "cancelled");
    app.spoil("spoilt", "progress", "{}").await;
    let refused = app.post(&format!("/runs/{id}/retry"), &json!({})).await;
    named(&refused, &id, "cancelled", "progress");
}
