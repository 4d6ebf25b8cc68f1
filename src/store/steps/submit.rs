//! What requests do to runs: submit, cancel, retry.

use super::attempt::queued_again;
use super::{due, lock, read, save};
use crate::partition::PartitionKey;
use crate::run::{
    Asked, AskedPartitions, Audience, DefinitionHash, Fingerprint, IdempotencyKey, Labels, Mode, OnOverlap, Principal,
    RowCounts, Run, RunId, RunPartition, State, Unmet,
};
use crate::store::tx::{Row, Tx, json, unreadable, values};
use crate::store::{Cancelled, Change, NewRun, Retried, StoreError, StoreResult, StoredDefinition, Submitted, rows};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use uuid::Uuid;

/// How many runs in the way a refusal names.
const MAX_IN_THE_WAY: u32 = 100;

pub(super) async fn bind_warehouse(tx: &mut Tx, id: Uuid) -> StoreResult<Uuid> {
    tx.execute(tx.sql.bind_warehouse, values![id]).await?;
    let bound = read::identity(tx).await?.1;
    bound.ok_or_else(|| StoreError::Corrupt("the database has no identity, expected one row in meta".to_owned()))
}

pub(super) async fn submit(tx: &mut Tx, run: &NewRun) -> StoreResult<Submitted> {
    take_pipeline(tx, &run.asked.pipeline, run.asked.on_overlap).await?;
    let now = tx.now().await?;
    due::take_numbers(tx, &run.asked.pipeline, now).await?;
    put_definition(tx, &run.definition, now).await?;
    tx.execute(tx.sql.join_turns, values![run.principal.0.as_str()]).await?;
    let (sequence, due_at) = due::place(tx, &run.asked, now).await?;
    let row = values![
        run.id,
        run.principal.0.as_str(),
        run.idempotency_key.as_str(),
        run.asked.pipeline.as_str(),
        rows::mode_name(run.asked.mode),
        json(&run.asked)?,
        run.asked.fingerprint().0,
        run.definition.hash.0.as_str(),
        sequence,
        due_at,
        now,
        i64::from(run.asked.priority),
        run.asked.not_before,
        audience(run)?,
    ];
    if tx.execute(tx.sql.insert_run, row).await? == 0 {
        tx.undo();
        return Ok(Submitted::KeyTaken);
    }
    tx.execute(tx.sql.insert_labels, values![run.id, json(&run.asked.labels)?]).await?;
    let unmet = unmet(tx, &run.asked).await?;
    if !unmet.is_empty() {
        tx.undo();
        return Ok(Submitted::PreconditionFailed(unmet));
    }
    tx.announce(Change::Run(run.id));
    let scope = scope(tx, run).await?;
    if run.asked.mode == Mode::Overwrite && scope.is_empty() {
        end_at_once(tx, run.id, now).await?;
    } else {
        tx.execute(tx.sql.insert_scope, values![run.id, json(&scope)?]).await?;
        tx.execute(tx.sql.reserve_scope, values![json(&[run.id])?]).await?;
        let in_the_way = in_the_way(tx, run.id, run.asked.on_overlap).await?;
        if !in_the_way.is_empty() {
            tx.undo();
            return Ok(Submitted::Overlaps(in_the_way));
        }
        if let Some(limit) = one_too_many(tx, run.id).await? {
            tx.undo();
            return Ok(Submitted::TooManyQueued(limit));
        }
        tx.announce(Change::Queue);
    }
    let accepted = read::run(tx, run.id).await?;
    accepted.map(|run| Submitted::New(Box::new(run))).ok_or(StoreError::Refused(sqlx::Error::RowNotFound))
}

/// [`submit`] of each of them. What is refused is undone by itself.
pub(super) async fn one_by_one(tx: &mut Tx, runs: &[&NewRun]) -> StoreResult<Vec<Submitted>> {
    let mut submitted = Vec::new();
    for run in runs {
        let part = tx.begin_part().await?;
        submitted.push(submit(tx, run).await?);
        tx.end_part(part).await?;
    }
    Ok(submitted)
}

