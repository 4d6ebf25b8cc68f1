//! For those who keep the service running: liveness, readiness, metrics, and the interface's own description.

use super::problem::{Problem, ProblemDetails, render_problems};
use super::{Check, Readiness, Server};
use crate::telemetry::Metrics;
use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use std::sync::LazyLock;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
        .routes(routes!(openapi_json))
        .routes(routes!(openapi_yaml))
}

/// What those who keep the service running ask about.
#[derive(Clone)]
pub struct Operations {
    /// What `/readyz` shows.
    pub readiness: Readiness,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// Whether it ends.
    pub shutdown: CancellationToken,
}

impl FromRef<Server> for Operations {
    fn from_ref(api: &Server) -> Self {
        Self { readiness: api.readiness.clone(), metrics: api.metrics.clone(), shutdown: api.shutdown.clone() }
    }
}

/// `/healthz`, `/readyz` and `/metrics` alone, for an address of their own.
pub fn operations_router(operations: Operations) -> Router {
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz_of_operations))
        .route("/metrics", get(metrics));
    routes.fallback(super::no_such_path).layer(from_fn(render_problems)).with_state(operations)
}

/// In place of what was found, for those who have no token for all pipelines.
const WITHHELD: &str = "told to tokens for all pipelines";

/// Whether the service can do its work.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Readiness)]
struct Ready {
    /// Whether every essential check is all right.
    ready: bool,
    /// Whether some other check is not: requests are served, but some runs are held up.
    degraded: bool,
    checks: Vec<Check>,
}

/// Whether the process lives.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    #[schema(example = "ok")]
    status: &'static str,
}

/// Says that the process lives and its runtime answers, and nothing of what it stands on.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, description = "It lives", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Says whether the service can do its work, and what is missing or held up: in detail to tokens for all pipelines, where there
/// are tokens.
#[utoipa::path(get, path = "/readyz", tag = "operations", responses(
    (status = 200, description = "Every essential check is all right; `degraded` says whether another one is not",
        body = Ready),
    (status = 503, description = "An essential check is not, or the service is shutting down; `checks` lists them all",
        body = ProblemDetails, content_type = "application/problem+json"),
))]
async fn readyz(State(api): State<Server>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let (operations, tells_all) = (Operations::from_ref(&api), api.gate.tells_all(&uri, &headers));
    let mut checks = checks(&operations).await;
    if !tells_all.await {
        checks.iter_mut().for_each(|check| WITHHELD.clone_into(&mut check.detail));
    }
    ready(checks)
}

async fn readyz_of_operations(State(operations): State<Operations>) -> Result<Response, Problem> {
    let checks = checks(&operations).await;
    ready(checks)
}

async fn checks(operations: &Operations) -> Vec<Check> {
    let mut checks = (operations.readiness)().await;
    if operations.shutdown.is_cancelled() {
        let detail = "shutting down".to_owned();
        checks.push(Check { name: "serving".to_owned(), ok: false, essential: true, detail });
    }
    checks
}

fn ready(checks: Vec<Check>) -> Result<Response, Problem> {
    if checks.iter().any(|check| check.essential && !check.ok) {
        return Err(Problem::NotReady(checks));
    }
    let degraded = checks.iter().any(|check| !check.ok);
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(Ready { ready: true, degraded, checks })).into_response())
}

/// The metrics, in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses(
    (status = 200, description = "All metrics", content_type = "text/plain", body = String),
))]
async fn metrics(State(operations): State<Operations>) -> Response {
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, format)], operations.metrics.render()).into_response()
}

/// This description, as JSON.
#[utoipa::path(get, path = "/openapi.json", tag = "operations", responses(
    (status = 200, description = "OpenAPI 3.1", content_type = "application/json"),
    (status = 500, description = "It cannot be written", content_type = "application/problem+json", body = ProblemDetails),
))]
async fn openapi_json() -> Result<Response, Problem> {
    static TEXT: LazyLock<Result<String, String>> =
        LazyLock::new(|| super::openapi().to_pretty_json().map_err(|e| e.to_string()));
    described(&TEXT, "application/json")
}

/// This description, as YAML.
#[utoipa::path(get, path = "/openapi.yaml", tag = "operations", responses(
    (status = 200, description = "OpenAPI 3.1", content_type = "application/yaml"),
    (status = 500, description = "It cannot be written", content_type = "application/problem+json", body = ProblemDetails),
))]
async fn openapi_yaml() -> Result<Response, Problem> {
    static TEXT: LazyLock<Result<String, String>> =
        LazyLock::new(|| super::openapi().to_yaml().map_err(|e| e.to_string()));
    described(&TEXT, "application/yaml")
}

fn described(text: &'static Result<String, String>, media_type: &'static str) -> Result<Response, Problem> {
    match text {
        Ok(text) => Ok(([(header::CONTENT_TYPE, media_type)], text.as_str()).into_response()),
        Err(error) => {
            tracing::error!(error, "the description of the interface cannot be written");
            Err(Problem::Internal)
        }
    }
}
