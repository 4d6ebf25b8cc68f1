//! Wires the parts, spawns named tasks, and shuts down in order.

mod access;
mod backup;
mod edge;
mod files;
mod fix;
mod foresight;
mod health;
mod inspect;
mod notify;
mod observer;
mod pipelines;
mod prune;
mod sums;
mod sweep;
mod tokens;

pub use backup::backup;
pub use fix::{Fix, FixBy};
pub use inspect::{Inspected, Inspection, Verdict, check, inspect};
pub use tokens::{TokenArgs, token_command};

use crate::config::{DatabaseSettings, NotifySettings, Settings, TelemetrySettings, WorkSettings};
use crate::engine::{ChildEngine, WebSettings};
use crate::fault::Faults;
use crate::http::{Api, Fairness, Limits, Operations, Readiness, Watches, operations_router, router};
use crate::store::{PostgresOptions, PostgresStore, RunStore, SqliteOptions, SqliteStore};
use crate::table::Warehouse;
use crate::telemetry;
use crate::worker::{NoProbe, Probe, Pulse, Worker, WorkerSettings};
use anyhow::{Context, bail};
use edge::Certificate;
use health::Health;
use pipelines::PipelineFolder;
use rustix::process::Signal;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end, beside the grace of running attempts.
const SHUTDOWN_SECONDS: u64 = 10;

/// A service that runs.
pub struct Running {
    address: Option<SocketAddr>,
    is_secured: bool,
    tasks: Tasks,
    shutdown: CancellationToken,
    grace: Duration,
}

/// Named tasks under one token.
#[derive(Default)]
struct Tasks {
    set: JoinSet<&'static str>,
    names: Vec<&'static str>,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.names.push(name);
        self.set.spawn(async move {
            task.await;
            name
        });
    }
}

impl Running {
    /// Where it listens.
    pub fn url(&self) -> String {
        let scheme = if self.is_secured { "https" } else { "http" };
        self.address.map_or_else(String::new, |address| format!("{scheme}://{address}"))
    }

    /// Runs until `stop` or until a task ends that should not, then shuts down in order.
    pub async fn until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let broken = tokio::select! {
            () = stop => None,
            ended = self.tasks.set.join_next() => Some(ended),
        };
        self.stop().await;
        match broken {
            None => Ok(()),
            Some(Some(Ok(name))) => bail!("the task {name} ended although nobody asked it to"),
            Some(Some(Err(error))) => bail!("a task broke: {error}"),
            Some(None) => bail!("there is nothing to run"),
        }
    }

    /// Shuts down: HTTP and claims end at once, running attempts within their grace; whoever is late is named in the log.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let limit = self.grace + Duration::from_secs(SHUTDOWN_SECONDS);
        let mut left = self.tasks.names.clone();
        let ended = tokio::time::timeout(limit, async {
            while let Some(ended) = self.tasks.set.join_next().await {
                if let Some(at) = ended.ok().and_then(|name| left.iter().position(|n| *n == name)) {
                    left.swap_remove(at);
                }
            }
        });
        if ended.await.is_err() {
            tracing::error!(late = left.join(", "), "tasks did not end in time");
        }
    }
}

