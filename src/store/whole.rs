//! A run with all that belongs to it: its row, and lists that come with it as JSON, in which documents are texts.

use super::rows::{definition_hash, idempotency_key, mode, run_id, state};
use super::tx::{Row, unreadable};
use super::{KnownKey, RunControl, StoreError, StoreResult, UnreadableRun};
use crate::partition::PartitionKey;
use crate::run::{
    Attempt, AttemptOutcome, Base, DefinitionHash, Delivery, DeliveryState, Fingerprint, Outcome, Principal, Run,
    RunId, RunPartition,
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt::Display;
use uuid::Uuid;

#[derive(Deserialize)]
struct PartitionRow {
    partition: String,
    outcome: Option<String>,
    content: Option<String>,
    previous: Option<String>,
    base: Option<String>,
}

#[derive(Deserialize)]
struct AttemptRow {
    number: u32,
    worker: String,
    started_at: i64,
    ended_at: Option<i64>,
    outcome: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct SupersededRow {
    partition: String,
    run_id: Uuid,
}

#[derive(Deserialize)]
struct DeliveryRow {
    position: i64,
    id: Uuid,
    event: String,
    url: String,
    state: String,
    tries: u32,
    last_status: Option<i64>,
    last_error: Option<String>,
    last_try_at: Option<i64>,
    due_at: i64,
}

/// The run; where its documents cannot be read, an error that says what can be.
pub(super) fn run(row: &Row) -> StoreResult<Run> {
    whole(row).map_err(|error| match (error, control(row)) {
        (StoreError::Corrupt(why), Ok(control)) => StoreError::UnreadableRun(Box::new(UnreadableRun { control, why })),
        (error, _) => error,
    })
}

fn control(row: &Row) -> StoreResult<RunControl> {
    let partitions = list::<PartitionRow>(row, "partitions")?.into_iter();
    let attempts = list::<AttemptRow>(row, "last_attempts")?;
    Ok(RunControl {
        id: run_id(row)?,
        principal: Principal(row.text("principal")?),
        pipeline: row.text("pipeline")?,
        mode: mode(row)?,
        state: state(row)?,
        last_attempt: attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0),
        partitions: partitions.map(|row| PartitionKey::from_canonical(row.partition)).collect(),
    })
}

fn whole(row: &Row) -> StoreResult<Run> {
    Ok(Run {
        id: run_id(row)?,
        principal: Principal(row.text("principal")?),
        idempotency_key: idempotency_key(row)?,
        pipeline: row.text("pipeline")?,
        mode: mode(row)?,
        state: state(row)?,
        asked: row.json("asked")?,
        partitions: partitions(row)?,
        rows: row.optional_json("rows")?,
        sources: row.json("sources")?,
        attempts: attempts(row)?,
        progress: row.optional_json("progress")?,
        warnings: row.json("warnings")?,
        quarantine: row.optional_json("quarantine")?,
        error: row.optional_json("error")?,
        definition: definition_hash(row)?,
        sequence: row.int("sequence")?,
        cancel_requested: row.flag("cancel_requested")?,
        created_at: row.time("created_at")?,
        started_at: row.optional_time("started_at")?,
        ended_at: row.optional_time("ended_at")?,
        due_at: row.time("due_at")?,
        deliveries: deliveries(row)?,
    })
}

/// A key with the run that is known under it.
pub(super) fn known_key(row: &Row) -> StoreResult<KnownKey> {
    let run = match run(row) {
        Ok(run) => Ok(run),
        Err(StoreError::UnreadableRun(run)) => Err(run),
        Err(error) => return Err(error),
    };
    Ok(KnownKey {
        principal: Principal(row.text("principal")?),
        idempotency_key: idempotency_key(row)?,
        run_id: run_id(row)?,
        pipeline: row.text("pipeline")?,
        asked: row.json("asked")?,
        run,
        fingerprint: Fingerprint(row.text("fingerprint")?),
        accepted_with: DefinitionHash(row.text("accepted_with")?),
    })
}

fn list<T: DeserializeOwned + Send + Unpin + 'static>(row: &Row, column: &'static str) -> StoreResult<Vec<T>> {
    Ok(row.optional_json(column)?.unwrap_or_default())
}

