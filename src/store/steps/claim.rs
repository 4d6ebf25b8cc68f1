//! Who works on what: lost workers are taken over, committing runs are resumed, queued runs are started.

use super::attempt::close;
use super::{lock, read, save};
use crate::run::{AttemptOutcome, RunId, State};
use crate::store::head::Head;
use crate::store::tx::{Tx, json, values};
use crate::store::{Change, ClaimRequest, Claimed, Ended, StoreError, StoreResult, rows};
use chrono::{DateTime, Utc};

/// How many lost runs one claim takes over.
const LOST_AT_ONCE: i64 = 100;

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
    None,
}

/// Ends the attempts of running runs whose lease ran out.
pub(super) async fn take_over_lost(tx: &mut Tx, request: &ClaimRequest) -> StoreResult<()> {
    let now = tx.now().await?;
    for row in tx.rows(tx.sql.lost_runs, values![now, LOST_AT_ONCE]).await? {
        let Some(mut head) = lock(tx, RunId(row.id("id")?)).await? else { continue };
        if head.state != State::Running || !head.lease_is_over(now) {
            continue;
        }
        let ended = Ended {
            outcome: AttemptOutcome::Lost,
            error: None,
            retry_after: None,
            max_lost_workers: request.max_lost_workers,
        };
        head.end_attempt(&ended, now);
        close(tx, head.id, now, AttemptOutcome::Lost, None).await?;
        save(tx, &head).await?;
        tx.announce(Change::Queue);
    }
    Ok(())
}

/// Claims the committing run that nobody works on, if there is one; it comes before everything queued.
pub(super) async fn resume(tx: &mut Tx, request: &ClaimRequest) -> StoreResult<Option<Claimed>> {
    let now = tx.now().await?;
    let Some(row) = tx.optional(tx.sql.unfinished_run, values![now]).await? else { return Ok(None) };
    let Some(mut head) = lock(tx, RunId(row.id("id")?)).await? else { return Ok(None) };
    if head.state != State::Committing || !head.lease_is_over(now) {
        return Ok(None);
    }
    close(tx, head.id, now, AttemptOutcome::Lost, None).await?;
    head.resume(request.token, now, request.lease);
    hand_over(tx, &head, request, now).await.map(Some)
}

/// Claims the next queued run of any pipeline but those passed over, without waiting for anybody.
pub(super) async fn start_next(tx: &mut Tx, request: &ClaimRequest, passed: &Passed) -> StoreResult<Next> {
    let now = tx.now().await?;
    let over: Vec<&String> = passed.locked.iter().chain(&passed.taken).collect();
    let Some(row) = tx.optional(tx.sql.next_run, values![now, None::<String>, json(&over)?]).await? else {
        return Ok(Next::None);
    };
    let pipeline = row.text("pipeline")?;
    if !tx.one(tx.sql.try_lock_pipeline, values![pipeline.as_str()]).await?.flag("locked")? {
        return Ok(Next::Locked(pipeline));
    }
    match start(tx, request, &pipeline).await? {
        Some(claimed) => Ok(Next::Claimed(Box::new(claimed))),
        None => Ok(Next::Taken(pipeline)),
    }
}

/// Claims the next queued run of a pipeline, waiting for whoever has it.
pub(super) async fn start_of(tx: &mut Tx, request: &ClaimRequest, pipeline: &str) -> StoreResult<Option<Claimed>> {
    tx.rows(tx.sql.lock_pipeline, values![pipeline]).await?;
    start(tx, request, pipeline).await
}

/// The pipeline is locked, so this statement sees every lower number and every other claim.
async fn start(tx: &mut Tx, request: &ClaimRequest, pipeline: &str) -> StoreResult<Option<Claimed>> {
    let now = tx.now().await?;
    let Some(row) = tx.optional(tx.sql.next_run, values![now, pipeline, "[]"]).await? else { return Ok(None) };
    let Some(mut head) = lock(tx, RunId(row.id("id")?)).await? else { return Ok(None) };
    // It may have been cancelled between the two statements.
    if head.state != State::Queued {
        return Ok(None);
    }
    // Again: those that it waited for may have ended since.
    let now = tx.now().await?;
    head.start(request.token, now, request.lease);
    hand_over(tx, &head, request, now).await.map(Some)
}

/// Writes the claim down; answers with all that its worker needs.
async fn hand_over(tx: &mut Tx, head: &Head, request: &ClaimRequest, now: DateTime<Utc>) -> StoreResult<Claimed> {
    let attempt = values![head.id, head.attempts, request.worker.as_str(), request.token, now];
    tx.execute(tx.sql.insert_attempt, attempt).await?;
    save(tx, head).await?;
    let decided = match (head.state, head.decided_token) {
        (State::Committing, Some(token)) => {
            let partitions = tx.rows(tx.sql.run_partitions, values![head.id]).await?;
            Some((token, partitions.iter().map(rows::decided).collect::<StoreResult<_>>()?))
        }
        _ => None,
    };
    let definition = rows::definition(&tx.one(tx.sql.definition, values![head.definition.0.as_str()]).await?)?;
    let run = read::run(tx, head.id).await?.ok_or(StoreError::Refused(sqlx::Error::RowNotFound))?;
    let (token, attempt, failures) = (request.token, head.attempts, head.failures);
    Ok(Claimed { run, token, attempt, failures, definition, decided })
}
