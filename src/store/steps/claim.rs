//! Who works on what: lost workers are taken over, committing runs are resumed, queued runs are started.

use super::attempt::{close, queued_again};
use super::{due, ended, lock, outbox, read, save};
use crate::run::{AttemptOutcome, RunId, State};
use crate::store::head::Head;
use crate::store::tx::{Tx, json, values};
use crate::store::unreadable::run_unreadable;
use crate::store::{Change, ClaimRequest, Claimed, DecidedRun, Ended, StoreError, StoreResult, rows};
use chrono::{DateTime, TimeDelta, Utc};

/// How many lost runs one claim takes over.
const LOST_AT_ONCE: i64 = 100;

/// How long a committing run that cannot be read is left alone.
const UNREADABLE_PAUSE: TimeDelta = TimeDelta::minutes(1);

/// Pipelines that a claim has passed over.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Another transaction had the pipeline: worth waiting for once there is nothing else.
    pub(super) locked: Vec<String>,
    /// Another claimer was quicker.
    pub(super) taken: Vec<String>,
}

/// What looking for a queued run came to.
pub(super) enum Next {
    Claimed(Box<Claimed>),
    Locked(String),
    Taken(String),
    /// Runs whose time has come have their numbers now: look again.
    Numbered,
    None,
}

/// Ends the attempts of running runs whose lease ran out. `reading` is the run that is being read, here and below.
pub(super) async fn take_over_lost(
    tx: &mut Tx,
    request: &ClaimRequest,
    reading: &mut Option<RunId>,
) -> StoreResult<()> {
    let now = tx.now().await?;
    for row in tx.rows(tx.sql.lost_runs, values![now, LOST_AT_ONCE]).await? {
        let Some(mut head) = lock(tx, *reading.insert(RunId(row.id("id")?))).await? else { continue };
        if head.state != State::Running || !head.lease_is_over(now) {
            continue;
        }
        let ended = Ended {
            outcome: AttemptOutcome::Lost,
            error: None,
            quarantine: None,
            retry_after: None,
            max_lost_workers: request.max_lost_workers,
        };
        head.end_attempt(&ended, now);
        close(tx, head.id, now, AttemptOutcome::Lost, None).await?;
        save(tx, &head).await?;
        if head.state == State::Queued {
            queued_again(tx, AttemptOutcome::Lost.as_str());
        }
        tx.announce(Change::Queue);
    }
    Ok(())
}

/// Claims the committing run that nobody works on, if there is one; it comes before everything queued.
pub(super) async fn resume(
    tx: &mut Tx,
    request: &ClaimRequest,
    reading: &mut Option<RunId>,
) -> StoreResult<Option<Claimed>> {
    let now = tx.now().await?;
    let Some(row) = tx.optional(tx.sql.unfinished_run, values![now]).await? else { return Ok(None) };
    let Some(mut head) = lock(tx, *reading.insert(RunId(row.id("id")?))).await? else { return Ok(None) };
    if head.state != State::Committing || !head.lease_is_over(now) {
        return Ok(None);
    }
    close(tx, head.id, now, AttemptOutcome::Lost, None).await?;
    head.resume(request.token, now, request.lease);
    hand_over(tx, &head, request, now).await.map(Some)
}

/// Claims the next queued run of any pipeline but those passed over, without waiting for anybody.
pub(super) async fn start_next(
    tx: &mut Tx,
    request: &ClaimRequest,
    passed: &Passed,
    reading: &mut Option<RunId>,
) -> StoreResult<Next> {
    let now = tx.now().await?;
    let over = json(&passed.locked.iter().chain(&passed.taken).collect::<Vec<_>>())?;
    if let Some(row) = tx.optional(tx.sql.due_pipeline, values![now, over.as_str()]).await? {
        let pipeline = row.text("pipeline")?;
        if !try_lock(tx, &pipeline).await? {
            return Ok(Next::Locked(pipeline));
        }
        due::take_numbers(tx, &pipeline, now).await?;
        return Ok(Next::Numbered);
    }
    let Some(row) = tx.optional(tx.sql.next_run, values![now, None::<String>, over]).await? else {
        return Ok(Next::None);
    };
    let pipeline = row.text("pipeline")?;
    if !try_lock(tx, &pipeline).await? {
        return Ok(Next::Locked(pipeline));
    }
    match start(tx, request, &pipeline, reading).await? {
        Some(claimed) => Ok(Next::Claimed(Box::new(claimed))),
        None => Ok(Next::Taken(pipeline)),
    }
}

