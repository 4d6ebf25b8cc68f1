//! Promise 1: one key, one run.

use super::{MONTHS, Place, Store, assert_totals, field_of, summed, trips_pipeline, write_quarter};
use reqwest::Method;
use rstest::rstest;
use serde_json::json;

#[rstest]
#[case::one_server_over_sqlite(Store::Sqlite, 1)]
#[case::two_servers_over_postgres(Store::Postgres, 2)]
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_identical_requests_at_once_are_one_run(#[case] store: Store, #[case] servers: usize) {
    let place = Place::new(store).await;
    let trips = write_quarter(&place, 400);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let mut running = Vec::new();
    for _ in 0..servers {
        running.push(place.start().await);
    }

    let body = json!({"pipeline": "trips", "partitions": ["2024-02", "2024-01"]});
    let answers = futures::future::join_all((0..64).map(|i| running[i % servers].submit("storm", &body))).await;
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 63], vec![202]].concat());
    let id = answers[0].run_id();
    for answer in &answers {
        assert_eq!(answer.run_id(), id);
        assert_eq!(answer.header("idempotent-replayed"), if answer.status == 200 { "true" } else { "" }, "{answer:?}");
    }
    let run = running[0].wait(&id).await;
    assert_eq!(run["state"], "succeeded", "{run:#}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run:#}");

    let other = json!({"pipeline": "trips", "partitions": ["2024-03"]});
    for server in &running {
        let answer = server.submit("storm", &other).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        assert!(problem["type"].as_str().unwrap().ends_with("idempotency-key-reused"), "{problem:#}");
        assert!(answer.body.contains(&id), "the first run is named: {problem:#}");
        assert!(answer.body.contains("partitions"), "the field that differs is named: {problem:#}");
        let listed = server.get("/runs").await.json();
        assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "nothing else ran: {listed:#}");
        let mut expected = summed(&trips);
        expected.remove("pickup_month=2024-03");
        assert_totals(&server.partitions("trips").await, &expected);
    }
}

#[tokio::test]
async fn the_same_request_in_other_words_is_a_replay() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 50);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let server = place.start().await;
    let first = server.run("quarter", &json!({"pipeline": "trips", "partitions": MONTHS})).await;

    let others = [
        json!({"partitions": ["pickup_month=2024-03", "2024-02", "2024-01", "2024-02"], "pipeline": "trips"}),
        json!({"pipeline": "trips", "mode": "overwrite", "partitions": [{"from": "2024-01", "to": "2024-03"}]}),
        json!({"pipeline": "trips", "if_failed": "retry",
            "partitions": [{"pickup_month": "2024-01"}, {"pickup_month": "2024-02"}, {"pickup_month": "2024-03"}]}),
    ];
    for body in &others {
        for key in ["quarter", "\"quarter\""] {
            let again = server.submit(key, body).await;
            assert_eq!((again.status, again.run_id().as_str()), (200, first["id"].as_str().unwrap()), "{again:?}");
            assert_eq!(again.json()["state"], "succeeded");
        }
    }
    let mut in_the_body = others[0].clone();
    in_the_body["idempotency_key"] = json!("quarter");
    let again = server.call(Method::POST, "/runs", None, Some(in_the_body.to_string())).await;
    assert_eq!((again.status, again.run_id().as_str()), (200, first["id"].as_str().unwrap()), "{again:?}");
    let both = server.submit("another", &in_the_body).await;
    assert_eq!(both.status, 400, "{both:?}");
    assert_eq!(server.get("/runs").await.json()["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_replay_is_read_by_the_definition_that_the_run_was_accepted_with() {
    let place = Place::new(Store::Sqlite).await;
    write_quarter(&place, 50);
    place.pipeline("trips", &trips_pipeline("trips", r#""raw/*.parquet""#, "", ""));
    let server = place.start().await;
    let body = json!({"pipeline": "trips", "partitions": ["2024-02"]});
    let first = server.run("february", &body).await;
    assert!(server.stop().await.success());

    let by_day = trips_pipeline("trips", r#""raw/*.parquet""#, "", "").replace("month_of", "day_of");
    place.pipeline("trips", &by_day);
    let server = place.start().await;
    let again = server.submit("february", &body).await;
    assert_eq!((again.status, again.run_id().as_str()), (200, first["id"].as_str().unwrap()), "{again:?}");
    assert_eq!(field_of(&again.json(), "sha256"), field_of(&first, "sha256"));
    assert_eq!(server.submit("new", &body).await.status, 422, "a month is no partition for new requests");
}
