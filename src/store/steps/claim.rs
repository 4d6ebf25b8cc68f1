//! Who works on what: lost workers are taken over, committing runs are resumed, queued runs are started.

use super::attempt::{close, queued_again};
use super::{due, ended, lock, outbox, read, save};
use crate::run::{AttemptOutcome, RunId, State};
use crate::store::head::Head;
use crate::store::tx::{Tx, json, values};
use crate::store::unreadable::run_unreadable;
use crate::store::{Change, ClaimRequest, Claimed, DecidedRun, Ended, StoreError, StoreResult, rows, schema};
use chrono::{DateTime, TimeDelta, Utc};
use sqlx::migrate::Migrator;

/// How many lost runs one claim takes over.
const LOST_AT_ONCE: i64 = 100;

/// How long a committing run that cannot be read is left alone.
const UNREADABLE_PAUSE: TimeDelta = TimeDelta::minutes(1);

/// What a claim has passed over.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Lost runs were taken over; who has them still is taking them over too.
    pub(super) lost: bool,
    /// Nor is a run that cannot be resumed looked at again.
    pub(super) unfinished: bool,
    /// Another transaction had the pipeline: worth waiting for once there is nothing else.
    pub(super) locked: Vec<String>,
    /// Another claimer was quicker.
    pub(super) taken: Vec<String>,
}

/// What there is for a claim, in the order in which it is done.
pub(super) enum Found {
    /// Running runs whose lease ran out.
    Lost,
    /// A committing run that nobody works on.
    Unfinished,
    /// A run of this pipeline whose time has come and that has no number yet.
    Due(String),
    /// A queued run of this pipeline that may begin.
    Next(String),
    Nothing,
}

/// What starting a run of a pipeline came to.
pub(super) enum Start {
    Claimed(Box<Claimed>),
    /// Another transaction has the pipeline.
    Locked,
    /// Another claimer was quicker.
    Taken,
}

/// Looks, in one statement and without holding up anybody, whether there is anything to claim; each step looks again. A server that was left
/// behind by a later version takes nothing more; what it holds it may end.
pub(super) async fn look(tx: &mut Tx, known: &Migrator, passed: &Passed) -> StoreResult<Found> {
    let over = json(&passed.locked.iter().chain(&passed.taken).collect::<Vec<_>>())?;
    let row = tx.one(tx.sql.claims.look, values![tx.given_now()?, None::<String>, over]).await?;
    schema::accepts(&row, known)?;
    if !passed.lost && row.flag("lost")? {
        return Ok(Found::Lost);
    }
    if !passed.unfinished && row.flag("unfinished")? {
        return Ok(Found::Unfinished);
    }
    let (due, next) = (row.optional_text("due")?, row.optional_text("next")?);
    Ok(due.map(Found::Due).or(next.map(Found::Next)).unwrap_or(Found::Nothing))
}

/// Ends the attempts of running runs whose lease ran out. `reading` is the run that is being read, here and below.
pub(super) async fn take_over_lost(
    tx: &mut Tx,
    request: &ClaimRequest,
    reading: &mut Option<RunId>,
) -> StoreResult<()> {
    let now = tx.now().await?;
    for row in tx.rows(tx.sql.claims.lost_runs, values![now, LOST_AT_ONCE]).await? {
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
        tx.announce(Change::Held(head.id));
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
    let Some(row) = tx.optional(tx.sql.claims.unfinished_run, values![now]).await? else { return Ok(None) };
    let Some(mut head) = lock(tx, *reading.insert(RunId(row.id("id")?))).await? else { return Ok(None) };
    if head.state != State::Committing || !head.lease_is_over(now) {
        return Ok(None);
    }
    close(tx, head.id, now, AttemptOutcome::Lost, None).await?;
    head.resume(request.token, now, request.lease);
    tx.announce(Change::Held(head.id));
    hand_over(tx, &head, request, now).await.map(Some)
}

/// Gives those runs of a pipeline their numbers whose time has come, unless another transaction has it; whether it was so.
pub(super) async fn number(tx: &mut Tx, pipeline: &str) -> StoreResult<bool> {
    if !try_lock(tx, pipeline).await? {
        return Ok(false);
    }
    let now = tx.now().await?;
    due::take_numbers(tx, pipeline, now).await?;
    Ok(true)
}

/// Claims the next queued run of a pipeline, without waiting for anybody.
pub(super) async fn start_unless_locked(
    tx: &mut Tx,
    request: &ClaimRequest,
    pipeline: &str,
    reading: &mut Option<RunId>,
) -> StoreResult<Start> {
    if !try_lock(tx, pipeline).await? {
        return Ok(Start::Locked);
    }
    let started = start(tx, request, pipeline, reading).await?;
    Ok(started.map_or(Start::Taken, |claimed| Start::Claimed(Box::new(claimed))))
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
    // The run may be cancelled between the two statements; then the next one is looked for, once.
    for _ in 0..2 {
        let values = values![tx.given_now()?, pipeline, "[]"];
        let Some(row) = tx.optional(tx.sql.claims.next_run, values).await? else { return Ok(None) };
        let Some(mut head) = lock(tx, *reading.insert(RunId(row.id("id")?))).await? else { continue };
        if head.state == State::Queued {
            // Only now: those that it waited for may have ended since.
            let now = tx.now().await?;
            head.start(request.token, now, request.lease);
            tx.execute(tx.sql.claims.take_turn, values![head.id]).await?;
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
        outbox::run_ended(tx, id).await?;
        tx.announce(Change::Run(id));
        tx.announce(Change::Queue);
    } else {
        tx.execute(tx.sql.put_off_unreadable, values![id, now + UNREADABLE_PAUSE]).await?;
    }
    Ok(())
}

/// Lets runs go that stand behind one that has ended; how many there were.
pub(super) async fn free_stranded(tx: &mut Tx) -> StoreResult<u64> {
    let freed = tx.execute(tx.sql.claims.free_stranded, Vec::new()).await?;
    if freed > 0 {
        tx.announce(Change::Queue);
    }
    Ok(freed)
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
