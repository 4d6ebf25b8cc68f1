//! The engine: a definition, its sources and a scope become staged files and a report.

mod child;
mod environment;
mod error;
mod extract;
mod local;
mod polars;
mod text;
mod web;

pub use child::{ChildEngine, DEATHS, serve_child};
pub use extract::{Extract, ExtractError, Extracted, Extractor, RowFormat, serve_extract};
pub use local::LocalFiles;
pub use web::WebSettings;

use crate::partition::PartitionKey;
use crate::run::{Progress, Quarantine, RowCounts, RunError, Scope, SourceFile, StagedPartition, Warning};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What an attempt computes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The definition's text, as accepted.
    pub definition: String,
    /// What is rebuilt.
    pub scope: Scope,
    /// Where relative source paths start.
    pub source_root: PathBuf,
    /// The attempt's own folder, made by the caller: partition files go straight into it.
    pub staging: PathBuf,
    /// The run's folder of checkpoints, beside the attempt's own, there or not.
    pub checkpoints: PathBuf,
    /// The size in bytes of the source files at which a slice ends.
    pub slice_source_bytes: u64,
    /// The memory in bytes that rows may take while they are read, about; none for no bound.
    pub read_bytes: Option<u64>,
    /// The memory in bytes that rows may take while they are sorted; more are written aside.
    pub sort_bytes: u64,
    /// What may be read by HTTP.
    pub web: WebSettings,
    /// Where the pipeline merges: the files that partitions are now, in the order of their keys.
    pub bases: Vec<MergeBase>,
}

/// The file into which a partition's rows are put.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergeBase {
    /// Whose it is.
    pub partition: PartitionKey,
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// Its digest in hex; a file with another one is not read.
    pub sha256: String,
}

impl MergeBase {
    /// The kind of failure where the file is another one, or none.
    pub const DAMAGED: &'static str = "merge-base-damaged";
}

/// What an attempt computed. Every file named in it is written, hashed and synced, and so is the staging folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// For a scope of partitions each of them, in order; for `full` those that have rows.
    pub partitions: Vec<StagedPartition>,
    /// The books.
    pub rows: RowCounts,
    /// The files read, in the order of their paths.
    pub sources: Vec<SourceFile>,
    /// What the reader of the run should look at.
    pub warnings: Vec<Warning>,
    /// The rows kept apart, in the staging folder; none where there are none.
    pub quarantine: Option<Quarantine>,
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It failed; the error says how and in which class. A dead child is class `lost`.
    #[error("{}", .0.detail)]
    Failed(RunError),
    /// It rejected more rows than the pipeline allows; those that it has kept apart by then are in the staging folder.
    #[error("{}", .error.detail)]
    Rejected {
        /// What it says of them.
        error: RunError,
        /// The rows.
        quarantine: Box<Quarantine>,
    },
    /// It was stopped because the caller asked.
    #[error("the computation was cancelled")]
    Cancelled,
}

impl From<RunError> for EngineError {
    fn from(error: RunError) -> Self {
        EngineError::Failed(error)
    }
}

/// Computes what a run needs, in a way that can be stopped at any time.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Computes the job. When this returns, however it does, nothing of it runs any more, so the staging folder is the
    /// caller's alone. Cancelling stops it at once.
    async fn compute(
        &self,
        job: Job,
        progress: watch::Sender<Progress>,
        cancel: CancellationToken,
    ) -> Result<Report, EngineError>;
}
