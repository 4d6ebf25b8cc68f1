//! OpenLineage events of real runs. `tests/spec/lineage` holds the same against the published schema.

use super::{Place, Store, trips_pipeline, write_quarter};
use crate::site::{Reply, Site};
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(30);

async fn place(store: Store) -> Place {
    let place = Place::new(store).await;
    write_quarter(&place, 50);
    let retry = "[retry]\nsource = { attempts = 2, delay_seconds = 0 }\n";
    place.pipeline("trips", &format!("{}{retry}", trips_pipeline("trips", r#""raw/trips_%Y-%m.parquet""#, "", "")));
    place
}

/// Waits until it is so many lines; answers them.
async fn lines(place: &Place, count: usize) -> Vec<Value> {
    let end = Instant::now() + WITHIN;
    loop {
        let text = std::fs::read_to_string(place.path("lineage.ndjson")).unwrap_or_default();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if events.len() >= count {
            return events;
        }
        assert!(Instant::now() < end, "{} events, not {count}: {events:#?}", events.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["eventType"].as_str().unwrap()).collect()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_told_as_runs_with_what_they_read_and_wrote(#[case] store: Store) {
    let place = place(store).await;
    let file = place.path("lineage.ndjson");
    let flags = ["--workers", "1", "--openlineage-file", file.to_str().unwrap(), "--openlineage-namespace", "tests"];
    let server = place.start_with(&flags, &[]).await;
    let body = json!({"pipeline": "trips", "partitions": ["2024-01", "2024-02"], "labels": {"team": "a"}});
    let run = server.run("good", &body).await;
    let events = lines(&place, 2).await;
    assert_eq!(kinds(&events), ["START", "COMPLETE"]);
    let attempt = &run["attempts"][0];
    for event in &events {
        assert_eq!((&event["run"]["runId"], &event["job"]["name"]), (&run["id"], &json!("trips")));
        assert_eq!(event["job"]["namespace"], "tests");
        let facets = &event["run"]["facets"];
        let nominal = ["nominalStartTime", "nominalEndTime"].map(|name| facets["nominalTime"][name].as_str().unwrap());
        assert_eq!(nominal, ["2024-01-01T00:00:00.000000Z", "2024-03-01T00:00:00.000000Z"]);
        assert_eq!(facets["processing_engine"]["name"], "Refrain");
        assert_eq!(facets["tags"]["tags"], json!([{"key": "team", "value": "a", "source": "USER"}]));
        let output = &event["outputs"][0];
        assert_eq!((&output["namespace"], output["name"].as_str()), (&json!("file"), place.table("trips").to_str()));
        assert_eq!(
            output["facets"]["schema"]["fields"],
            json!([
                {"name": "pickup_month", "type": "string"},
                {"name": "zone", "type": "int32"},
                {"name": "pickup_hour", "type": "datetime"},
                {"name": "trips", "type": "int64"},
                {"name": "revenue", "type": "decimal(28,2)"},
            ])
        );
    }
    let [start, complete] = &events[..] else { panic!("two") };
    let time = |value: &Value| value.as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert_eq!(time(&start["eventTime"]), time(&attempt["started_at"]));
    assert_eq!(time(&complete["eventTime"]), time(&attempt["ended_at"]));
    assert_eq!(start["inputs"], json!([]));
    for (input, source) in complete["inputs"].as_array().unwrap().iter().zip(run["sources"].as_array().unwrap()) {
        let path = place.path(source["path"].as_str().unwrap());
        assert_eq!((&input["namespace"], input["name"].as_str()), (&json!("file"), path.to_str()));
        let read = &input["inputFacets"]["inputStatistics"];
        assert_eq!((&read["rowCount"], &read["size"]), (&source["rows"], &source["bytes"]));
    }
    assert_eq!(complete["inputs"].as_array().unwrap().len(), run["sources"].as_array().unwrap().len());
    let written = &complete["outputs"][0]["outputFacets"]["outputStatistics"];
    let sum = |field: &str| -> u64 {
        run["partitions"].as_array().unwrap().iter().map(|partition| partition[field].as_u64().unwrap()).sum()
    };
    assert_eq!((&written["rowCount"], &written["size"]), (&json!(sum("rows")), &json!(sum("bytes"))));
    assert_eq!(written["fileCount"], 2);

    place.remove("raw/trips_2024-02.parquet");
    let failed = server.run_to("failed", "bad", &json!({"pipeline": "trips", "partitions": ["2024-02"]})).await;
    let events = lines(&place, 6).await;
    assert_eq!(kinds(&events[2..]), ["START", "FAIL", "START", "FAIL"]);
    let message = events[3]["run"]["facets"]["errorMessage"]["message"].as_str().unwrap();
    assert!(message.contains(failed["error"]["detail"].as_str().unwrap()), "{message}");
    let ids = [2, 3, 4, 5].map(|at| events[at]["run"]["runId"].as_str().unwrap());
    assert!(ids[0] == failed["id"] && ids[0] == ids[1] && ids[2] == ids[3] && ids[1] != ids[2], "{ids:?}");
    assert_eq!(events[4]["run"]["facets"]["parent"]["run"]["runId"], failed["id"]);
    assert_eq!(events[2]["run"]["facets"].get("parent"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_is_posted_to_in_order_until_it_has_each() {
    let asked = AtomicUsize::new(0);
    let site = Site::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Reply::status(503),
        _ => Reply::status(201),
    })
    .await;
    let place = place(Store::Sqlite).await;
    std::fs::write(place.path("token"), "hunter2\n").unwrap();
    let (url, token) = (site.url("/api/v1/lineage?key=hunter3"), place.path("token"));
    let flags = ["--openlineage-url", &url, "--openlineage-token-file", token.to_str().unwrap()];
    let server = place.start_with(&[&flags[..], &["--notify-retry-seconds", "0,0,0"]].concat(), &[]).await;
    server.run("good", &json!({"pipeline": "trips", "partitions": ["2024-01"]})).await;
    let end = Instant::now() + WITHIN;
    while site.requests().len() < 4 {
        assert!(Instant::now() < end, "{:?}\n{}", site.seen(), server.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let events: Vec<Value> =
        site.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    assert_eq!(kinds(&events), ["START", "START", "START", "COMPLETE"]);
    assert!(site.requests().iter().all(|request| request.headers["authorization"] == "Bearer hunter2"));
    assert!(!server.log().contains("hunter"), "{}", server.log());
}