async fn try_lock(tx: &mut Tx, pipeline: &str) -> StoreResult<bool> {
    tx.one(tx.sql.try_lock_pipeline, values![pipeline]).await?.flag("locked")
}

/// Claims the next queued run of a pipeline, waiting for whoever has it.
pub(super) async fn start_of(
    tx: &mut Tx,
    request: &ClaimRequest,
    pipeline: &str,
    reading: &mut Option<RunId>,
) -> StoreResult<Option<Claimed>> {
    tx.rows(tx.sql.lock_pipeline, values![pipeline]).await?;
    let now = tx.now().await?;
    due::take_numbers(tx, pipeline, now).await?;
    start(tx, request, pipeline, reading).await
}

/// The pipeline is locked, so this statement sees every lower number and every other claim.
async fn start(
    tx: &mut Tx,
    request: &ClaimRequest,
    pipeline: &str,
    reading: &mut Option<RunId>,
) -> StoreResult<Option<Claimed>> {
    let now = tx.now().await?;
    // The run may be cancelled between the two statements; then the next one is looked for, once.
    for _ in 0..2 {
        let Some(row) = tx.optional(tx.sql.next_run, values![now, pipeline, "[]"]).await? else { return Ok(None) };
        let Some(mut head) = lock(tx, *reading.insert(RunId(row.id("id")?))).await? else { continue };
        if head.state == State::Queued {
            // Again: those that it waited for may have ended since.
            let now = tx.now().await?;
            head.start(request.token, now, request.lease);
            tx.execute(tx.sql.take_turn, values![head.id]).await?;
            return hand_over(tx, &head, request, now).await.map(Some);
        }
    }
    Ok(None)
}

/// Gives up a run that cannot be read, so that it does not keep workers from the others. It ends as failed; what is
/// decided cannot fail, so a committing run is put off.
pub(super) async fn give_up_unreadable(tx: &mut Tx, id: RunId, why: &str) -> StoreResult<()> {
    let now = tx.now().await?;
    let error = run_unreadable(why.to_owned());
    if let Some(row) = tx.optional(tx.sql.fail_unreadable, values![id, now, json(&error)?]).await? {
        ended(tx, row.text("pipeline")?, State::Failed);
        close(tx, id, now, AttemptOutcome::Failed, Some(&error)).await?;
        tx.execute(tx.sql.release_scope, values![id]).await?;
        outbox::run_ended(tx, id).await?;
        tx.announce(Change::Run(id));
        tx.announce(Change::Queue);
    } else {
        tx.execute(tx.sql.put_off_unreadable, values![id, now + UNREADABLE_PAUSE]).await?;
    }
    Ok(())
}

/// Writes the claim down; answers with all that its worker needs.
async fn hand_over(tx: &mut Tx, head: &Head, request: &ClaimRequest, now: DateTime<Utc>) -> StoreResult<Claimed> {
    let attempt = values![head.id, head.attempts, request.worker.as_str(), request.token, now];
    tx.execute(tx.sql.insert_attempt, attempt).await?;
    save(tx, head).await?;
    outbox::attempt_started(tx, head.id, head.attempts, now).await?;
    let (mut decided, mut publish_failures) = (None, 0);
    if let (State::Committing, Some(token)) = (head.state, head.decided_token) {
        let partitions = tx.rows(tx.sql.run_partitions, values![head.id]).await?;
        decided = Some(DecidedRun {
            token,
            partitions: partitions.iter().map(rows::decided).collect::<StoreResult<_>>()?,
            manifest: tx.one(tx.sql.decided_manifest, values![head.id]).await?.flag("manifest")?,
        });
        publish_failures = tx.one(tx.sql.publish_failures, values![head.id, token]).await?.small_count("failures")?;
    }
    let definition = rows::definition(&tx.one(tx.sql.definition, values![head.definition.0.as_str()]).await?)?;
    let run = read::run(tx, head.id).await?.ok_or(StoreError::Refused(sqlx::Error::RowNotFound))?;
    let (token, attempt, failures) = (request.token, head.attempts, head.failures);
    Ok(Claimed { run, token, attempt, failures, publish_failures, definition, decided })
}
