//! The HTTP interface: the router, what it needs, and its limits.

mod accept;
mod admission;
mod answer;
mod body;
mod caller;
mod data;
mod docs;
mod fair;
mod gate;
mod health;
mod local;
mod met;
mod middleware;
mod object;
mod params;
mod partitions;
mod pipelines;
pub mod problem;
mod questions;
mod runs;
mod server;
mod together;
mod webhooks;
mod wire;

use crate::fault::Faults;
use crate::notify::Audiences;
use crate::pipeline::Definition;
use crate::pipeline::sources::Foreseen;
use crate::run::{RunError, Scope};
use crate::store::RunStore;
use crate::telemetry::Metrics;
use axum::http::HeaderName;
use axum::{Router, response::IntoResponse};
use futures::future::BoxFuture;
use problem::Problem;
use server::Server;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub use caller::{Bearer, Caller};
pub use data::{FilesError, OpenedFile, PartitionFiles, RowStream, RowsAs, RowsAsked};
pub use fair::Fairness;
pub use gate::{Gate, OpenTo};
pub use health::{Operations, operations_router};
pub use problem::{connection_refused, plain_http_refused};
pub use runs::{IfFailed, PartitionAsked, PartitionsAsked, RangeAsked, SubmitRequest, Watches};

/// The header that carries a request's id, in both directions.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header that carries a submission's key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header that says that an answer shows a run which was accepted before.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The checked pipelines of the server, by name.
pub type Pipelines = BTreeMap<String, Arc<Definition>>;

/// Looks at the sources that a run would read.
pub type Foresight =
    Arc<dyn Fn(Arc<Definition>, Scope) -> BoxFuture<'static, Result<Foreseen, RunError>> + Send + Sync>;

/// Looks at what the service stands on.
pub type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Vec<Check>> + Send + Sync>;

/// One thing that the service stands on, and whether it is all right.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct Check {
    /// What was looked at, e.g. `database`.
    #[schema(example = "database")]
    pub name: String,
    /// Whether it is all right.
    pub ok: bool,
    /// Whether the service can do nothing without it. What is not essential holds up some runs only; the rest goes on.
    pub essential: bool,
    /// What was found.
    pub detail: String,
}

/// How much one request may ask for.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The longest body.
    pub max_body_bytes: usize,
    /// The most partitions that a run may name.
    pub max_partitions_per_run: usize,
    /// The most entries on a page.
    pub max_page: u32,
    /// The entries on a page where the request does not say.
    pub default_page: u32,
    /// The longest wait for a run's end.
    pub max_wait_seconds: u32,
    /// The longest time for a body, and for an answer beside the wait.
    pub request_timeout_seconds: u64,
    /// The most streams of events at the same time.
    pub max_event_streams: usize,
    /// How long a stream of events goes on.
    pub max_event_stream_seconds: u64,
    /// How long a stream of events is silent before it says that it is there.
    pub event_heartbeat_seconds: u64,
    /// The most files whose rows are read at the same time.
    pub max_readers: u32,
    /// The most requests of one principal to runs and pipelines, each second; 0 for no limit.
    pub max_requests_per_second: u32,
    /// The most submissions of one principal, each minute; 0 for no limit.
    pub max_submissions_per_minute: u32,
    /// The most clients of one principal that wait for runs; 0 for no limit.
    pub max_waiting_clients: u32,
    /// What one principal may have of the streams and the readers, in percent, where there are tokens.
    pub principal_share_percent: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 1 << 20,
            max_partitions_per_run: 10_000,
            max_page: 1000,
            default_page: 100,
            max_wait_seconds: 60,
            request_timeout_seconds: 30,
            max_event_streams: 1_000,
            max_event_stream_seconds: 3_600,
            event_heartbeat_seconds: 15,
            max_readers: 4,
            max_requests_per_second: 1_000,
            max_submissions_per_minute: 12_000,
            max_waiting_clients: 11_000,
            principal_share_percent: 50,
        }
    }
}

/// What the handlers need.
#[derive(Clone)]
pub struct Api {
    /// The run store.
    pub store: Arc<dyn RunStore>,
    /// Who is let in.
    pub gate: Gate,
    /// Who waits for runs of that store.
    pub watches: Watches,
    /// The pipelines as they are now; all of them are exchanged at once when their files are read again.
    pub pipelines: watch::Receiver<Arc<Pipelines>>,
    /// Who is told of the runs that are accepted.
    pub audiences: Audiences,
    /// The files of partitions.
    pub files: Arc<dyn PartitionFiles>,
    /// How much one request may ask for.
    pub limits: Limits,
    /// What each principal has taken.
    pub fairness: Fairness,
    /// What a dry run looks at.
    pub foresight: Foresight,
    /// What `/readyz` shows.
    pub readiness: Readiness,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// What happens on purpose before answers.
    pub faults: Faults,
    /// Ends the waits for runs.
    pub shutdown: CancellationToken,
}

impl Api {
    /// The pipeline of this name, or a 404 that lists those that there are for the caller.
    fn pipeline(&self, caller: &Caller, name: &str) -> Result<Arc<Definition>, Problem> {
        let seen = self.definition(name).filter(|_| caller.sees(name));
        seen.ok_or_else(|| Problem::NoSuchPipeline { name: name.to_owned(), known: self.pipeline_names(caller) })
    }

    /// The pipeline of this name as it is now, whoever asks.
    fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        self.pipelines.borrow().get(name).cloned()
    }

    /// The pipelines that there are for the caller.
    fn pipeline_names(&self, caller: &Caller) -> Vec<String> {
        self.pipelines.borrow().keys().filter(|name| caller.sees(name)).cloned().collect()
    }
}

/// The whole interface.
pub fn router(api: Api) -> Router {
    let routes: Router<Server> = routes().into();
    let server = Server::of(api);
    middleware::around(routes.fallback(no_such_path), &server).with_state(server)
}

/// What the interface is, as OpenAPI.
pub fn openapi() -> OpenApi {
    let mut api = routes().into_openapi();
    admission::describe(&mut api);
    // The router's mark of a parameter that spans slashes is unknown to OpenAPI.
    let paths = std::mem::take(&mut api.paths.paths);
    api.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    webhooks::describe(&mut api);
    api
}

fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::with_openapi(Described::openapi())
        .merge(runs::routes())
        .merge(pipelines::routes())
        .merge(partitions::routes())
        .merge(data::routes())
        .merge(health::routes())
        .merge(docs::routes())
}

async fn no_such_path() -> impl IntoResponse {
    Problem::NoSuchPath
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Refrain",
        description = "Runs partitioned ETL jobs so that running one twice is the same as running it once.",
    ),
    // Described in words where it is sent.
    components(schemas(wire::StateView<'_>)),
    tags(
        (name = "runs", description = "Requests to rebuild partitions, and what became of them"),
        (name = "pipelines", description = "The definitions, and what their tables hold now"),
        (name = "operations", description = "For those who keep the service running"),
    ),
)]
struct Described;
