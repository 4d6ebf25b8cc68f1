//! Wires the parts, spawns named tasks, and shuts down in order.

mod access;
mod backup;
mod files;
mod fix;
mod foresight;
mod health;
mod inspect;
mod pipelines;
mod prune;
mod sweep;
mod tokens;

pub use backup::backup;
pub use fix::{Fix, FixBy};
pub use inspect::{Inspected, Inspection, Verdict, check, inspect};
pub use tokens::{TokenArgs, token_command};

use crate::config::{DatabaseSettings, Settings, WorkSettings};
use crate::engine::{ChildEngine, WebSettings};
use crate::fault::Faults;
use crate::http::{self, Api, Limits, Watches, router};
use crate::store::{PostgresOptions, PostgresStore, RunStore, SqliteOptions, SqliteStore};
use crate::table::Warehouse;
use crate::telemetry;
use crate::worker::{NoProbe, Probe, Worker, WorkerSettings};
use anyhow::{Context, bail};
use pipelines::PipelineFolder;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end, beside the grace of running attempts.
const SHUTDOWN_SECONDS: u64 = 10;

/// A service that runs.
pub struct Running {
    address: Option<SocketAddr>,
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
        self.address.map_or_else(String::new, |address| format!("http://{address}"))
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
    let store = open_store(&settings.database).await?;
    let gate = access::gate(settings.listen, &settings.access, &store).await?;
    let listener =
        TcpListener::bind(settings.listen).await.with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr()?;
    let warehouse = match settings.work.workers {
        0 => None,
        _ => Some(open_warehouse(&settings.database, store.as_ref()).await?),
    };
    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::default();
    // Before anything is counted.
    let metrics = telemetry::metrics();
    http::describe_metrics();
    if let Some(warehouse) = &warehouse {
        spawn_workers(&mut tasks, &settings.work, pipelines.tables(), &store, warehouse, &shutdown)?;
    }
    let limits = &settings.limits;
    let files = files::Files::new(Arc::clone(&store), &settings.database, warehouse.clone(), limits)?;
    let api = Api {
        store: Arc::clone(&store),
        gate,
        watches: Watches::new(Arc::clone(&store), limits.max_event_streams),
        pipelines: pipelines.current(),
        files: Arc::new(files),
        limits: Limits {
            max_body_bytes: limits.max_body_bytes,
            max_partitions_per_run: limits.max_partitions_per_run,
            max_page: limits.max_page,
            default_page: limits.max_page.min(Limits::default().default_page),
            max_wait_seconds: limits.max_wait_seconds,
            request_timeout_seconds: limits.request_timeout_seconds,
            max_event_streams: limits.max_event_streams,
            max_event_stream_seconds: limits.max_event_stream_seconds,
            event_heartbeat_seconds: Limits::default().event_heartbeat_seconds,
        },
        foresight: foresight::foresight(&source_root(&settings.work)?),
        readiness: health::readiness(store, warehouse, &pipelines, &settings.work),
        metrics,
        faults: Faults::from_environment()?,
        shutdown: shutdown.clone(),
    };
    let ending = shutdown.clone();
    tasks.spawn("http", async move {
        // Otherwise each connection had a copy of every route.
        let service = router(api).into_make_service();
        let served = axum::serve(listener, service).with_graceful_shutdown(ending.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "the HTTP server ended");
        }
    });
    let count = pipelines.current().borrow().len();
    tasks.spawn("pipelines", pipelines.reload_at(reload, shutdown.clone()));
    tracing::info!(%address, workers = settings.work.workers, pipelines = count, "serving");
    let grace = Duration::from_secs(u64::from(settings.work.shutdown_grace_seconds));
    Ok(Running { address: Some(address), tasks, shutdown, grace })
}

/// Starts the workers alone, beside other processes that serve HTTP. Needs Postgres.
pub async fn start_workers(database: &DatabaseSettings, work: &WorkSettings) -> anyhow::Result<Running> {
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
    let store = open_store(database).await?;
    let warehouse = open_warehouse(database, store.as_ref()).await?;
    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::default();
    spawn_workers(&mut tasks, work, pipelines.tables(), &store, &warehouse, &shutdown)?;
    tasks.spawn("pipelines", pipelines.reload_at(reload, shutdown.clone()));
    tracing::info!(workers = work.workers, "working");
    let grace = Duration::from_secs(u64::from(work.shutdown_grace_seconds));
    Ok(Running { address: None, tasks, shutdown, grace })
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
    tables: watch::Receiver<Arc<BTreeSet<String>>>,
    store: &Arc<dyn RunStore>,
    warehouse: &Warehouse,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let source_root = source_root(work)?;
    let program = std::env::current_exe().context("cannot find this program, to start the engine with")?;
    let probe = probe()?;
    let engine = Arc::new(ChildEngine { program, memory_mb: work.engine_memory_mb });
    let web = WebSettings {
        hosts: work.source_hosts.clone(),
        max_bytes: work.max_source_mb << 20,
        timeout_seconds: work.source_timeout_seconds,
    };
    for number in 1..=work.workers {
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
        };
        tasks.spawn("worker", worker.run(shutdown.clone()));
    }
    let every = Duration::from_secs(u64::from(work.sweep_seconds));
    tasks.spawn("sweeper", sweep::run(Arc::clone(store), warehouse.clone(), every, shutdown.clone()));
    if let Some(kept) = work.keep.runs() {
        tasks.spawn("pruner", prune::run(Arc::clone(store), warehouse.clone(), kept, every, shutdown.clone()));
    }
    tasks.spawn("observer", health::observe(Arc::clone(store), warehouse.clone(), tables, shutdown.clone()));
    Ok(())
}

fn source_root(work: &WorkSettings) -> anyhow::Result<PathBuf> {
    std::path::absolute(&work.source_root)
        .with_context(|| format!("cannot find the source root {}", work.source_root.display()))
}

/// Opens the database to serve, with its migrations applied.
pub async fn open_store(database: &DatabaseSettings) -> anyhow::Result<Arc<dyn RunStore>> {
    if let Some(url) = &database.url()? {
        let options = PostgresOptions { max_connections: database.database_connections, ..Default::default() };
        let store = PostgresStore::connect(url, options).await.context("cannot open the Postgres database")?;
        store.migrate().await.context("cannot migrate the Postgres database")?;
        return Ok(Arc::new(store));
    }
    std::fs::create_dir_all(&database.data_dir)
        .with_context(|| format!("cannot make the data folder {}", database.data_dir.display()))?;
    let path = database.sqlite_path();
    let store = SqliteStore::open(&path, SqliteOptions::default()).await;
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
