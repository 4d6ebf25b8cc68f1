//! Promises 2 and 3 with many runs at once: workers as in production over both stores, with an engine that writes what a
//! test asks for, so that hundreds of runs go through in seconds.

mod readers;
mod sequence;
mod side_by_side;

use super::store::bed::Bed;
use async_trait::async_trait;
use futures::future::BoxFuture;
use refrain::engine::{Engine, EngineError, Job, Report};
use refrain::partition::PartitionKey;
use refrain::pipeline::{self, Definition};
use refrain::run::{
    Asked, AskedPartitions, Audience, Fold, IdempotencyKey, Measured, Mode, PartFile, Principal, Progress, RowCounts,
    Run, RunId, Scalar, Scope, StagedPartition, Totals,
};
use refrain::store::{Change, NewRun, RunStore, StoredDefinition, Submitted};
use refrain::table::Warehouse;
use refrain::worker::{NoProbe, Worker, WorkerSettings};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// No test here waits longer for one thing.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run makes of a partition: a file, and as many trips as its totals say; none makes it empty.
type Makes = dyn Fn(RunId, &PartitionKey) -> Option<(Vec<u8>, u32)> + Send + Sync;

/// Held up here, a run is computing.
type Computes = dyn Fn(RunId) -> BoxFuture<'static, ()> + Send + Sync;

/// An engine that makes what it is told to.
struct MadeUp {
    computes: Box<Computes>,
    makes: Box<Makes>,
}

#[async_trait]
impl Engine for MadeUp {
    async fn compute(
        &self,
        job: Job,
        _: watch::Sender<Progress>,
        cancel: CancellationToken,
    ) -> Result<Report, EngineError> {
        let run = run_of(&job.staging);
        tokio::select! {
            () = (self.computes)(run) => {}
            () = cancel.cancelled() => return Err(EngineError::Cancelled),
        }
        let Scope::Partitions(keys) = &job.scope else { panic!("a full run") };
        let stage = |(at, key): (usize, &PartitionKey)| match (self.makes)(run, key) {
            Some((content, trips)) => {
                let file = format!("{at}.parquet");
                std::fs::write(job.staging.join(&file), &content).unwrap();
                staged(key, Some(file), &content, trips)
            }
            None => staged(key, None, b"", 0),
        };
        let partitions = keys.iter().enumerate().map(stage).collect();
        Ok(Report {
            partitions,
            rows: RowCounts::default(),
            sources: Vec::new(),
            warnings: Vec::new(),
            quarantine: None,
        })
    }
}

/// The run whose staging folder it is: `.staging/<run>/<token>`.
fn run_of(staging: &Path) -> RunId {
    let name = staging.parent().unwrap().file_name().unwrap().to_str().unwrap();
    RunId(uuid::Uuid::parse_str(name).unwrap())
}

