//! What a webhook says.

use crate::run::{FailureClass, Labels, Mode, Notice, RunError, RunId, State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What is told of a run's end.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunEnded)]
pub struct WebhookBody<'a> {
    /// `run.succeeded`, `run.failed` or `run.cancelled`.
    #[serde(rename = "type")]
    #[schema(example = "run.succeeded")]
    event: String,
    /// When the run ended, whenever it is told.
    timestamp: DateTime<Utc>,
    data: EndedRun<'a>,
}

/// The run as it was when it ended: it may be queued again afterwards.
#[derive(Debug, Serialize, ToSchema)]
struct EndedRun<'a> {
    #[schema(value_type = Uuid)]
    run_id: RunId,
    #[schema(example = "zone_hour")]
    pipeline: &'a str,
    /// The key that it was submitted under.
    idempotency_key: &'a str,
    /// Whose key it is.
    #[schema(example = "default")]
    principal: &'a str,
    #[schema(value_type = String, example = "overwrite")]
    mode: Mode,
    #[schema(value_type = String, example = "succeeded")]
    state: State,
    /// Its last attempt; 0 where it ended before its first.
    attempt: u32,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    ended_at: DateTime<Utc>,
    /// What the caller calls it by.
    #[schema(value_type = BTreeMap<String, String>)]
    labels: &'a Labels,
    /// The sha256 of the definition that it was executed with.
    definition: &'a str,
    /// Its partitions, counted.
    partitions: EndedPartitions<'a>,
    /// The books; null where nothing was decided.
    rows: Option<EndedRows>,
    /// Why it failed; null where it did not.
    error: Option<EndedError<'a>>,
}

/// The partitions of an ended run, counted.
#[derive(Debug, Serialize, ToSchema)]
struct EndedPartitions<'a> {
    /// How many it names, or made.
    named: u64,
    /// How many of them came out how: `created`, `replaced`, `unchanged`, `cleared`, `empty`.
    #[schema(example = json!({"replaced": 2, "unchanged": 1}))]
    outcomes: &'a BTreeMap<String, u64>,
}

/// The books: `read = in_scope + out_of_scope + filtered + rejected`.
#[derive(Debug, Serialize, ToSchema)]
struct EndedRows {
    read: u64,
    in_scope: u64,
    out_of_scope: u64,
    filtered: u64,
    rejected: u64,
}

/// Why a run failed.
#[derive(Debug, Serialize, ToSchema)]
struct EndedError<'a> {
    #[serde(rename = "type")]
    #[schema(example = "urn:refrain:problem:source-missing")]
    kind: String,
    title: &'a str,
    detail: &'a str,
    #[schema(value_type = String, example = "source")]
    class: FailureClass,
}

impl<'a> From<&'a Notice> for WebhookBody<'a> {
    fn from(notice: &'a Notice) -> Self {
        Self { event: notice.event(), timestamp: notice.at, data: EndedRun::from(notice) }
    }
}

impl<'a> From<&'a Notice> for EndedRun<'a> {
    fn from(notice: &'a Notice) -> Self {
        Self {
            run_id: notice.run_id,
            pipeline: &notice.pipeline,
            idempotency_key: &notice.idempotency_key,
            principal: &notice.principal,
            mode: notice.mode,
            state: notice.state,
            attempt: notice.attempt,
            created_at: notice.created_at,
            started_at: notice.started_at,
            ended_at: notice.at,
            labels: &notice.labels,
            definition: &notice.definition.0,
            partitions: EndedPartitions { named: notice.partitions.named, outcomes: &notice.partitions.outcomes },
            rows: notice.rows.as_ref().map(|rows| EndedRows {
                read: rows.read,
                in_scope: rows.in_scope,
                out_of_scope: rows.out_of_scope,
                filtered: rows.filtered,
                rejected: rows.rejected,
            }),
            error: notice.error.as_ref().map(|error| EndedError {
                kind: format!("{}{}", RunError::TYPE_PREFIX, error.kind),
                title: &error.title,
                detail: &error.detail,
                class: error.class,
            }),
        }
    }
}
