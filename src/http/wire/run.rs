//! Runs and their summaries.

use super::delivery::DeliveryView;
use super::{
    ContentIfAny, KeyValues, attempt_outcome_schema, key_values_schema, outcome_or_null_schema, state_schema, totals,
    totals_schema,
};
use crate::http::problem::TYPE_PREFIX;
use crate::pipeline::url::server_of;
use crate::run::{
    Asked, Attempt, AttemptOutcome, Base, FailureClass, Labels, Mode, Only, Outcome, Preconditions, Previous, Progress,
    Quarantine, RowCounts, Run, RunError, RunId, RunPartition, RunSummary, SourceFile, Stage, State, Totals, Warning,
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A run: a request to rebuild partitions, and what became of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(in crate::http) struct RunView<'a> {
    #[schema(value_type = Uuid)]
    id: RunId,
    /// Whose run it is.
    #[schema(example = "airflow")]
    principal: &'a str,
    /// The pipeline's name.
    #[schema(example = "zone_hour")]
    pipeline: &'a str,
    /// The key that it was submitted under.
    idempotency_key: &'a str,
    #[schema(value_type = String, example = "overwrite")]
    mode: Mode,
    #[schema(schema_with = state_schema)]
    state: State,
    /// What was asked, where the partitions were picked from it when the run was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<RangeView<'a>>,
    /// What the caller calls it by.
    #[schema(value_type = BTreeMap<String, String>)]
    labels: &'a Labels,
    /// What partitions must be when it decides: the sha256 of the file, the id of the run that wrote it, or null for none.
    #[serde(skip_serializing_if = "Preconditions::is_empty")]
    #[schema(value_type = BTreeMap<String, Option<String>>, required = false)]
    if_current: &'a Preconditions,
    /// How many seconds an attempt may compute, where the request says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u32>,
    /// The time before which it does not begin, where the request says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<DateTime<Utc>>,
    /// Among the runs that can begin, those of a higher priority do so first.
    #[schema(minimum = -100, maximum = 100)]
    priority: i32,
    /// The server that is told of its end, where the request names one; the URL's path and query may be secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<&'a str>,
    /// Its partitions in the order of their keys; for `full` known from the decision on.
    partitions: Vec<PartitionView<'a>>,
    /// The books, from the decision on.
    rows: Option<RowsView<'a>>,
    /// The files read, from the decision on.
    sources: Vec<SourceView<'a>>,
    /// Its attempts, oldest first.
    attempts: Vec<AttemptView<'a>>,
    /// What it is doing.
    progress: Option<ProgressView<'a>>,
    /// What the reader should look at.
    warnings: Vec<WarningView<'a>>,
    /// The file of rows that went into no partition; null where none were kept apart.
    quarantine: Option<QuarantineView<'a>>,
    /// Why it failed, or why its last attempt did while it waits for the next.
    error: Option<ErrorView<'a>>,
    /// The sha256 of the definition that it is executed with.
    definition: &'a str,
    /// Whether somebody asked to cancel it.
    cancel_requested: bool,
    created_at: DateTime<Utc>,
    /// When it was first claimed.
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    /// When it is tried again, while it waits for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<DateTime<Utc>>,
    /// The webhooks that are told of its end, oldest first; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    deliveries: Vec<DeliveryView<'a>>,
}

/// A range of partitions, and which of them were picked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AskedRange)]
pub(super) struct RangeView<'a> {
    #[schema(example = "pickup_month=2024-01")]
    from: &'a str,
    #[schema(example = "pickup_month=2024-12")]
    to: &'a str,
    #[schema(value_type = String, example = "missing")]
    only: Only,
}

impl<'a> RangeView<'a> {
    /// None where all that was named is rebuilt. Periods are in the order of their keys.
    pub(super) fn of(asked: &'a Asked) -> Option<Self> {
        let keys = &asked.partitions.0;
        Some(Self { from: keys.first()?.as_str(), to: keys.last()?.as_str(), only: asked.only? })
    }
}

/// One partition of a run; before the decision its outcome is null and nothing else is known.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunPartition)]
struct PartitionView<'a> {
    /// The canonical key.
    #[schema(example = "pickup_month=2024-02")]
    partition: &'a str,
    #[schema(schema_with = key_values_schema)]
    values: KeyValues<'a>,
    #[schema(schema_with = outcome_or_null_schema)]
    outcome: Option<Outcome>,
    /// What it holds after the run; absent before the decision and where it is cleared or empty.
    #[serde(flatten)]
    content: ContentIfAny<'a>,
    /// What it held before; null where it was not there, absent before the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PreviousView<'a>>)]
    previous: Option<Option<PreviousView<'a>>>,
    /// What its rows were put into, where the pipeline merges: the sha256 of the partition's file, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "none")]
    base: Option<&'a str>,
    /// The last run that has changed it after this one; null where it is as this run left it, absent before the run has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    superseded_by: Option<Option<RunId>>,
}