fn staged(key: &PartitionKey, file: Option<String>, content: &[u8], trips: u32) -> StagedPartition {
    let measured = Measured { name: "trips".to_owned(), fold: Fold::Add, value: Some(Scalar::Int(trips.into())) };
    StagedPartition {
        partition: key.clone(),
        rows: trips.into(),
        totals: if file.is_some() { Totals(vec![measured]) } else { Totals::default() },
        source_rows: trips.into(),
        bytes: content.len() as u64,
        sha256: if file.is_some() { sha256(content) } else { String::new() },
        file,
    }
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Workers over both ways into a store, and a warehouse of their own.
struct Workers {
    warehouse: Warehouse,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    _folder: TempDir,
}

impl Workers {
    async fn start(bed: &Bed, workers: usize, engine: MadeUp) -> Self {
        // In memory where that can be, since hundreds of runs sync their folders.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let database = bed.store.database_id().await.unwrap();
        let warehouse = Warehouse::open(&folder.path().join("warehouse"), None, database).unwrap();
        let (shutdown, engine) = (CancellationToken::new(), Arc::new(engine));
        let mut tasks = JoinSet::new();
        for number in 0..workers {
            let settings = WorkerSettings {
                name: format!("worker-{number}"),
                source_root: folder.path().to_owned(),
                slice_source_bytes: u64::MAX,
                read_bytes: None,
                sort_bytes: u64::MAX,
                web: refrain::engine::WebSettings::default(),
                lease: Duration::from_secs(30),
                retry_delay_seconds: 1,
                max_lost_workers: 5,
                poll: Duration::from_millis(200),
                shutdown_grace: Duration::from_secs(5),
            };
            let worker = Worker {
                store: store_of(bed, number),
                engine: engine.clone(),
                warehouse: warehouse.clone(),
                settings,
                probe: Arc::new(NoProbe),
                pulse: refrain::worker::Pulse::default(),
            };
            tasks.spawn(worker.run(shutdown.clone()));
        }
        Self { warehouse, shutdown, tasks, _folder: folder }
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }

    fn live(&self, pipeline: &str, key: &str) -> Option<Vec<u8>> {
        std::fs::read(
            self.warehouse.live_path(pipeline, &PartitionKey::from_canonical(key), PartFile::Parquet).unwrap(),
        )
        .ok()
    }
}

/// Every other caller comes in by the other server.
fn store_of(bed: &Bed, number: usize) -> Arc<dyn RunStore> {
    Arc::clone(if number.is_multiple_of(2) { &bed.store } else { &bed.other })
}

/// A pipeline of two partition columns; its sources are never looked at.
fn pipeline_named(name: &str) -> Definition {
    let text = format!(
        r#"
name = "{name}"
[source]
format = "parquet"
path = "none.parquet"
[source.columns]
at = "datetime"
[partition]
date = {{ day_of = "at" }}
hour = {{ hour_of_day = "at" }}
[measures]
trips = "count(*)"
"#
    );
    pipeline::parse(&text, "a test").unwrap()
}

fn request(pipeline: &str, partitions: &[&str]) -> NewRun {
    let definition = pipeline_named(pipeline);
    let id = RunId::new();
    let mut keys: Vec<PartitionKey> = partitions.iter().map(|key| PartitionKey::from_canonical(*key)).collect();
    keys.sort();
    NewRun {
        id,
        principal: Principal::default(),
        idempotency_key: IdempotencyKey::parse(&id.to_string()).unwrap(),
        asked: Asked::new(pipeline, Mode::Overwrite, AskedPartitions(keys)),
        definition: StoredDefinition {
            hash: definition.hash.clone(),
            pipeline: pipeline.to_owned(),
            text: definition.text.clone(),
        },
        audience: Audience::default(),
    }
}

async fn submit(store: &dyn RunStore, run: &NewRun) -> Run {
    match store.submit(run).await.unwrap() {
        Submitted::New(run) => *run,
        other => panic!("{other:?}"),
    }
}

/// The run when it has ended, which it must do well.
async fn succeeded(bed: &Bed, id: RunId) -> Run {
    let mut changes = bed.store.changes();
    let ended = async {
        loop {
            let run = bed.store.get(id).await.unwrap().unwrap();
            if run.state.is_ended() {
                return run;
            }
            let its_own = async { while changes.recv().await.is_ok_and(|change| change != Change::Run(id)) {} };
            let _ = tokio::time::timeout(Duration::from_millis(200), its_own).await;
        }
    };
    let run = tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("{id} did not end"));
    assert_eq!(run.state, refrain::run::State::Succeeded, "{run:?}");
    run
}

/// Makes each case a test on both databases.
macro_rules! on_both_stores {
    ($($case:ident,)*) => {
        mod on_sqlite { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                crate::store::bed::on_sqlite(async |bed| super::$case(bed).await).await;
            }
        )* }
        mod on_postgres { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                crate::store::bed::on_postgres(async |bed| super::$case(bed).await).await;
            }
        )* }
    };
}
use on_both_stores;
