//! A folder with source files, and jobs over them.

use super::cells::canonical;
use polars::prelude::{Column, DataFrame, ParquetReader, ParquetWriter, SerReader, StatisticsOptions};
use refrain::engine::{ChildEngine, Engine, EngineError, Job, Report};
use refrain::partition::PartitionKey;
use refrain::pipeline;
use refrain::run::{Progress, RunError, Scope, Stage};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How a source file is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) row_group: usize,
    pub(super) statistics: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self { row_group: 7, statistics: true }
    }
}

/// Source files, and a staging folder for each job.
pub(super) struct Bed {
    dir: TempDir,
    jobs: AtomicU32,
    pub(super) engine: ChildEngine,
}

/// What a job gave: the report and the files, read back.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) report: Report,
    /// Those that are Parquet.
    pub(super) files: BTreeMap<String, DataFrame>,
    /// All of them as they are.
    pub(super) bytes: BTreeMap<String, Vec<u8>>,
    /// The rows kept apart.
    pub(super) quarantine: Option<DataFrame>,
}

impl Bed {
    pub(super) fn new() -> Self {
        let engine = ChildEngine { program: PathBuf::from(env!("CARGO_BIN_EXE_refrain")), memory_mb: None };
        Self { dir: tempfile::tempdir().unwrap(), jobs: AtomicU32::new(0), engine }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, columns: Vec<Column>) {
        self.write_as(name, columns, Layout::default());
    }

    pub(super) fn write_as(&self, name: &str, columns: Vec<Column>, layout: Layout) {
        let mut frame = DataFrame::new_infer_height(columns).unwrap();
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let statistics = if layout.statistics { StatisticsOptions::full() } else { StatisticsOptions::empty() };
        ParquetWriter::new(File::create(path).unwrap())
            .with_row_group_size(Some(layout.row_group))
            .with_statistics(statistics)
            .finish(&mut frame)
            .unwrap();
    }

    pub(super) fn job(&self, definition: &str, scope: Scope) -> Job {
        let staging = self.path(&format!("staging-{}", self.jobs.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&staging).unwrap();
        Job {
            definition: definition.to_owned(),
            scope,
            source_root: self.dir.path().to_owned(),
            staging,
            checkpoints: self.path("slices"),
            slice_source_bytes: u64::MAX,
            read_bytes: Some(1 << 20),
            sort_bytes: 1 << 20,
            web: refrain::engine::WebSettings::default(),
            bases: Vec::new(),
        }
    }

    /// A job over these partitions, written as requests write them; over everything for none.
    pub(super) fn job_over(&self, definition: &str, partitions: &[&str]) -> Job {
        let parsed = pipeline::parse(definition, "test").unwrap_or_else(|e| panic!("{definition}\n{e:?}"));
        let keys = partitions.iter().map(|text| parsed.partition.parse_text(text).unwrap());
        let mut keys: Vec<PartitionKey> = keys.collect();
        keys.sort();
        keys.dedup();
        self.job(definition, if keys.is_empty() { Scope::Full } else { Scope::Partitions(keys) })
    }

    /// Runs such a job.
    pub(super) async fn run(&self, definition: &str, partitions: &[&str]) -> Result<Made, RunError> {
        self.run_with(&self.engine, definition, partitions).await
    }

    pub(super) async fn run_with(
        &self,
        engine: &ChildEngine,
        definition: &str,
        partitions: &[&str],
    ) -> Result<Made, RunError> {
        Self::compute(engine, self.job_over(definition, partitions)).await.map(|(made, _)| made)
    }

    /// Runs a job; also what it told last of its progress.
    pub(super) async fn compute(engine: &ChildEngine, job: Job) -> Result<(Made, Progress), RunError> {
        let staging = job.staging.clone();
        let (progress, told) = watch::channel(Progress::at(Stage::Claimed));
        match engine.compute(job, progress, CancellationToken::new()).await {
            Ok(report) => Ok((Made::read(report, &staging), told.borrow().clone())),
            Err(EngineError::Failed(error) | EngineError::Rejected { error, .. }) => Err(error),
            Err(EngineError::Cancelled) => panic!("nobody cancelled"),
        }
    }

    pub(super) async fn made(&self, definition: &str, partitions: &[&str]) -> Made {
        self.run(definition, partitions).await.unwrap_or_else(|e| panic!("{definition}\n{e:?}"))
    }

    pub(super) async fn fails(&self, definition: &str, partitions: &[&str]) -> RunError {
        match self.run(definition, partitions).await {
            Ok(made) => panic!("expected a failure of\n{definition}\nfound {:?}", made.report),
            Err(error) => error,
        }
    }
}

impl Made {
    fn read(report: Report, staging: &Path) -> Self {
        let rows = &report.rows;
        assert!(rows.balance(), "{rows:?}");
        let (mut files, mut all) = (BTreeMap::new(), BTreeMap::new());
        for part in &report.partitions {
            let Some(name) = &part.file else {
                assert_eq!((part.rows, part.source_rows, part.bytes), (0, 0, 0));
                continue;
            };
            let path = staging.join(name);
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, part.bytes);
            all.insert(part.partition.to_string(), bytes);
            if !name.ends_with(".parquet") {
                continue;
            }
            let frame = ParquetReader::new(File::open(path).unwrap()).finish().unwrap();
            assert_eq!(frame.height() as u64, part.rows);
            files.insert(part.partition.to_string(), frame);
        }
        let quarantine = report.quarantine.as_ref().map(|kept| {
            let frame = ParquetReader::new(File::open(staging.join(&kept.path)).unwrap()).finish().unwrap();
            assert_eq!(frame.height() as u64, kept.rows);
            frame
        });
        Self { report, files, bytes: all, quarantine }
    }

    /// Each partition's digest.
    pub(super) fn digests(&self) -> BTreeMap<String, String> {
        self.report.partitions.iter().map(|p| (p.partition.to_string(), p.sha256.clone())).collect()
    }

    /// The rows of a partition's file, each value as text.
    pub(super) fn rows(&self, partition: &str) -> Vec<Vec<String>> {
        let Some(frame) = self.files.get(partition) else { return Vec::new() };
        let columns: Vec<Vec<String>> = frame.columns().iter().map(canonical).collect();
        (0..frame.height()).map(|at| columns.iter().map(|column| column[at].clone()).collect()).collect()
    }

    /// One column of a partition's file, as text.
    pub(super) fn column(&self, partition: &str, name: &str) -> Vec<String> {
        canonical(self.files[partition].column(name).unwrap())
    }

    /// Read, in scope, out of scope, filtered, rejected.
    pub(super) fn books(&self) -> [u64; 5] {
        let rows = &self.report.rows;
        [rows.read, rows.in_scope, rows.out_of_scope, rows.filtered, rows.rejected]
    }
}
