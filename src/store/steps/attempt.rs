//! What a worker says of its attempt before the decision, and how attempts end.

use super::{lock, outbox, save};
use crate::run::{AttemptOutcome, ClaimToken, Progress, RunError, RunId, State};
use crate::store::head::after;
use crate::store::tx::{Tx, json, values};
use crate::store::{Change, Ended, Fenced, Renewal, StoreError, StoreResult, rows};
use crate::telemetry::{METRIC_ATTEMPTS, METRIC_RETRIES};
use chrono::{DateTime, Utc};
use std::time::Duration;

pub(super) async fn renew(
    tx: &mut Tx,
    id: RunId,
    token: ClaimToken,
    lease: Duration,
    progress: &Progress,
) -> StoreResult<Renewal> {
    let Some(mut head) = lock(tx, id).await?.filter(|head| head.claim_token == Some(token)) else {
        return Ok(Renewal::Lost);
    };
    head.lease_until = Some(after(tx.now().await?, lease));
    head.progress = Some(progress.clone());
    tx.execute(tx.sql.save_run, rows::head_values(&head)?).await?;
    Ok(if head.cancel_requested { Renewal::CancelAsked } else { Renewal::Held })
}

pub(super) async fn end(tx: &mut Tx, id: RunId, token: ClaimToken, ended: &Ended) -> StoreResult<Fenced> {
    if matches!(ended.outcome, AttemptOutcome::Succeeded | AttemptOutcome::StagingLost) {
        let found = ended.outcome.as_str();
        return Err(StoreError::Setup(format!(
            "an attempt was ended as {found}, expected an outcome without a result"
        )));
    }
    let Some(mut head) = lock(tx, id).await?.filter(|head| head.held_by(token, State::Running)) else {
        return ended_before(tx, id, token, ended.outcome).await;
    };
    let now = tx.now().await?;
    head.end_attempt(ended, now);
    close(tx, id, now, ended.outcome, ended.error.as_ref()).await?;
    if let Some(quarantine) = &ended.quarantine {
        tx.execute(tx.sql.save_quarantine, values![id, json(quarantine)?]).await?;
    }
    save(tx, &head).await?;
    if head.state == State::Queued {
        let reason = match &ended.error {
            Some(error) => error.class.as_str(),
            None => ended.outcome.as_str(),
        };
        queued_again(tx, reason);
    }
    tx.announce(Change::Queue);
    Ok(Fenced::Done)
}

/// Counts a run that is queued again.
pub(super) fn queued_again(tx: &mut Tx, reason: &'static str) {
    tx.count(metrics::counter!(METRIC_RETRIES, "reason" => reason));
}

/// Ends the attempt that goes on.
pub(super) async fn close(
    tx: &mut Tx,
    id: RunId,
    now: DateTime<Utc>,
    outcome: AttemptOutcome,
    error: Option<&RunError>,
) -> StoreResult<()> {
    let row = values![id, now, outcome.as_str(), rows::optional_json(error)?];
    let Some(row) = tx.optional(tx.sql.end_open_attempt, row).await? else { return Ok(()) };
    let class = error.map_or("none", |error| error.class.as_str());
    tx.count(metrics::counter!(METRIC_ATTEMPTS, "outcome" => outcome.as_str(), "class" => class));
    outbox::attempt_ended(tx, id, row.small_count("number")?, (outcome, error), now).await
}

/// Whether the token's attempt ended so already: then the answer to that call was lost, and this is its repeat.
pub(super) async fn ended_before(
    tx: &mut Tx,
    id: RunId,
    token: ClaimToken,
    outcome: AttemptOutcome,
) -> StoreResult<Fenced> {
    let row = tx.optional(tx.sql.attempt_outcome, values![id, token]).await?;
    let found = row.as_ref().map(rows::attempt_outcome).transpose()?.flatten();
    Ok(if found == Some(outcome) { Fenced::Done } else { Fenced::Lost })
}
