//! Rows to the domain and back.

use super::head::Head;
use super::tx::{Row, Value, json, unreadable, values};
use super::unreadable::run_unreadable;
use super::{Failures, Glance, StoreError, StoreResult, StoredDefinition};
use crate::partition::PartitionKey;
use crate::run::{
    AttemptOutcome, Base, CatalogEntry, ClaimToken, Decided, DefinitionHash, ForeignFiles, HistoryEntry,
    IdempotencyKey, Mode, Outcome, Principal, RunError, RunId, RunSummary, State,
};
use serde::Serialize;

pub(super) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Overwrite => "overwrite",
        Mode::Full => "full",
    }
}

pub(super) fn run_id(row: &Row) -> StoreResult<RunId> {
    row.id("id").map(RunId)
}

pub(super) fn key(row: &Row) -> StoreResult<PartitionKey> {
    row.text("partition").map(PartitionKey::from_canonical)
}

fn token(row: &Row, column: &'static str) -> StoreResult<Option<ClaimToken>> {
    Ok(row.optional_id(column)?.map(ClaimToken))
}

pub(super) fn idempotency_key(row: &Row) -> StoreResult<IdempotencyKey> {
    row.text("idempotency_key").map(IdempotencyKey::from_stored)
}

pub(super) fn definition_hash(row: &Row) -> StoreResult<DefinitionHash> {
    row.text("definition").map(DefinitionHash)
}

pub(super) fn mode(row: &Row) -> StoreResult<Mode> {
    let text = row.text("mode")?;
    [Mode::Overwrite, Mode::Full]
        .into_iter()
        .find(|mode| mode_name(*mode) == text)
        .ok_or_else(|| unreadable("mode", &text, "overwrite or full"))
}

pub(super) fn state(row: &Row) -> StoreResult<State> {
    let text = row.text("state")?;
    State::parse(&text).ok_or_else(|| unreadable("state", &text, "the state of a run"))
}

pub(super) fn outcome(row: &Row) -> StoreResult<Option<Outcome>> {
    let Some(text) = row.optional_text("outcome")? else { return Ok(None) };
    Outcome::parse(&text).map(Some).ok_or_else(|| unreadable("outcome", &text, "the outcome of a partition"))
}

fn foreign_files(row: &Row) -> StoreResult<ForeignFiles> {
    let text = row.text("foreign_files")?;
    ForeignFiles::parse(&text).ok_or_else(|| unreadable("foreign_files", &text, "fail or replace"))
}

fn base(row: &Row) -> StoreResult<Option<Base>> {
    Ok(row.optional_text("base")?.map(Base::parse))
}

pub(super) fn attempt_outcome(row: &Row) -> StoreResult<Option<AttemptOutcome>> {
    let Some(text) = row.optional_text("outcome")? else { return Ok(None) };
    AttemptOutcome::parse(&text).map(Some).ok_or_else(|| unreadable("outcome", &text, "the outcome of an attempt"))
}

pub(super) fn definition(row: &Row) -> StoreResult<StoredDefinition> {
    Ok(StoredDefinition {
        hash: DefinitionHash(row.text("hash")?),
        pipeline: row.text("pipeline")?,
        text: row.text("text")?,
    })
}

pub(super) fn head(row: &Row) -> StoreResult<Head> {
    Ok(Head {
        id: run_id(row)?,
        pipeline: row.text("pipeline")?,
        mode: mode(row)?,
        definition: definition_hash(row)?,
        state: state(row)?,
        sequence: row.int("sequence")?,
        due_at: row.time("due_at")?,
        cancel_requested: row.flag("cancel_requested")?,
        claim_token: token(row, "claim_token")?,
        lease_until: row.optional_time("lease_until")?,
        decided_token: token(row, "decided_token")?,
        attempts: row.small_count("attempts")?,
        lost_workers: row.small_count("lost_workers")?,
        failures: Failures {
            source: row.small_count("failures_source")?,
            service: row.small_count("failures_service")?,
            compute: row.small_count("failures_compute")?,
        },
        progress: row.optional_json("progress")?,
        error: row.optional_json("error")?,
        started_at: row.optional_time("started_at")?,
        ended_at: row.optional_time("ended_at")?,
    })
}

/// The values of `save_run`.
pub(super) fn head_values(head: &Head) -> StoreResult<Vec<Value>> {
    Ok(values![
        head.id,
        head.definition.0.as_str(),
        head.state.as_str(),
        head.sequence,
        head.due_at,
        head.cancel_requested,
        head.claim_token,
        head.lease_until,
        head.decided_token,
        head.attempts,
        head.lost_workers,
        head.failures.source,
        head.failures.service,
        head.failures.compute,
        optional_json(head.progress.as_ref())?,
        optional_json(head.error.as_ref())?,
        head.started_at,
        head.ended_at,
    ])
}