/// Starts the HTTP interface and the workers; they run until [`Running::stop`].
pub async fn start(settings: Settings) -> anyhow::Result<Running> {
    outlive_file_size_limits()?;
    // From here on the signal does not end the process.
    let reload = signal(SignalKind::hangup()).context("cannot listen to a signal")?;
    let pipelines = PipelineFolder::load(&settings.work.pipelines)?;
    // Before anything is counted.
    let metrics = telemetry::metrics();
    let (edge, certificates) = edge::edge(&settings.edge)?;
    let is_secured = certificates.is_some();
    let certificate = certificates.as_ref().map(|found| Certificate::of(found, &settings.edge));
    let max_queued_runs = Some(settings.edge.max_queued_runs).filter(|limit| *limit > 0);
    let audiences = notify::audiences(&settings.notify)?;
    let store = open_store(&settings.database, max_queued_runs).await?;
    let gate = access::gate(settings.listen, &settings.access, &store).await?;
    let listener = listen(settings.listen)?;
    let address = listener.local_addr()?;
    let warehouse = match settings.work.workers {
        0 => None,
        _ => Some(open_warehouse(&settings.database, store.as_ref()).await?),
    };
    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::default();
    tasks.spawn("bookkeeper", sums::run(Arc::clone(&store), shutdown.clone()));
    spawn_notifier(&mut tasks, &settings.notify, &settings.database, &settings.work, &store, &shutdown)?;
    let pulses = match &warehouse {
        Some(warehouse) => spawn_workers(&mut tasks, &settings.work, &store, warehouse, &shutdown)?,
        None => Vec::new(),
    };
    let health = Health { certificate, ..health_of(&store, warehouse.clone(), pulses, &pipelines, &settings.work) };
    let readiness = watch_over(&mut tasks, health, &settings.telemetry, &shutdown).await?;
    let limits = &settings.limits;
    let files = files::Files::new(Arc::clone(&store), &settings.database, warehouse.clone(), limits)?;
    let limits = Limits {
        max_body_bytes: limits.max_body_bytes,
        max_partitions_per_run: limits.max_partitions_per_run,
        max_page: limits.max_page,
        default_page: limits.max_page.min(Limits::default().default_page),
        max_wait_seconds: limits.max_wait_seconds,
        request_timeout_seconds: limits.request_timeout_seconds,
        max_event_streams: limits.max_event_streams,
        max_event_stream_seconds: limits.max_event_stream_seconds,
        event_heartbeat_seconds: Limits::default().event_heartbeat_seconds,
        max_readers: limits.max_readers,
        max_requests_per_second: settings.edge.max_requests_per_second,
        max_submissions_per_minute: settings.edge.max_submissions_per_minute,
        max_waiting_clients: settings.edge.max_waiting_clients,
        principal_share_percent: settings.edge.principal_share_percent,
    };
    let api = Api {
        store: Arc::clone(&store),
        gate,
        watches: Watches::new(Arc::clone(&store), limits.max_event_streams),
        pipelines: pipelines.current(),
        audiences,
        files: Arc::new(files),
        fairness: Fairness::new(&limits),
        limits,
        foresight: foresight::foresight(&source_root(&settings.work)?),
        readiness,
        metrics,
        faults: Faults::from_environment()?,
        shutdown: shutdown.clone(),
    };
    tasks.spawn("http", edge.serve(listener, router(api), shutdown.clone()));
    if let Some(certificates) = certificates {
        let reload = signal(SignalKind::hangup()).context("cannot listen to a signal")?;
        tasks.spawn("certificate", certificates.reload(reload, shutdown.clone()));
    }
    let count = pipelines.current().borrow().len();
    tasks.spawn("pipelines", pipelines.reload_at(reload, shutdown.clone()));
    tracing::info!(%address, workers = settings.work.workers, pipelines = count, "serving");
    let grace = Duration::from_secs(u64::from(settings.work.shutdown_grace_seconds));
    Ok(Running { address: Some(address), is_secured, tasks, shutdown, grace })
}

