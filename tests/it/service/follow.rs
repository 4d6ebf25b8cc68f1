//! Waiting for runs and following them, on whatever server of the fleet.

use super::slow::{engine_at_work, quick_pipeline, slow_pipeline};
use super::{Answer, Place, Server, Shape, Store, month_of_trips, trips_of, trips_pipeline};
use crate::sse::{Event, Reader};
use chrono::{DateTime, Utc};
use reqwest::{Method, Response};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

/// A stream of events that is being read.
struct Followed {
    answer: Response,
    reader: Reader,
    here: VecDeque<Event>,
}

impl Followed {
    async fn on(server: &Server, id: &str, last: &str) -> Self {
        let answer = asked(server, id, last).await;
        assert_eq!(answer.status(), 200);
        Self { answer, reader: Reader::default(), here: VecDeque::new() }
    }

    /// The next event; none where the stream is over or has broken off.
    async fn next(&mut self) -> Option<Event> {
        while self.here.is_empty() {
            let more = tokio::time::timeout(SOON, self.answer.chunk()).await.unwrap().ok()??;
            self.here.extend(self.reader.take(&more));
        }
        self.here.pop_front()
    }

    async fn until(&mut self, name: &str) -> Vec<Event> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|event: &Event| event.name != name) {
            seen.push(self.next().await.unwrap_or_else(|| panic!("no {name} after {seen:#?}")));
        }
        seen
    }
}

async fn asked(server: &Server, id: &str, last: &str) -> Response {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/runs/{id}/events", server.url());
    client.get(url).header("last-event-id", last).send().await.unwrap()
}

fn february(pipeline: &str) -> Value {
    json!({"pipeline": pipeline, "partitions": ["2024-02"]})
}