impl NewRun {
    /// Whether it waits its turn and is accepted whatever there is.
    pub fn is_plain(&self) -> bool {
        let asked = &self.asked;
        let has_something_to_do = asked.mode == Mode::Full || !asked.partitions.0.is_empty();
        asked.on_overlap == OnOverlap::Wait
            && asked.if_current.is_empty()
            && asked.only.is_none()
            && has_something_to_do
    }
}

/// A plain run as the statement takes it apart. Documents are stored to the letter.
#[derive(Serialize)]
struct Plain<'a> {
    id: RunId,
    principal: &'a Principal,
    key: &'a IdempotencyKey,
    pipeline: &'a str,
    mode: &'static str,
    asked: &'a Asked,
    fingerprint: Fingerprint,
    definition: &'a DefinitionHash,
    priority: i32,
    not_before: Option<DateTime<Utc>>,
    audience: Option<&'a Audience>,
    labels: &'a Labels,
    scope: &'a AskedPartitions,
}

fn plain(run: &NewRun) -> Plain<'_> {
    let asked = &run.asked;
    Plain {
        id: run.id,
        principal: &run.principal,
        key: &run.idempotency_key,
        pipeline: &asked.pipeline,
        mode: rows::mode_name(asked.mode),
        asked,
        fingerprint: asked.fingerprint(),
        definition: &run.definition.hash,
        priority: asked.priority,
        not_before: asked.not_before,
        audience: (!run.audience.is_nobody()).then_some(&run.audience),
        labels: &asked.labels,
        scope: &asked.partitions,
    }
}

/// A definition as the statement takes it apart.
#[derive(Serialize)]
struct AskedWith<'a> {
    hash: &'a DefinitionHash,
    pipeline: &'a str,
    text: &'a str,
}

/// [`submit`] of each of them, which must all be plain, by one statement.
pub(super) async fn at_once(tx: &mut Tx, statement: &'static str, runs: &[&NewRun]) -> StoreResult<Vec<Submitted>> {
    let plain: Vec<Plain<'_>> = runs.iter().map(|run| plain(run)).collect();
    let (mut definitions, mut principals) = (BTreeMap::new(), BTreeMap::new());
    for run in runs {
        let (pipeline, StoredDefinition { hash, text, .. }) = (run.asked.pipeline.as_str(), &run.definition);
        definitions.insert((pipeline, hash), AskedWith { hash, pipeline, text });
        *principals.entry(run.principal.0.as_str()).or_insert(0_u32) += 1;
    }
    let definitions: Vec<AskedWith<'_>> = definitions.into_values().collect();
    let most_queued = tx.max_queued_runs.map(i64::from);
    let values = values![json(&definitions)?, json(&principals)?, json(&plain)?, most_queued];
    let answers = tx.rows(statement, values).await?;
    if answers.len() != runs.len() {
        return Err(StoreError::Refused(sqlx::Error::RowNotFound));
    }
    runs.iter().zip(&answers).map(|(run, answer)| submitted(tx, run, answer)).collect()
}

fn submitted(tx: &mut Tx, run: &NewRun, answer: &Row) -> StoreResult<Submitted> {
    let result = answer.text("result")?;
    match (result.as_str(), tx.max_queued_runs) {
        ("accepted", _) => {
            tx.announce(Change::Run(run.id));
            tx.announce(Change::Queue);
            let (created_at, due_at) = (answer.time("new_created_at")?, answer.time("new_due_at")?);
            Ok(Submitted::New(Box::new(queued(run, answer.int("new_sequence")?, created_at, due_at))))
        }
        ("key_taken", _) => Ok(Submitted::KeyTaken),
        ("too_many_queued", Some(limit)) => Ok(Submitted::TooManyQueued(limit)),
        _ => Err(unreadable("result", &result, "how a submission ended")),
    }
}