/// Starts the workers alone, beside other processes that serve HTTP. Needs Postgres.
pub async fn start_workers(
    database: &DatabaseSettings,
    work: &WorkSettings,
    notify: &NotifySettings,
    telemetry: &TelemetrySettings,
) -> anyhow::Result<Running> {
    if database.url()?.is_none() {
        bail!("the embedded database has one serving process: workers of their own need --database-url");
    }
    if work.workers == 0 {
        bail!("found --workers 0, expected at least one worker");
    }
    outlive_file_size_limits()?;
    let reload = signal(SignalKind::hangup()).context("cannot listen to a signal")?;
    // Runs carry their definitions; the folder only names the tables whose locks are watched.
    let pipelines = match work.pipelines.is_dir() {
        true => PipelineFolder::load(&work.pipelines)?,
        false => PipelineFolder::absent(&work.pipelines),
    };
    let store = open_store(database, None).await?;
    let warehouse = open_warehouse(database, store.as_ref()).await?;
    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::default();
    tasks.spawn("bookkeeper", sums::run(Arc::clone(&store), shutdown.clone()));
    spawn_notifier(&mut tasks, notify, database, work, &store, &shutdown)?;
    let pulses = spawn_workers(&mut tasks, work, &store, &warehouse, &shutdown)?;
    let health = health_of(&store, Some(warehouse), pulses, &pipelines, work);
    watch_over(&mut tasks, health, telemetry, &shutdown).await?;
    tasks.spawn("pipelines", pipelines.reload_at(reload, shutdown.clone()));
    tracing::info!(workers = work.workers, "working");
    let grace = Duration::from_secs(u64::from(work.shutdown_grace_seconds));
    Ok(Running { address: None, is_secured: false, tasks, shutdown, grace })
}

/// Where the files of this process have a limit, a write beyond it fails as one on a full disk does. By default it would
/// end the process.
fn outlive_file_size_limits() -> anyhow::Result<()> {
    // Once registered, a signal never does again what it does by default.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).context("cannot listen to a signal").map(drop)
}

fn spawn_workers(
    tasks: &mut Tasks,
    work: &WorkSettings,
    store: &Arc<dyn RunStore>,
    warehouse: &Warehouse,
    shutdown: &CancellationToken,
) -> anyhow::Result<Vec<Pulse>> {
    let source_root = source_root(work)?;
    let program = std::env::current_exe().context("cannot find this program, to start the engine with")?;
    let probe = probe()?;
    let engine = Arc::new(ChildEngine { program, memory_mb: work.engine_memory_mb });
    let web = WebSettings {
        hosts: work.source_hosts.clone(),
        max_bytes: work.max_source_mb << 20,
        timeout_seconds: work.source_timeout_seconds,
    };
    let mut pulses = Vec::new();
    for number in 1..=work.workers {
        let pulse = Pulse::default();
        pulses.push(pulse.clone());
        let worker = Worker {
            store: Arc::clone(store),
            engine: engine.clone(),
            warehouse: warehouse.clone(),
            settings: WorkerSettings {
                name: format!("{}/{}/{number}", host_name(), std::process::id()),
                source_root: source_root.clone(),
                slice_source_bytes: work.slice_source_mb << 20,
                read_bytes: work.engine_memory_mb.map(|megabytes| (megabytes << 20) / 8),
                sort_bytes: sort_bytes(work.engine_memory_mb),
                web: web.clone(),
                lease: Duration::from_secs(u64::from(work.lease_seconds)),
                retry_delay_seconds: work.retry_delay_seconds,
                max_lost_workers: work.max_lost_workers,
                poll: Duration::from_secs(1),
                shutdown_grace: Duration::from_secs(u64::from(work.shutdown_grace_seconds)),
            },
            probe: Arc::clone(&probe),
            pulse,
        };
        tasks.spawn("worker", worker.run(shutdown.clone()));
    }
    let every = Duration::from_secs(u64::from(work.sweep_seconds));
    tasks.spawn("sweeper", sweep::run(Arc::clone(store), warehouse.clone(), every, shutdown.clone()));
    if let Some(kept) = work.keep.runs() {
        tasks.spawn("pruner", prune::run(Arc::clone(store), warehouse.clone(), kept, every, shutdown.clone()));
    }
    Ok(pulses)
}

