//! Requests that are refused: each with a clear problem, and the key still free.

use super::{MONTHS, Place, Server, Store, trips_pipeline, write_quarter};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

async fn server_with_trips(store: Store) -> (Place, Server) {
    let place = Place::new(store).await;
    write_quarter(&place, 10);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let server = place.start_with(&["--workers", "0"], &[]).await;
    (place, server)
}

/// A refused request: what it is, its body, the status, and a word that its problem must say.
fn refused() -> Vec<(&'static str, String, u16, &'static str)> {
    let trips = |more: Value| {
        let mut body = json!({"pipeline": "trips"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let two_mebibytes = "x".repeat(2 << 20);
    vec![
        ("empty", trips(json!({"partitions": []})), 422, "partitions"),
        ("absent", trips(json!({})), 422, "partitions"),
        ("null", trips(json!({"partitions": null})), 422, "partitions"),
        ("no pipeline", json!({"partitions": MONTHS}).to_string(), 422, "pipeline"),
        ("unknown pipeline", json!({"pipeline": "nope", "partitions": MONTHS}).to_string(), 422, "nope"),
        ("month 13", trips(json!({"partitions": ["2024-13"]})), 422, "2024-13"),
        ("short month", trips(json!({"partitions": ["2024-1"]})), 422, "2024-1"),
        ("another column", trips(json!({"partitions": ["month=2024-01"]})), 422, "pickup_month"),
        ("a path", trips(json!({"partitions": ["pickup_month=../../x"]})), 422, "pickup_month"),
        ("one bad of three", trips(json!({"partitions": ["2024-01", "24-02", "2024-03"]})), 422, "/partitions/1"),
        ("range backwards", trips(json!({"partitions": [{"from": "2024-03", "to": "2024-01"}]})), 422, "2024-03"),
        ("endless range", trips(json!({"partitions": [{"from": "0001-01", "to": "9999-12"}]})), 422, "partitions"),
        ("misspelt", trips(json!({"partition": ["2024-01"], "partitions": ["2024-01"]})), 422, "partition"),
        ("append", trips(json!({"mode": "append", "partitions": ["2024-01"]})), 422, "append"),
        ("full with partitions", trips(json!({"mode": "full", "partitions": ["2024-01"]})), 422, "full"),
        ("not JSON", "{not json".to_owned(), 400, "JSON"),
        ("no object", "[]".to_owned(), 422, ""),
        ("2 MiB", trips(json!({"partitions": [two_mebibytes]})), 413, ""),
    ]
}

fn assert_problem(what: &str, answer: &super::server::Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{what}: {:.500}", answer.body);
    assert_eq!(answer.header("content-type"), "application/problem+json", "{what}");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{what}: {problem:#}");
    for field in ["type", "title", "detail"] {
        assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{what}: no {field}: {problem:#}");
    }
    problem
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_says_why_and_leaves_its_key_free(#[case] store: Store) {
    let (_place, server) = server_with_trips(store).await;
    for (at, (what, body, status, word)) in refused().into_iter().enumerate() {
        let key = format!("k{at}");
        let answer = server.call(Method::POST, "/runs", Some(&key), Some(body)).await;
        let problem = assert_problem(what, &answer, status);
        assert!(answer.body.contains(word), "{what}: expected {word:?} in {problem:#}");
        server.accept(&key, &json!({"pipeline": "trips", "partitions": ["2024-01"]})).await;
    }
}

#[tokio::test]
async fn a_bad_key_is_refused() {
    let (_place, server) = server_with_trips(Store::Sqlite).await;
    let good = json!({"pipeline": "trips", "partitions": ["2024-01"]}).to_string();
    let long = "k".repeat(256);
    for (what, key) in
        [("none", None), ("256 characters", Some(long.as_str())), ("empty", Some("")), ("blank", Some("a b"))]
    {
        let answer = server.call(Method::POST, "/runs", key, Some(good.clone())).await;
        assert_problem(what, &answer, 400);
    }
    let longest = "k".repeat(255);
    assert_eq!(server.call(Method::POST, "/runs", Some(&longest), Some(good)).await.status, 202);
    assert_eq!(server.get("/runs").await.json()["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_too() {
    let (_place, server) = server_with_trips(Store::Sqlite).await;
    for path in [
        "/nowhere",
        "/runs/01990000-0000-7000-8000-000000000000",
        "/pipelines/nope",
        "/pipelines/nope/partitions",
        "/pipelines/trips/partitions/pickup_month=2024-01",
    ] {
        assert_problem(path, &server.get(path).await, 404);
    }
    let answer = server.call(Method::DELETE, "/runs", None, None).await;
    assert_problem("DELETE /runs", &answer, 405);
}
