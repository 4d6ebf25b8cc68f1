//! What the service tells of itself: metrics, logs, traces, health, and the files in `ops/` and `docs/` that rely on them.

mod alerts;
mod collector;
mod documents;
mod exposition;
mod health;
mod logs;
mod metrics;
mod traces;

use crate::service::{Place, Server, Shape, Store, month_of_trips, trips_of, trips_pipeline};
use exposition::Family;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(30);

/// A pipeline `trips` over one month; a run of another month fails at its first try.
fn pipeline(place: &Place) {
    place.source("raw/trips_2024-02.parquet", trips_of(&month_of_trips("2024-02", 500), Shape::Wide));
    let text = trips_pipeline("trips", r#""raw/trips_%Y-%m.parquet""#, "", "");
    place.pipeline("trips", &format!("{text}\n[retry]\nsource = {{ attempts = 1 }}\n"));
}

fn of_month(month: &str) -> Value {
    json!({"pipeline": "trips", "partitions": [month]})
}

/// The metrics of a server, which must be valid.
async fn scrape(server: &Server) -> BTreeMap<String, Family> {
    let answer = server.get("/metrics").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
    exposition::parse(&answer.body).unwrap_or_else(|wrong| panic!("{wrong}\n{}", answer.body))
}

/// A metric, labels, and what the samples that have them come to.
type Wanted<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

/// Scrapes until all of these samples, summed where several have the labels, are at least so much.
async fn scrape_until(server: &Server, wanted: &[Wanted<'_>]) -> BTreeMap<String, Family> {
    let end = Instant::now() + WITHIN;
    loop {
        let found = scrape(server).await;
        let missing = wanted.iter().find(|(name, labels, least)| {
            found.get(*name).and_then(|family| family.sum(labels)).is_none_or(|value| value < *least)
        });
        let Some((name, labels, least)) = missing else { return found };
        let shown = found.get(*name);
        assert!(Instant::now() < end, "{name} {labels:?} is not {least}: {shown:?}\n{}", server.log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
