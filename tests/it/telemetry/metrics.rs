//! `/metrics` of real servers: valid, complete, and right.

use super::{Family, Place, Store, WITHIN, Wanted, of_month, pipeline, scrape, scrape_until};
use metrics_exporter_prometheus::PrometheusBuilder;
use refrain::run::{ClaimToken, Progress, RunId, Stage};
use refrain::store::{Fenced, Renewal, RunStore, SqliteOptions, SqliteStore};
use refrain::telemetry::{
    Kind, METRIC_CERTIFICATE_SECONDS, METRIC_NOTIFICATION_OLDEST_SECONDS, METRIC_NOTIFICATION_TRIES,
    METRIC_NOTIFICATIONS, METRIC_SPANS, METRICS,
};
use reqwest::Method;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The value of a metric's samples that have these labels, together.
fn value(found: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let family = found.get(name).unwrap_or_else(|| panic!("{name} is not there"));
    family.sum(labels).unwrap_or_else(|| panic!("{name} has none with {labels:?}: {family:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_are_valid_and_say_what_happened() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let server = place.start().await;
    let first = scrape_until(&server, &[("refrain_build_info", &[], 1.0)]).await;
    for outcome in ["succeeded", "failed", "cancelled"] {
        let labels = [("pipeline", "trips"), ("outcome", outcome)];
        assert_eq!(value(&first, "refrain_runs_ended_total", &labels), 0.0, "it is there from the start");
    }
    assert_eq!(value(&first, "refrain_refused_steps_total", &[]), 0.0);
    assert_eq!(value(&first, "refrain_stage_seconds", &[]), 0.0);

    server.run("good", &of_month("2024-02")).await;
    let failed = server.run_to("failed", "bad", &of_month("2024-03")).await;
    let path = format!("/runs/{}/retry", failed["id"].as_str().unwrap());
    assert_eq!(server.call(Method::POST, &path, None, None).await.status, 202);
    server.wait(failed["id"].as_str().unwrap()).await;
    let mut later = of_month("2024-02");
    later["not_before"] = (chrono::Utc::now() + chrono::TimeDelta::hours(1)).to_rfc3339().into();
    server.accept("later", &later).await;

    let http_only = place.start_with(&["--workers", "0"], &[]).await;
    let of_queue: &[Wanted<'_>] = &[
        ("refrain_runs", &[("state", "scheduled")], 1.0),
        ("refrain_last_success_timestamp_seconds", &[("pipeline", "trips")], 1.0),
    ];
    let (found, elsewhere) = (scrape_until(&server, of_queue).await, scrape_until(&http_only, of_queue).await);
    let same = ["refrain_last_success_timestamp_seconds", "refrain_runs", "refrain_pipeline_due_runs"];
    for name in same {
        assert_eq!(value(&found, name, &[]), value(&elsewhere, name, &[]), "{name}");
    }
    let trips = ("pipeline", "trips");
    let expected: &[Wanted<'_>] = &[
        ("refrain_runs", &[("state", "queued")], 0.0),
        ("refrain_pipeline_due_runs", &[trips], 0.0),
        ("refrain_runs_ended_total", &[trips, ("outcome", "succeeded")], 1.0),
        ("refrain_runs_ended_total", &[trips, ("outcome", "failed")], 2.0),
        ("refrain_attempts_total", &[("outcome", "succeeded"), ("class", "none")], 1.0),
        ("refrain_attempts_total", &[("outcome", "failed"), ("class", "source")], 2.0),
        ("refrain_retries_total", &[("reason", "request")], 1.0),
        ("refrain_retries_total", &[("reason", "source")], 0.0),
        ("refrain_rows_total", &[trips, ("kind", "in_scope")], 500.0),
        ("refrain_partitions_total", &[trips, ("outcome", "created")], 1.0),
        ("refrain_workers", &[], 1.0),
        ("refrain_check_ok", &[("check", "database")], 1.0),
        ("refrain_check_ok", &[("check", "warehouse")], 1.0),
        ("refrain_check_ok", &[("check", "workers")], 1.0),
        ("refrain_database_connections_max", &[], 10.0),
        ("refrain_database_failures_total", &[], 0.0),
    ];
    for (name, labels, expected) in expected {
        assert_eq!(value(&found, name, labels), *expected, "{name} {labels:?}");
    }
    for positive in ["refrain_source_bytes_total", "refrain_rows_written_total", "refrain_bytes_written_total"] {
        assert!(value(&found, positive, &[trips]) > 0.0, "{positive}");
    }
    let age = chrono::Utc::now().timestamp() as f64 - value(&found, "refrain_last_success_timestamp_seconds", &[trips]);
    assert!((-1.0..60.0).contains(&age), "{age}");
    for stage in ["claim", "compute", "listing", "decide", "lock", "publish", "finish"] {
        let counted = found["refrain_stage_seconds"].samples.iter().find(|sample| {
            sample.name.ends_with("_count") && sample.labels.get("stage").is_some_and(|name| name == stage)
        });
        assert!(counted.is_some_and(|sample| sample.value >= 1.0), "{stage}: {counted:?}");
    }
    of_the_names(&found);
}

/// Those of what the server is not told to do: to send traces, to speak TLS, to tell of runs.
const UNASKED: [&str; 5] = [
    METRIC_SPANS,
    METRIC_CERTIFICATE_SECONDS,
    METRIC_NOTIFICATIONS,
    METRIC_NOTIFICATION_OLDEST_SECONDS,
    METRIC_NOTIFICATION_TRIES,
];

/// Every other metric of the list is there, as what the list says, and no other.
fn of_the_names(found: &BTreeMap<String, Family>) {
    for (name, kind, _) in METRICS.iter().filter(|(name, _, _)| !UNASKED.contains(name)) {
        let family = found.get(*name).unwrap_or_else(|| panic!("{name} is not there"));
        let expected = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        assert_eq!(family.kind, expected, "{name}");
    }
    let known = |name: &&String| METRICS.iter().any(|(known, _, _)| known == name);
    let unknown: Vec<&String> = found.keys().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "not in the list of names: {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_can_have_an_address_of_their_own() {
    let place = Place::new(Store::Sqlite).await;
    pipeline(&place);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let _server = place.start_with(&["--metrics-listen", &address], &[]).await;
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/runs", 404), ("/docs", 404)] {
        let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        if path == "/metrics" {
            super::exposition::parse(&answer.text().await.unwrap()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_and_a_lease_that_is_lost_are_counted() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let fault = format!("scanned=kill@{}", place.path("killed").display());
    let server = place.start_with(&["--workers", "1", "--lease-seconds", "2"], &[("REFRAIN_FAULT", &fault)]).await;
    server.run("first", &of_month("2024-02")).await;
    let found = scrape(&server).await;
    assert_eq!(value(&found, "refrain_engine_deaths_total", &[("how", "killed")]), 1.0);
    assert_eq!(value(&found, "refrain_attempts_total", &[("outcome", "lost"), ("class", "lost")]), 1.0);
    assert_eq!(value(&found, "refrain_retries_total", &[("reason", "lost")]), 1.0);
    assert!(server.stop().await.success());

    // Stopped for longer than its lease, so that another one has its run.
    let fault = format!("staged=stop@{}", place.path("stopped").display());
    let zombie = place.start_with(&["--workers", "1", "--lease-seconds", "2"], &[("REFRAIN_FAULT", &fault)]).await;
    let id = zombie.accept("second", &of_month("2024-02")).await;
    crate::crash::stopped(&zombie).await;
    let other = place.start_with(&["--workers", "1", "--lease-seconds", "2"], &[]).await;
    assert_eq!(other.wait(&id).await["state"], "succeeded");
    zombie.signal(rustix::process::Signal::CONT);
    scrape_until(&zombie, &[("refrain_leases_lost_total", &[], 1.0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_read_is_counted_once() {
    let place = Place::new(Store::Postgres).await;
    pipeline(&place);
    let http_only = place.start_with(&["--workers", "0"], &[]).await;
    http_only.accept("unreadable", &of_month("2024-02")).await;
    place.execute("update runs set progress = '{}', rows = '{}'").await;
    let servers = tokio::join!(place.start(), place.start());
    let failed = [("pipeline", "trips"), ("outcome", "failed")];
    let end = Instant::now() + WITHIN;
    loop {
        let (one, other) = (scrape(&servers.0).await, scrape(&servers.1).await);
        let counted =
            value(&one, "refrain_runs_ended_total", &failed) + value(&other, "refrain_runs_ended_total", &failed);
        if counted > 0.0 {
            assert_eq!(counted, 1.0);
            return;
        }
        assert!(Instant::now() < end, "it is not counted\n{}", servers.0.log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_step_under_a_claim_that_is_no_longer_the_runs_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::default()).await.unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    let _here = ::metrics::set_default_local_recorder(&recorder);
    let (run, token) = (RunId::new(), ClaimToken::new());
    assert_eq!(store.finish(run, token).await.unwrap(), Fenced::Lost);
    let progress = Progress::at(Stage::Claimed);
    assert_eq!(store.renew(run, token, Duration::from_secs(1), &progress).await.unwrap(), Renewal::Lost);
    let text = recorder.handle().render();
    assert!(text.contains("refrain_refused_steps_total{step=\"finish\"} 1"), "{text}");
    // Whether its attempt was over by then is known to the heartbeat, which counts it.
    assert!(!text.contains("step=\"renew\""), "{text}");
}
