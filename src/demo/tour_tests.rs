//! The tour against a service of canned answers: it passes a good one, and notices each thing that is wrong with others.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::sample;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// What is wrong with the service.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    ACentIsLost,
    ARepeatedRequestRunsAgain,
    UnchangedIsWrittenAgain,
    StraysAreNotCounted,
    NoWarning,
    TheRunFails,
}

struct Canned {
    fault: Fault,
    contents: Contents,
    /// Key and answer of each run.
    runs: Mutex<Vec<(String, Value)>>,
}

type Service = Arc<Canned>;

impl Canned {
    fn run(&self, pipeline: &str, partitions: &Value, nth: usize) -> Value {
        let c = &self.contents;
        let quarter = partitions[0].is_object();
        let outcome = match (quarter, self.fault) {
            (true, _) => "created",
            (false, Fault::UnchangedIsWrittenAgain) => "replaced",
            (false, _) => "unchanged",
        };
        let months: &[MonthTotals] = if quarter { &c.months } else { &c.months[1..2] };
        let read = if quarter || pipeline == TABLE { c.file_rows.iter().sum() } else { c.file_rows[1] };
        let found = if pipeline == TABLE { &c.months } else { &c.own_files };
        let in_scope: u64 = found.iter().filter(|m| months.iter().any(|n| n.month == m.month)).map(|m| m.trips).sum();
        let by_partition = match (pipeline, quarter, self.fault) {
            (TABLE, ..) => json!({}),
            (_, _, Fault::StraysAreNotCounted) => json!({"pickup_month=2024-01": 10, "pickup_month=2024-03": 2}),
            (_, true, _) => json!({"pickup_month=2024-01": 11, "pickup_month=2024-02": 22, "pickup_month=2024-03": 2}),
            (_, false, _) => json!({"pickup_month=2024-01": 11, "pickup_month=2024-03": 2}),
        };
        let outcomes: Vec<Value> = months
            .iter()
            .map(|m| json!({"partition": format!("pickup_month={}", m.month), "outcome": outcome}))
            .collect();
        let warnings = match self.fault {
            Fault::NoWarning => json!([]),
            _ => json!([{"type": "strays-next-door", "detail": "raise neighbours"}]),
        };
        let (state, error) = match self.fault {
            Fault::TheRunFails => ("failed", json!({"title": "source missing", "detail": "no file"})),
            _ => ("succeeded", Value::Null),
        };
        json!({
            "id": format!("run-{nth}"), "state": state, "partitions": outcomes, "attempts": [{}],
            "rows": {"read": read, "in_scope": in_scope, "out_of_scope": read - in_scope, "filtered": 0, "rejected": 0,
                "out_of_scope_by_partition": by_partition},
            "progress": null, "warnings": warnings, "error": error,
        })
    }
}

async fn submit(State(service): State<Service>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let mut runs = service.runs.lock().unwrap();
    let known = runs.iter().find(|(k, _)| *k == key).map(|(_, run)| run.clone());
    match known {
        Some(run) if service.fault != Fault::ARepeatedRequestRunsAgain => {
            (StatusCode::OK, [("Idempotent-Replayed", "true")], Json(run)).into_response()
        }
        _ => {
            let run = service.run(body["pipeline"].as_str().unwrap(), &body["partitions"], runs.len());
            runs.push((key, run.clone()));
            (StatusCode::ACCEPTED, Json(run)).into_response()
        }
    }
}

async fn one_run(State(service): State<Service>, Path(id): Path<String>) -> Json<Value> {
    let runs = service.runs.lock().unwrap();
    Json(runs.iter().find(|(_, run)| run["id"] == id.as_str()).unwrap().1.clone())
}

async fn totals(State(service): State<Service>, Path(name): Path<String>) -> Json<Value> {
    let mut months = if name == TABLE { service.contents.months } else { service.contents.own_files };
    let money = |c: i64| format!("{}.{:02}", c / 100, c % 100);
    let sum: i64 = months.iter().map(|m| m.cents).sum();
    if service.fault == Fault::ACentIsLost && service.runs.lock().unwrap().len() > 1 {
        months[2].cents -= 1;
    }
    let partitions: Vec<Value> = months
        .iter()
        .map(|m| {
            json!({"partition": format!("pickup_month={}", m.month), "rows": m.buckets, "sha256": "5a", "run_id": "run-0",
                "totals": {"trips": m.trips, "revenue": money(m.cents)}})
        })
        .collect();
    let (rows, trips) = months.iter().fold((0, 0), |(r, t), m| (r + m.buckets, t + m.trips));
    let total = json!({"rows": rows, "totals": {"trips": trips, "revenue": money(sum)}});
    Json(json!({"version": 1, "partitions": partitions, "total": total}))
}

/// What the tour says.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn tour(fault: Fault, scale: f64) -> (anyhow::Result<()>, String) {
    let contents = sample::contents(scale).unwrap();
    let router = Router::new()
        .route("/runs", post(submit))
        .route("/runs/{id}", get(one_run))
        .route("/pipelines/{name}/partitions", get(totals))
        .with_state(Arc::new(Canned { fault, contents, runs: Mutex::default() }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let said = Said::default();
    let mut screen = Screen::plain(Box::new(said.clone()));
    let outcome = go(&Orchestrator::new(&url).unwrap(), &contents, &mut screen).await;
    server.abort();
    let text = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
    (outcome, text)
}

#[tokio::test]
async fn a_good_service_is_shown_with_its_table() {
    let (outcome, said) = tour(Fault::Nothing, 1.0).await;
    outcome.unwrap();
    let table = "
    pickup_month   buckets       trips          revenue
    ---------------------------------------------------
    2024-01         77,530   2,964,617    79,456,198.67
    2024-02         74,376   3,007,533    80,073,797.21
    2024-03         89,011   3,582,607    97,162,377.26
    all            240,917   9,554,757   256,692,373.14
";
    assert_eq!(said.matches(table).count(), 2, "{said}");
    assert!(said.contains("56 strays, 35 of them of the months next door"), "{said}");
    assert!(said.contains("11 strays of January and 2 of March counted"), "{said}");
}

#[tokio::test]
async fn a_smaller_sample_is_checked_as_strictly() {
    tour(Fault::Nothing, 0.05).await.0.unwrap();
    assert!(tour(Fault::ACentIsLost, 0.05).await.0.is_err());
}

#[tokio::test]
async fn whatever_is_wrong_ends_the_tour_and_is_named() {
    for (fault, named) in [
        (Fault::ACentIsLost, "the partitions of the table: found"),
        (Fault::ARepeatedRequestRunsAgain, "the status of a repeated request: found 202, expected 200"),
        (Fault::UnchangedIsWrittenAgain, r#"the outcome of pickup_month=2024-02: found Some("replaced")"#),
        (Fault::StraysAreNotCounted, "strays of the months next door: found 12, expected 35"),
        (Fault::NoWarning, "the run has no warning"),
        (Fault::TheRunFails, "run run-0 ended as failed, expected succeeded: source missing: no file"),
    ] {
        let problem = tour(fault, 1.0).await.0.unwrap_err().to_string();
        assert!(problem.contains(named), "{fault:?}: {problem}");
    }
}