fn partitions(row: &Row) -> StoreResult<Vec<RunPartition>> {
    let later =
        list::<SupersededRow>(row, "superseded")?.into_iter().map(|later| (later.partition, RunId(later.run_id)));
    let mut superseded: HashMap<String, RunId> = later.collect();
    let mut partitions = list::<PartitionRow>(row, "partitions")?
        .into_iter()
        .map(|row| {
            let superseded_by = superseded.remove(&row.partition);
            let partition = PartitionKey::from_canonical(row.partition);
            let of_it = |error| of("partition", &partition, error);
            Ok(RunPartition {
                superseded_by,
                outcome: named("outcome", row.outcome, Outcome::parse, "the outcome of a partition").map_err(of_it)?,
                content: document("content", row.content).map_err(of_it)?,
                previous: document("previous", row.previous).map_err(of_it)?,
                base: row.base.map(Base::parse),
                partition,
            })
        })
        .collect::<StoreResult<Vec<_>>>()?;
    partitions.sort_unstable_by(|a, b| a.partition.cmp(&b.partition));
    Ok(partitions)
}

fn attempts(row: &Row) -> StoreResult<Vec<Attempt>> {
    let mut attempts = list::<AttemptRow>(row, "last_attempts")?
        .into_iter()
        .map(|row| {
            Ok(Attempt {
                number: row.number,
                worker: row.worker,
                started_at: time("started_at", row.started_at)?,
                ended_at: row.ended_at.map(|micros| time("ended_at", micros)).transpose()?,
                outcome: named("outcome", row.outcome, AttemptOutcome::parse, "the outcome of an attempt")?,
                error: document("error", row.error).map_err(|error| of("attempt", &row.number, error))?,
            })
        })
        .collect::<StoreResult<Vec<_>>>()?;
    attempts.sort_unstable_by_key(|attempt| attempt.number);
    Ok(attempts)
}

fn deliveries(row: &Row) -> StoreResult<Vec<Delivery>> {
    let mut rows = list::<DeliveryRow>(row, "deliveries")?;
    rows.sort_unstable_by_key(|row| row.position);
    rows.into_iter()
        .map(|row| {
            let unknown = || unreadable("state", &row.state, "the state of a message");
            let state = DeliveryState::parse(&row.state).ok_or_else(unknown)?;
            Ok(Delivery {
                id: row.id,
                event: row.event,
                url: row.url,
                state,
                tries: row.tries,
                last_status: row.last_status.and_then(|status| u16::try_from(status).ok()),
                last_error: row.last_error,
                last_try_at: row.last_try_at.map(|micros| time("last_try_at", micros)).transpose()?,
                next_try_at: (state == DeliveryState::Pending).then(|| time("due_at", row.due_at)).transpose()?,
            })
        })
        .collect()
}

fn named<T>(
    column: &str,
    text: Option<String>,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
) -> StoreResult<Option<T>> {
    text.map(|text| parse(&text).ok_or_else(|| unreadable(column, &text, expected))).transpose()
}

/// An error with what it is about.
fn of(kind: &str, name: &dyn Display, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(why) => StoreError::Corrupt(format!("{kind} {name}: {why}")),
        other => other,
    }
}

fn document<T: DeserializeOwned>(column: &str, text: Option<String>) -> StoreResult<Option<T>> {
    let read = |text: String| {
        serde_json::from_str(&text)
            .map_err(|error| StoreError::Corrupt(format!("column {column} cannot be read: {error}")))
    };
    text.map(read).transpose()
}

fn time(column: &str, micros: i64) -> StoreResult<DateTime<Utc>> {
    DateTime::from_timestamp_micros(micros)
        .ok_or_else(|| unreadable(column, &micros.to_string(), "microseconds since 1970"))
}