/// What a partition held before a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PreviousContent)]
struct PreviousView<'a> {
    rows: u64,
    #[serde(serialize_with = "totals")]
    #[schema(schema_with = totals_schema)]
    totals: &'a Totals,
    /// The run that wrote it.
    #[schema(value_type = Uuid)]
    run_id: RunId,
}

/// The books: `read = in_scope + out_of_scope + filtered + rejected`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RowCounts)]
struct RowsView<'a> {
    read: u64,
    in_scope: u64,
    out_of_scope: u64,
    filtered: u64,
    rejected: u64,
    /// The 100 partitions with the most rows, and the rest under `other`.
    #[schema(value_type = BTreeMap<String, u64>)]
    out_of_scope_by_partition: &'a BTreeMap<String, u64>,
}

/// A source file that was read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SourceFile)]
struct SourceView<'a> {
    path: &'a str,
    bytes: u64,
    rows: u64,
    /// When it was last written; null where its server does not say.
    modified: Option<DateTime<Utc>>,
    /// What the server of a URL calls this version of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
}

/// One try at a run by one worker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
struct AttemptView<'a> {
    number: u32,
    worker: &'a str,
    started_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    #[schema(schema_with = attempt_outcome_schema)]
    outcome: Option<AttemptOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView<'a>>,
}

/// How far an attempt is. A file that several slices of a run read counts in each.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub(in crate::http) struct ProgressView<'a> {
    #[schema(value_type = String, example = "scanning")]
    stage: Stage,
    /// Source files to read.
    files: u64,
    /// Of those, how many are read to their end.
    files_read: u64,
    /// Their size, as far as it is known before.
    bytes: u64,
    /// How many of those bytes are read.
    bytes_read: u64,
    /// Their rows: of Parquet known before, of text as soon as they are read.
    rows: u64,
    rows_read: u64,
    /// Partitions to stage.
    partitions: u64,
    partitions_staged: u64,
    /// Of those, how many an earlier attempt had made.
    partitions_taken_over: u64,
    partitions_published: u64,
    /// Why publishing waits, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<&'a str>,
    /// When the reading, the staging or the publishing that is under way will be done at its pace so far; null where there is no
    /// ground to say so. It is never in the past.
    estimated_end: Option<DateTime<Utc>>,
}

/// Something that the reader of a run should look at.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Warning)]
struct WarningView<'a> {
    #[serde(rename = "type")]
    #[schema(example = "strays-next-door")]
    kind: &'a str,
    detail: &'a str,
}

/// A Parquet file of rows that went into no partition, each with the reason.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Quarantine)]
struct QuarantineView<'a> {
    /// Relative to the warehouse.
    #[schema(example = "_quarantine/zone_hour/019342e4-…/5f0c….parquet")]
    path: &'a str,
    /// The rows of the file.
    rows: u64,
    /// The rows that there were.
    of: u64,
    /// Whether the file has the first ones only.
    capped: bool,
    sha256: &'a str,
    bytes: u64,
}

/// Why a run or an attempt failed: a problem object of its own.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunError)]
pub(super) struct ErrorView<'a> {
    #[serde(rename = "type")]
    #[schema(example = "urn:refrain:problem:source-missing")]
    kind: String,
    title: &'a str,
    detail: &'a str,
    /// How it is retried.
    #[schema(value_type = String, example = "source")]
    class: FailureClass,
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct RunList<'a> {
    pub(in crate::http) runs: Vec<SummaryView<'a>>,
    /// Gives the next page; null on the last.
    pub(in crate::http) next_cursor: Option<String>,
}

/// A run in a listing.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunSummary)]
pub(in crate::http) struct SummaryView<'a> {
    #[schema(value_type = Uuid)]
    id: RunId,
    /// Whose run it is.
    #[schema(example = "airflow")]
    principal: &'a str,
    pipeline: &'a str,
    idempotency_key: &'a str,
    #[schema(value_type = String, example = "overwrite")]
    mode: Mode,
    #[schema(schema_with = state_schema)]
    state: State,
    /// What the caller calls it by.
    #[schema(value_type = BTreeMap<String, String>)]
    labels: &'a Labels,
    /// How many partitions it names (or made, for `full`).
    partitions: u64,
    /// How often it was tried.
    attempts: u32,
    /// The time before which it does not begin, where the request says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<DateTime<Utc>>,
    #[schema(minimum = -100, maximum = 100)]
    priority: i32,
    error: Option<ErrorView<'a>>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
}

