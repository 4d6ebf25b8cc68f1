//! The HTTP interface: the router as it is served, over a SQLite file of its own.

mod access;
mod backfill;
mod client;
mod data;
mod docs;
mod events;
mod fair;
mod faulty;
mod gate;
mod hostile;
mod layers;
mod options;
mod partitions;
mod pipelines;
mod plan;
mod replay;
mod runs;
mod spec;
mod submit;
mod unreadable;
mod webhooks;
mod worker;

pub(crate) use data::Shelf;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use chrono::{DateTime, TimeZone, Utc};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use refrain::fault::Faults;
use refrain::http::{Api, Check, Fairness, Gate, Limits, OpenTo, Pipelines, Watches, router};
use refrain::notify::Audiences;
use refrain::pipeline;
use refrain::store::{RunStore, SqliteOptions, SqliteStore, TokenStore};
use refrain::telemetry::Metrics;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Trips by month.
const MONTHLY: &str = r#"
name = "monthly"
description = "Trips by month"
[source]
format = "parquet"
path = "trips_%Y-%m.parquet"
neighbours = 1
[source.columns]
at = "datetime"
amount = "decimal(18,2) not null"
[partition]
month = { month_of = "at" }
[dimensions]
hour = { truncate = "at", to = "hour" }
[measures]
trips = "count(*)"
revenue = "sum(amount)"
mean = "avg(amount)"
"#;

/// Two partition columns.
const HOURLY: &str = r#"
name = "hourly"
[source]
format = "parquet"
path = "events/*.parquet"
[source.columns]
at = "datetime"
[partition]
date = { day_of = "at" }
hour = { hour_of_day = "at" }
[measures]
events = "count(*)"
"#;

/// Texts as partition values.
const BY_KIND: &str = r#"
name = "by_kind"
[source]
format = "parquet"
path = "kinds.parquet"
[source.columns]
kind = "string"
[partition]
kind = { value_of = "kind" }
[measures]
events = "count(*)"
"#;

/// What the service stands on, as the tests set it.
type Checks = Arc<Mutex<Vec<Check>>>;

/// The router and what is behind it.
struct App {
    router: Router,
    api: Api,
    store: Arc<dyn RunStore>,
    checks: Checks,
    shelf: Arc<Shelf>,
    clock: Arc<Mutex<DateTime<Utc>>>,
    folder: TempDir,
}

/// An answer, read to its end.
struct Answer {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    body: Vec<u8>,
}

impl App {
    async fn new() -> Self {
        Self::with(Limits::default(), &[MONTHLY, HOURLY, BY_KIND]).await
    }

    async fn with(limits: Limits, pipelines: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(Mutex::new(Utc.with_ymd_and_hms(2024, 3, 1, 6, 0, 0).unwrap()));
        let told = Arc::clone(&clock);
        let options = SqliteOptions { clock: Arc::new(move || *told.lock().unwrap()), ..SqliteOptions::default() };
        let store: Arc<dyn RunStore> = Arc::new(SqliteStore::open(&folder.path().join("db"), options).await.unwrap());
        let checks = Checks::default();
        let seen = Arc::clone(&checks);
        let shelf = Arc::new(Shelf::default());
        let api = Api {
            store: Arc::clone(&store),
            gate: Gate::new(Arc::clone(&store) as Arc<dyn TokenStore>, Gate::FRESH_FOR, OpenTo::ThisMachine),
            watches: Watches::new(Arc::clone(&store), limits.max_event_streams),
            files: shelf.clone(),
            audiences: Audiences::default(),
            pipelines: watch::channel(Arc::new(parsed(pipelines))).1,
            fairness: Fairness::new(&limits),
            limits,
            readiness: Arc::new(move || {
                let checks = seen.lock().unwrap().clone();
                Box::pin(async move { checks })
            }),
            metrics: Metrics::of(PrometheusBuilder::new().build_recorder().handle()),
            foresight: plan::foresight(),
            faults: Faults::default(),
            shutdown: CancellationToken::new(),
        };
        Self { router: router(api.clone()), api, store, checks, shelf, clock, folder }
    }

    /// The same service with other pipelines, as after a change of the files and a restart.
    fn reload(&mut self, pipelines: &[&str]) {
        self.api.pipelines = watch::channel(Arc::new(parsed(pipelines))).1;
        self.router = router(self.api.clone());
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.router, request).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn get_if_changed(&self, path: &str, tag: &str) -> Answer {
        self.send(Request::get(path).header(header::IF_NONE_MATCH, tag).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(json_request(path, body.to_string()).body(Body::from(body.to_string())).unwrap()).await
    }

    async fn submit(&self, key: &str, body: &Value) -> Answer {
        let request = json_request("/runs", body.to_string()).header("idempotency-key", key);
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// Submits what must be accepted; answers the run's id.
    async fn accepted(&self, key: &str, body: &Value) -> String {
        let answer = self.submit(key, body).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks that this is a problem of that status and name; answers its body.
    #[track_caller]
    fn problem(&self, status: u16, name: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["type"], format!("urn:refrain:problem:{name}"), "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert!(body["title"].is_string() && body["detail"].is_string(), "{body}");
        body
    }

    /// The only error of an invalid request: its pointer and detail.
    #[track_caller]
    fn field(&self) -> (String, String) {
        let body = self.problem(422, "invalid-request");
        let errors = body["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 1, "{body}");
        let text = |name: &str| errors[0][name].as_str().unwrap().to_owned();
        (text("pointer"), text("detail"))
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(&self.body))
    }
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

fn json_request(path: &str, body: String) -> axum::http::request::Builder {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, body.len())
}

fn parsed(pipelines: &[&str]) -> Pipelines {
    let parse = |text: &&str| pipeline::parse(text, "a test").unwrap_or_else(|errors| panic!("{errors:?}"));
    pipelines.iter().map(parse).map(|definition| (definition.name.clone(), Arc::new(definition))).collect()
}

/// A request for these months.
fn months(months: &[&str]) -> Value {
    json!({"pipeline": "monthly", "partitions": months})
}