/// A run as it is accepted.
fn queued(run: &NewRun, sequence: i64, created_at: DateTime<Utc>, due_at: DateTime<Utc>) -> Run {
    let partitions = run.asked.partitions.0.iter().cloned().map(RunPartition::undecided).collect();
    Run {
        id: run.id,
        principal: run.principal.clone(),
        idempotency_key: run.idempotency_key.clone(),
        pipeline: run.asked.pipeline.clone(),
        mode: run.asked.mode,
        state: State::Queued,
        asked: run.asked.clone(),
        partitions,
        rows: None,
        sources: Vec::new(),
        attempts: Vec::new(),
        progress: None,
        warnings: Vec::new(),
        quarantine: None,
        error: None,
        definition: run.definition.hash.clone(),
        sequence,
        cancel_requested: false,
        created_at,
        started_at: None,
        ended_at: None,
        due_at,
        deliveries: Vec::new(),
    }
}

fn audience(run: &NewRun) -> StoreResult<Option<String>> {
    (!run.audience.is_nobody()).then(|| json(&run.audience)).transpose()
}

/// The partitions that the run rebuilds: those asked for, or the ones among them that are to be picked by what the catalog
/// says in this one statement.
async fn scope<'a>(tx: &mut Tx, run: &'a NewRun) -> StoreResult<Vec<&'a PartitionKey>> {
    let mut made_by = BTreeMap::new();
    if run.asked.only.is_some() {
        let asked = values![run.asked.pipeline.as_str(), json(&run.asked.partitions)?];
        for row in tx.rows(tx.sql.made_by, asked).await? {
            let key = PartitionKey::from_canonical(row.text("partition")?);
            made_by.insert(key, DefinitionHash(row.text("definition")?));
        }
    }
    Ok(run.asked.picked(&made_by, &run.definition.hash))
}

/// What partitions are not as the request says. What this run itself has made of them counts as it was before: a decision
/// that was lost with its staging may have gone live in part.
pub(super) async fn unmet_since(tx: &mut Tx, id: RunId, asked: &Asked) -> StoreResult<Vec<Unmet>> {
    let mut theirs = Vec::new();
    for one in unmet(tx, asked).await? {
        let last = tx
            .optional(tx.sql.history, values![asked.pipeline.as_str(), one.partition.as_str(), None::<i64>, 1_i64])
            .await?;
        if last.map(|row| row.id("run_id")).transpose()? != Some(id.0) {
            theirs.push(one);
        }
    }
    Ok(theirs)
}

/// What partitions are not as the request says.
async fn unmet(tx: &mut Tx, asked: &Asked) -> StoreResult<Vec<Unmet>> {
    if asked.if_current.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<PartitionKey> = asked.if_current.0.keys().cloned().collect();
    Ok(asked.if_current.unmet(&read::entries(tx, &asked.pipeline, Some(&keys)).await?))
}

/// There is nothing to do, and it is done.
async fn end_at_once(tx: &mut Tx, id: RunId, now: DateTime<Utc>) -> StoreResult<()> {
    let Some(mut head) = lock(tx, id).await? else { return Ok(()) };
    tx.execute(tx.sql.save_report, values![id, json(&RowCounts::default())?, "[]", "[]", false]).await?;
    head.have_nothing_to_do(now);
    save(tx, &head).await
}

pub(super) async fn cancel(tx: &mut Tx, id: RunId) -> StoreResult<Cancelled> {
    let Some(mut head) = lock(tx, id).await? else { return Ok(Cancelled::Unknown) };
    let before = head.clone();
    let answer = head.cancel(tx.now().await?);
    if head != before {
        save(tx, &head).await?;
        tx.announce(Change::Held(id));
    }
    if head.state != before.state {
        tx.announce(Change::Queue);
    }
    Ok(answer)
}