impl<'a> From<&'a Run> for RunView<'a> {
    fn from(run: &'a Run) -> Self {
        Self {
            id: run.id,
            principal: &run.principal.0,
            pipeline: &run.pipeline,
            idempotency_key: run.idempotency_key.as_str(),
            mode: run.mode,
            state: run.state,
            asked: RangeView::of(&run.asked),
            labels: &run.asked.labels,
            if_current: &run.asked.if_current,
            timeout_seconds: run.asked.timeout_seconds,
            not_before: run.asked.not_before,
            priority: run.asked.priority,
            webhook: run.asked.webhook.as_deref().map(server_of),
            partitions: run.partitions.iter().map(|partition| PartitionView::of(partition, run.state)).collect(),
            rows: run.rows.as_ref().map(RowsView::from),
            sources: run.sources.iter().map(SourceView::from).collect(),
            attempts: run.attempts.iter().map(AttemptView::from).collect(),
            progress: run.progress.as_ref().map(ProgressView::from),
            warnings: run.warnings.iter().map(WarningView::from).collect(),
            quarantine: run.quarantine.as_ref().map(QuarantineView::from),
            error: run.error.as_ref().map(ErrorView::from),
            definition: &run.definition.0,
            cancel_requested: run.cancel_requested,
            created_at: run.created_at,
            started_at: run.started_at,
            ended_at: run.ended_at,
            due_at: (!run.state.is_ended() && run.error.is_some()).then_some(run.due_at),
            deliveries: run.deliveries.iter().map(DeliveryView::from).collect(),
        }
    }
}

impl<'a> PartitionView<'a> {
    fn of(p: &'a RunPartition, run: State) -> Self {
        Self {
            partition: p.partition.as_str(),
            values: KeyValues(&p.partition),
            outcome: p.outcome,
            content: p.content.as_ref().into(),
            previous: p.outcome.map(|_| p.previous.as_ref().map(PreviousView::from)),
            base: p.base.as_ref().map(Base::as_str),
            superseded_by: (run == State::Succeeded).then_some(p.superseded_by),
        }
    }
}

impl<'a> From<&'a Previous> for PreviousView<'a> {
    fn from(p: &'a Previous) -> Self {
        Self { rows: p.rows, totals: &p.totals, run_id: p.run_id }
    }
}

impl<'a> From<&'a RowCounts> for RowsView<'a> {
    fn from(rows: &'a RowCounts) -> Self {
        let RowCounts { read, in_scope, out_of_scope, filtered, rejected, out_of_scope_by_partition } = rows;
        Self {
            read: *read,
            in_scope: *in_scope,
            out_of_scope: *out_of_scope,
            filtered: *filtered,
            rejected: *rejected,
            out_of_scope_by_partition,
        }
    }
}

impl<'a> From<&'a SourceFile> for SourceView<'a> {
    fn from(s: &'a SourceFile) -> Self {
        Self { path: &s.path, bytes: s.bytes, rows: s.rows, modified: s.modified, etag: s.etag.as_deref() }
    }
}

impl<'a> From<&'a Attempt> for AttemptView<'a> {
    fn from(a: &'a Attempt) -> Self {
        Self {
            number: a.number,
            worker: &a.worker,
            started_at: a.started_at,
            ended_at: a.ended_at,
            outcome: a.outcome,
            error: a.error.as_ref().map(ErrorView::from),
        }
    }
}

impl<'a> From<&'a Progress> for ProgressView<'a> {
    fn from(p: &'a Progress) -> Self {
        Self {
            stage: p.stage,
            files: p.files,
            files_read: p.files_read,
            bytes: p.bytes.max(p.bytes_read),
            bytes_read: p.bytes_read,
            rows: p.rows.max(p.rows_read),
            rows_read: p.rows_read,
            partitions: p.partitions,
            partitions_staged: p.partitions_staged,
            partitions_taken_over: p.partitions_taken_over,
            partitions_published: p.partitions_published,
            waiting_for: p.waiting_for.as_deref(),
            // One that has passed was wrong.
            estimated_end: p.estimated_end.filter(|end| *end > Utc::now()),
        }
    }
}

impl<'a> From<&'a Warning> for WarningView<'a> {
    fn from(w: &'a Warning) -> Self {
        Self { kind: &w.kind, detail: &w.detail }
    }
}

impl<'a> From<&'a Quarantine> for QuarantineView<'a> {
    fn from(q: &'a Quarantine) -> Self {
        let Quarantine { path, rows, of, bytes, sha256 } = q;
        Self { path, rows: *rows, of: *of, capped: q.is_capped(), sha256, bytes: *bytes }
    }
}

impl<'a> From<&'a RunError> for ErrorView<'a> {
    fn from(e: &'a RunError) -> Self {
        let kind = format!("{TYPE_PREFIX}{}", e.kind);
        Self { kind, title: &e.title, detail: &e.detail, class: e.class }
    }
}

impl<'a> From<&'a RunSummary> for SummaryView<'a> {
    fn from(s: &'a RunSummary) -> Self {
        Self {
            id: s.id,
            principal: &s.principal.0,
            pipeline: &s.pipeline,
            idempotency_key: s.idempotency_key.as_str(),
            mode: s.mode,
            state: s.state,
            labels: &s.labels,
            partitions: s.partitions,
            attempts: s.attempts,
            not_before: s.not_before,
            priority: s.priority,
            error: s.error.as_ref().map(ErrorView::from),
            created_at: s.created_at,
            started_at: s.started_at,
            ended_at: s.ended_at,
        }
    }
}
