//! Sources of other servers, as an operator sees them.

use super::{Place, Store};
use crate::engine::gzip;
use crate::site::{Reply, Site, Stored};
use chrono::{DateTime, TimeDelta, Utc};
use rstest::rstest;
use serde_json::{Value, json};

/// Two hours of events, as GH Archive publishes them.
const EVENTS: [&str; 2] = [
    r#"{"id": "1", "type": "WatchEvent", "created_at": "2015-01-01T00:00:01Z", "payload": {"action": "started"}}
{"id": "2", "type": "PushEvent", "created_at": "2015-01-01T00:30:00Z", "payload": {"size": 3}}
"#,
    r#"{"id": "3", "type": "WatchEvent", "created_at": "2015-01-01T01:00:01Z", "payload": {}}
"#,
];

fn events_pipeline(path: &str, retry: &str) -> String {
    format!(
        r#"
name = "events"
[source]
format = "ndjson"
path = "{path}"
[source.columns]
type = "string"
created_at = "datetime(UTC)"
[partition]
event_date = {{ day_of = "created_at" }}
hour = {{ hour_of_day = "created_at" }}
[dimensions]
type = "type"
[measures]
events = "count(*)"
[retry]
source = {retry}
"#
    )
}

/// The two hours; the first two times that anything is asked for, the server is too busy for so many seconds.
async fn busy_at_first(seconds: &'static str) -> Site {
    let hours = EVENTS.map(|text| Stored::new(&gzip(text.as_bytes()), "\"of the hour\""));
    let asked = std::sync::atomic::AtomicUsize::new(0);
    Site::start(move |request| match request.path.as_str() {
        _ if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2 => {
            Reply::status(503).with("retry-after", seconds)
        }
        "/2015-01-01-0.json.gz" => hours[0].answer(request),
        "/2015-01-01-1.json.gz" => hours[1].answer(request),
        _ => Reply::status(404),
    })
    .await
}

fn hour(hour: u32) -> Value {
    json!({"pipeline": "events", "partitions": [{"event_date": "2015-01-01", "hour": format!("{hour:02}")}]})
}

/// The pauses between a run's attempts.
fn pauses(run: &Value) -> Vec<TimeDelta> {
    let attempts = run["attempts"].as_array().unwrap();
    let time = |attempt: &Value, field: &str| attempt[field].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    attempts.windows(2).map(|two| time(&two[1], "started_at") - time(&two[0], "ended_at")).collect()
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_is_asked_again_when_it_says(#[case] store: Store) {
    let site = busy_at_first("2").await;
    let place = Place::new(store).await;
    let path = site.url("/%Y-%m-%d-%-H.json.gz");
    place.pipeline("events", &events_pipeline(&path, "{ attempts = 4, delay_seconds = 0 }"));
    let server = place.start_with(&["--workers", "1", "--source-hosts", &site.host()], &[]).await;
    let run = server.run("first", &hour(0)).await;
    let outcomes: Vec<_> = run["attempts"].as_array().unwrap().iter().map(|a| a["outcome"].clone()).collect();
    assert_eq!(outcomes, ["failed", "failed", "succeeded"], "{run:#}");
    assert!(pauses(&run).iter().all(|pause| *pause >= TimeDelta::seconds(2)), "{:?}", pauses(&run));
    let error = &run["attempts"][0]["error"];
    assert!(error["detail"].as_str().unwrap().contains("its server answers 503"), "{run:#}");
    let bytes = gzip(EVENTS[0].as_bytes()).len();
    let source = json!({"path": site.url("/2015-01-01-0.json.gz"), "bytes": bytes, "rows": 2, "modified": null,
                        "etag": "\"of the hour\""});
    assert_eq!((&run["sources"], &run["rows"]["in_scope"]), (&json!([source]), &json!(2)), "{run:#}");
    let of_site = super::field_of(&server.run("second", &hour(1)).await, "sha256");

    // The same from the disk.
    std::fs::write(place.path("2015-01-01-1.json.gz"), gzip(EVENTS[1].as_bytes())).unwrap();
    place.pipeline("events", &events_pipeline("%Y-%m-%d-%-H.json.gz", "{}"));
    server.stop().await;
    let run = place.start().await.run("third", &hour(1)).await;
    assert_eq!(super::field_of(&run, "sha256"), of_site);
    assert_eq!(run["partitions"][0]["outcome"], "unchanged", "{run:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_puts_a_run_off_for_longer_than_its_pipeline_says() {
    let site = busy_at_first("86400").await;
    let place = Place::new(Store::Sqlite).await;
    let retry = "{ attempts = 4, delay_seconds = 0, max_delay_seconds = 1 }";
    place.pipeline("events", &events_pipeline(&site.url("/%Y-%m-%d-%-H.json.gz"), retry));
    let server = place.start_with(&["--workers", "1", "--source-hosts", &site.host()], &[]).await;
    let run = server.run("first", &hour(0)).await;
    assert!(pauses(&run).iter().all(|pause| *pause >= TimeDelta::seconds(1)), "{:?}", pauses(&run));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_list_the_hosts_and_pipelines_hide_their_queries() {
    let site = busy_at_first("1").await;
    let place = Place::new(Store::Sqlite).await;
    let path = site.url("/%Y-%m-%d-%-H.json.gz?sig=secret").replacen("http:", "HTTP:", 1);
    place.pipeline("events", &events_pipeline(&path, "{}"));
    let server = place.start_with(&["--workers", "1"], &[("REFRAIN_SOURCE_HOSTS", "data.example.org")]).await;
    let run = server.run_to("failed", "not-listed", &hour(0)).await;
    assert!(run["error"]["type"].as_str().unwrap().ends_with("source-host-not-listed"), "{run:#}");
    assert!(run["error"]["detail"].as_str().unwrap().ends_with("lists data.example.org"), "{run:#}");
    assert_eq!((run["attempts"].as_array().unwrap().len(), site.seen()), (1, vec![]), "it was not asked");

    let refused = server.submit("full", &json!({"pipeline": "events", "mode": "full"})).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["pointer"]), (422, &json!("/mode")), "{refused:?}");
    for path in ["/pipelines/events", "/pipelines", "/runs"] {
        let shown = server.get(path).await.body;
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(shown.contains("%Y-%m-%d-%-H.json.gz"), path == "/pipelines/events", "{shown}");
    }
    assert!(!server.log().contains("secret"), "{}", server.log());
}