pub(super) async fn retry(
    tx: &mut Tx,
    id: RunId,
    if_attempt: Option<u32>,
    definition: &StoredDefinition,
) -> StoreResult<Retried> {
    let Some(row) = tx.optional(tx.sql.asked, values![id]).await? else { return Ok(Retried::Unknown) };
    // What was asked never changes, nor does a run's pipeline, so it is the definition's.
    let asked = row.json::<Asked>("asked")?;
    let on_overlap = asked.on_overlap;
    take_pipeline(tx, &definition.pipeline, on_overlap).await?;
    let Some(mut head) = lock(tx, id).await? else { return Ok(Retried::Unknown) };
    if head.pipeline != definition.pipeline {
        let (found, expected) = (&definition.pipeline, &head.pipeline);
        return Err(StoreError::Setup(format!(
            "run {id} was given a definition of {found}, expected one of {expected}"
        )));
    }
    if !head.may_retry(if_attempt) {
        return Ok(Retried::NotAllowed { state: head.state, last_attempt: head.attempts });
    }
    let unmet = unmet_since(tx, id, &asked).await?;
    if !unmet.is_empty() {
        return Ok(Retried::PreconditionFailed(unmet));
    }
    let now = tx.now().await?;
    due::take_numbers(tx, &definition.pipeline, now).await?;
    put_definition(tx, definition, now).await?;
    head.retry(due::place(tx, &asked, now).await?, &definition.hash);
    save(tx, &head).await?;
    undecide(tx, id, head.mode).await?;
    tx.execute(tx.sql.reserve_scope, values![json(&[id])?]).await?;
    let in_the_way = in_the_way(tx, id, on_overlap).await?;
    if !in_the_way.is_empty() {
        tx.undo();
        return Ok(Retried::Overlaps(in_the_way));
    }
    if let Some(limit) = one_too_many(tx, id).await? {
        tx.undo();
        return Ok(Retried::TooManyQueued(limit));
    }
    queued_again(tx, "request");
    tx.announce(Change::Queue);
    Ok(Retried::Queued)
}

/// Taken before the number is drawn: so whoever has the pipeline for itself sees every lower number.
///
/// Waiting requests share it. One that is to be refused has it for itself: of two that share it, neither sees the other's
/// row, which is not committed yet, and both would be accepted; and one that waits could slip in the same way.
async fn take_pipeline(tx: &mut Tx, pipeline: &str, on_overlap: OnOverlap) -> StoreResult<()> {
    let lock = match on_overlap {
        OnOverlap::Wait => tx.sql.share_pipeline,
        OnOverlap::Refuse => tx.sql.lock_pipeline,
    };
    tx.rows(lock, values![pipeline]).await.map(drop)
}

/// The runs for whose sake a run is refused.
async fn in_the_way(tx: &mut Tx, id: RunId, on_overlap: OnOverlap) -> StoreResult<Vec<RunId>> {
    if on_overlap == OnOverlap::Wait {
        return Ok(Vec::new());
    }
    let rows = tx.rows(tx.sql.overlapping_runs, values![id, MAX_IN_THE_WAY]).await?;
    rows.iter().map(|row| row.id("id").map(RunId)).collect()
}

/// The limit, where this queued run is one more of its principal than it lets. Submissions at the very same moment do not see each
/// other: of several servers each connection may let one more in.
async fn one_too_many(tx: &mut Tx, id: RunId) -> StoreResult<Option<u32>> {
    let Some(limit) = tx.max_queued_runs else { return Ok(None) };
    let queued = tx.one(tx.sql.queued_runs, values![id, i64::from(limit) + 1]).await?.count("queued")?;
    Ok((queued > u64::from(limit)).then_some(limit))
}

/// Takes back what was decided, and the report with it. The scope of `full` is unknown again.
pub(super) async fn undecide(tx: &mut Tx, id: RunId, mode: Mode) -> StoreResult<()> {
    let reset = match mode {
        Mode::Overwrite => tx.sql.undecide_scope,
        Mode::Full => tx.sql.delete_scope,
    };
    tx.execute(reset, values![id]).await?;
    tx.execute(tx.sql.save_report, values![id, None::<String>, "[]", "[]", false]).await?;
    Ok(())
}

async fn put_definition(tx: &mut Tx, definition: &StoredDefinition, now: DateTime<Utc>) -> StoreResult<()> {
    let row = values![definition.hash.0.as_str(), definition.pipeline.as_str(), definition.text.as_str(), now];
    tx.execute(tx.sql.put_definition, row).await?;
    Ok(())
}