pub(super) fn glance(row: &Row) -> StoreResult<Glance> {
    Ok(Glance {
        id: run_id(row)?,
        state: state(row)?,
        attempt: row.small_count("attempts")?,
        sequence: row.int("sequence")?,
        cancel_requested: row.flag("cancel_requested")?,
        progress: known(row.optional_json("progress"))?,
        error: error(row)?,
        due_at: row.time("due_at")?,
    })
}

/// None where it cannot be read.
pub(super) fn known<T>(read: StoreResult<Option<T>>) -> StoreResult<Option<T>> {
    match read {
        Err(StoreError::Corrupt(_)) => Ok(None),
        other => other,
    }
}

/// A run's error, or that it cannot be read: where many runs are looked at, one is not to hide the others.
fn error(row: &Row) -> StoreResult<Option<RunError>> {
    match row.optional_json("error") {
        Err(StoreError::Corrupt(why)) => Ok(Some(run_unreadable(why))),
        other => other,
    }
}

pub(super) fn optional_json<T: Serialize>(value: Option<&T>) -> StoreResult<Option<String>> {
    value.map(json).transpose()
}

pub(super) fn decided(row: &Row) -> StoreResult<Decided> {
    Ok(Decided {
        partition: key(row)?,
        outcome: outcome(row)?.ok_or_else(|| unreadable("outcome", "null", "the outcome of a decided partition"))?,
        content: row.optional_json("content")?,
        file: row.optional_text("file")?,
        previous: row.optional_json("previous")?,
        foreign_files: foreign_files(row)?,
        base: base(row)?,
    })
}

/// A decision as the statements take it apart. Documents go in as text within the text, so that they are stored to the
/// letter and no parser on the way trips over an escape in them.
#[derive(Serialize)]
struct DecidedRow<'a> {
    partition: &'a PartitionKey,
    outcome: &'static str,
    file: Option<&'a str>,
    content: Option<String>,
    previous: Option<String>,
    foreign_files: &'static str,
    base: Option<&'a str>,
}

/// The list of decisions as the statements take it apart.
pub(super) fn decided_rows(partitions: &[Decided]) -> StoreResult<String> {
    let rows: Vec<DecidedRow<'_>> = partitions
        .iter()
        .map(|d| {
            Ok(DecidedRow {
                partition: &d.partition,
                outcome: d.outcome.as_str(),
                file: d.file.as_deref(),
                content: optional_json(d.content.as_ref())?,
                previous: optional_json(d.previous.as_ref())?,
                foreign_files: d.foreign_files.as_str(),
                base: d.base.as_ref().map(Base::as_str),
            })
        })
        .collect::<StoreResult<_>>()?;
    json(&rows)
}

pub(super) fn summary(row: &Row) -> StoreResult<RunSummary> {
    Ok(RunSummary {
        id: run_id(row)?,
        principal: Principal(row.text("principal")?),
        pipeline: row.text("pipeline")?,
        idempotency_key: idempotency_key(row)?,
        mode: mode(row)?,
        state: state(row)?,
        labels: row.optional_json("labels")?.unwrap_or_default(),
        partitions: row.count("partitions")?,
        attempts: row.small_count("attempts")?,
        priority: priority(row)?,
        not_before: row.optional_time("not_before")?,
        error: error(row)?,
        created_at: row.time("created_at")?,
        started_at: row.optional_time("started_at")?,
        ended_at: row.optional_time("ended_at")?,
    })
}

fn priority(row: &Row) -> StoreResult<i32> {
    let found = row.int("priority")?;
    i32::try_from(found).map_err(|_| unreadable("priority", &found.to_string(), "a priority"))
}

pub(super) fn catalog_entry(row: &Row) -> StoreResult<CatalogEntry> {
    Ok(CatalogEntry {
        partition: key(row)?,
        content: row.json("content")?,
        run_id: RunId(row.id("run_id")?),
        committed_at: row.time("committed_at")?,
        definition: definition_hash(row)?,
        confirmed_by: row.optional_id("confirmed_by")?.map(RunId),
        confirmed_at: row.optional_time("confirmed_at")?,
    })
}

pub(super) fn history_entry(row: &Row) -> StoreResult<HistoryEntry> {
    Ok(HistoryEntry {
        version: row.int("version")?,
        run_id: RunId(row.id("run_id")?),
        principal: Principal(row.text("principal")?),
        labels: row.optional_json("labels")?.unwrap_or_default(),
        committed_at: row.time("committed_at")?,
        outcome: outcome(row)?.ok_or_else(|| unreadable("outcome", "null", "the outcome of a change"))?,
        content: row.optional_json("content")?,
        definition: definition_hash(row)?,
    })
}