/// How long ago a run has ended, in milliseconds.
fn since_the_end(run: &Value) -> i64 {
    let ended: DateTime<Utc> = serde_json::from_value(run["ended_at"].clone()).unwrap();
    (Utc::now() - ended).num_milliseconds()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_is_told_on_every_server_at_once() {
    const RUNS: usize = 25;
    let place = Place::new(Store::Postgres).await;
    quick_pipeline(&place);
    let working = place.start().await;
    let other = place.start_with(&["--workers", "0"], &[]).await;
    let submit = async |key: String| -> Answer {
        let body = february("quick").to_string();
        other.call(Method::POST, "/runs?wait=30", Some(&key), Some(body)).await
    };
    let mut delays = Vec::new();
    for n in 0..RUNS {
        let id = working.accept(&format!("get-{n}"), &february("quick")).await;
        let mut followed = Followed::on(&other, &id, "").await;
        let waiting = async {
            let waited = other.get(&format!("/runs/{id}?wait=30")).await.json();
            (since_the_end(&waited), waited)
        };
        let following = async { followed.until("end").await.pop().map(|end| (since_the_end(&end.data), end.data)) };
        let (waited, followed) = tokio::join!(waiting, following);
        let submitted = submit(format!("post-{n}")).await;
        let submitted = (since_the_end(&submitted.json()), submitted.json());
        for (delay, run) in [waited, followed.unwrap(), submitted] {
            assert_eq!(run["state"], "succeeded", "{run:#}");
            delays.push(delay);
        }
    }
    delays.sort_unstable();
    let at = |share: usize| delays[(delays.len() - 1) * share / 100];
    crate::counted(format_args!(
        "{} answers about the end of a run by the server that did not do it: p50 {} ms, p99 {} ms, at most {} ms after ended_at",
        delays.len(),
        at(50),
        at(99),
        at(100)
    ));
    // Who only looks once a second is half a second late on average.
    assert!(at(50) < 250, "{delays:?}");
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn who_follows_a_run_goes_on_where_it_was_after_a_crash(#[case] store: Store) {
    let place = Place::new(store).await;
    slow_pipeline(&place, 20, "");
    let flags = ["--workers", "1", "--lease-seconds", "2"];
    let first = place.start_with(&flags, &[]).await;
    let id = first.accept("k", &february("slow")).await;
    let engine = engine_at_work(&first, &id).await;
    engine.signal(Signal::STOP);
    let mut followed = Followed::on(&first, &id, "").await;
    let running = followed.until("progress").await;
    assert_eq!((running[0].state(), &running[0].data["attempt"]), (Some("running"), &json!(1)), "{running:#?}");
    let last = running.last().unwrap().id.clone();
    first.kill().await;
    while followed.next().await.is_some() {}
    engine.signal(Signal::CONT);
    let second = place.start_with(&flags, &[]).await;
    let seen = Followed::on(&second, &id, &last).await.until("end").await;
    let told: Vec<(&str, u64)> =
        seen.iter().filter_map(|event| Some((event.state()?, event.data["attempt"].as_u64()?))).collect();
    assert!(!told.contains(&("running", 1)), "it knew that: {told:?}");
    assert_eq!(told.last(), Some(&("succeeded", 2)), "{told:?}");
    let end = seen.last().unwrap();
    assert_eq!(end.data, second.get(&format!("/runs/{id}")).await.json());
    assert_eq!(asked(&second, &id, &end.id).await.status(), 204);
}

#[rstest]
#[case::sqlite(Store::Sqlite)]
#[case::postgres(Store::Postgres)]
#[tokio::test(flavor = "multi_thread")]
async fn progress_moves(#[case] store: Store) {
    const FILES: u64 = 150;
    let place = Place::new(store).await;
    slow_pipeline(&place, u32::try_from(FILES).unwrap(), "");
    let server = place.start().await;
    let id = server.accept("k", &february("slow")).await;
    let seen = Followed::on(&server, &id, "").await.until("end").await;
    let of = |progress: &Value| {
        ["files_read", "bytes_read", "rows_read", "partitions_staged", "partitions_published"]
            .map(|name| progress[name].as_u64().unwrap())
    };
    let progress: Vec<&Value> = seen.iter().filter(|event| event.name == "progress").map(|event| &event.data).collect();
    for (before, after) in progress.iter().zip(progress.iter().skip(1)) {
        let forward = of(before).iter().zip(of(after)).all(|(before, after)| *before <= after);
        assert!(forward, "{before:#} {after:#}");
    }
    let midway = progress.iter().filter(|p| {
        let [_, bytes_read, rows_read, ..] = of(p);
        let (bytes, rows) = (p["bytes"].as_u64().unwrap(), p["rows"].as_u64().unwrap());
        assert!(bytes_read <= bytes && rows_read <= rows, "{p:#}");
        p["files"] == FILES && rows == FILES * 50_000 && (1..bytes).contains(&bytes_read) && rows_read > 0
    });
    assert!(midway.count() > 0, "{progress:#?}");
    let done = progress.last().unwrap();
    let bytes = done["bytes"].as_u64().unwrap();
    assert_eq!(bytes, FILES * std::fs::metadata(place.path("slow/0000.parquet")).unwrap().len());
    assert_eq!((&done["stage"], of(done)), (&json!("done"), [FILES, bytes, FILES * 50_000, 1, 1]));
    assert!(done["estimated_end"].is_null(), "{done:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_estimated_once_there_is_ground() {
    let place = Place::new(Store::Sqlite).await;
    place.source("trips.parquet", trips_of(&month_of_trips("2024-02", 2_000), Shape::Wide));
    let daily = trips_pipeline("daily", "\"trips.parquet\"", "", "").replace("month_of", "day_of");
    place.pipeline("daily", &daily);
    let slowly = (1..=5).map(|n| format!("staged-{n}=delay:1000")).collect::<Vec<_>>().join(",");
    let server = place.start_with(&["--workers", "1"], &[("REFRAIN_FAULT", &slowly)]).await;
    let days = json!({"pipeline": "daily", "partitions": [{"from": "2024-02-01", "to": "2024-02-06"}]});
    let id = server.accept("k", &days).await;
    let mut followed = Followed::on(&server, &id, "").await;
    let mut estimates = Vec::new();
    loop {
        let event = followed.next().await.unwrap();
        if event.name == "progress" && event.data["estimated_end"].is_string() {
            let end: DateTime<Utc> = serde_json::from_value(event.data["estimated_end"].clone()).unwrap();
            estimates.push((end - Utc::now()).num_milliseconds());
            assert!(event.data["partitions_staged"].as_u64() >= Some(2), "too soon: {event:?}");
        }
        if event.name == "end" {
            assert_eq!(event.data["state"], "succeeded", "{event:?}");
            break;
        }
    }
    assert!(!estimates.is_empty(), "{}", server.log_tail());
    // A second for each of at most four that are left; a busy machine takes longer.
    assert!(estimates.iter().all(|left| (-2_000..30_000).contains(left)), "{estimates:?}");
}