fn health_of(
    store: &Arc<dyn RunStore>,
    warehouse: Option<Warehouse>,
    pulses: Vec<Pulse>,
    pipelines: &PipelineFolder,
    work: &WorkSettings,
) -> Health {
    Health {
        store: Arc::clone(store),
        warehouse,
        pulses,
        pipelines: pipelines.current(),
        errors: pipelines.errors(),
        tables: pipelines.tables(),
        lease: Duration::from_secs(u64::from(work.lease_seconds)),
        certificate: None,
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    crate::edge::listen(address).with_context(|| format!("cannot listen on {address}"))
}

/// Has the metrics kept up to date, and shown where they have an address of their own; answers what readyz shows.
async fn watch_over(
    tasks: &mut Tasks,
    health: Health,
    telemetry: &TelemetrySettings,
    shutdown: &CancellationToken,
) -> anyhow::Result<Readiness> {
    let (readiness, metrics) = (health.clone().readiness(), telemetry::metrics());
    tasks.spawn("observer", observer::run(health, Arc::clone(&readiness), metrics.clone(), shutdown.clone()));
    if let Some(address) = telemetry.metrics_listen {
        let listener = listen(address)?;
        let operations = Operations { readiness: Arc::clone(&readiness), metrics, shutdown: shutdown.clone() };
        tasks.spawn("metrics", edge::plain().serve(listener, operations_router(operations), shutdown.clone()));
    }
    Ok(readiness)
}

fn spawn_notifier(
    tasks: &mut Tasks,
    settings: &NotifySettings,
    database: &DatabaseSettings,
    work: &WorkSettings,
    store: &Arc<dyn RunStore>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    if let Some(notifier) = notify::notifier(settings, database, work, store)? {
        tasks.spawn("notifier", notifier.run(shutdown.clone()));
    }
    Ok(())
}

fn source_root(work: &WorkSettings) -> anyhow::Result<PathBuf> {
    std::path::absolute(&work.source_root)
        .with_context(|| format!("cannot find the source root {}", work.source_root.display()))
}

/// Opens the database to serve, with its migrations applied.
pub async fn open_store(
    database: &DatabaseSettings,
    max_queued_runs: Option<u32>,
) -> anyhow::Result<Arc<dyn RunStore>> {
    if let Some(url) = &database.url()? {
        let max_connections = database.database_connections;
        let options = PostgresOptions { max_connections, max_queued_runs, ..Default::default() };
        let store = PostgresStore::connect(url, options).await.context("cannot open the Postgres database")?;
        store.migrate().await.context("cannot migrate the Postgres database")?;
        return Ok(Arc::new(store));
    }
    std::fs::create_dir_all(&database.data_dir)
        .with_context(|| format!("cannot make the data folder {}", database.data_dir.display()))?;
    let path = database.sqlite_path();
    let store = SqliteStore::open(&path, SqliteOptions { max_queued_runs, ..Default::default() }).await;
    Ok(Arc::new(store.with_context(|| format!("cannot open the database {}", path.display()))?))
}

/// Opens the warehouse that belongs to the database, and binds a new one.
async fn open_warehouse(database: &DatabaseSettings, store: &dyn RunStore) -> anyhow::Result<Warehouse> {
    let root = database.warehouse_path();
    let (bound, database_id) = (store.warehouse_id().await?, store.database_id().await?);
    let opened = tokio::task::spawn_blocking(move || {
        let warehouse = Warehouse::open(&root, bound, database_id)?;
        warehouse.check_usable()?;
        warehouse.probe_names()?;
        Ok::<_, crate::table::TableError>(warehouse)
    });
    let warehouse = opened.await?.context("cannot open the warehouse")?;
    let bound = store.bind_warehouse(warehouse.id()).await?;
    if bound != warehouse.id() {
        bail!("the database belongs to warehouse {bound}, found {} at {}", warehouse.id(), warehouse.root().display());
    }
    Ok(warehouse)
}

/// Nobody, unless faults were asked for.
fn probe() -> anyhow::Result<Arc<dyn Probe>> {
    let faults = Faults::from_environment()?;
    if faults.is_empty() {
        return Ok(Arc::new(NoProbe));
    }
    tracing::warn!(?faults, "faults will happen on purpose");
    Ok(Arc::new(faults))
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// The memory that rows may take while they are sorted: some for each of the copies that sorting makes, and the rest for
/// reading and writing.
fn sort_bytes(engine_memory_mb: Option<u64>) -> u64 {
    const MOST: u64 = 256 << 20;
    engine_memory_mb.map_or(MOST, |megabytes| MOST.min((megabytes << 20) / 8))
}
