//! Decide, publish, finish: the steps of a committing run.

use super::attempt::{close, ended_before, queued_again};
use super::submit::{undecide, unmet_since};
use super::{lock, read, save, sums};
use crate::partition::PartitionKey;
use crate::run::{Asked, AttemptOutcome, Base, CatalogEntry, ClaimToken, Mode, RunError, RunId, State};
use crate::store::head::{Head, after};
use crate::store::tx::{Tx, json, values};
use crate::store::{Begun, Change, Decision, Fenced, StoreError, StoreResult, rows};
use chrono::{DateTime, Utc};
use std::collections::HashMap;
use std::time::Duration;

pub(super) async fn begin(tx: &mut Tx, id: RunId, token: ClaimToken, decision: &Decision) -> StoreResult<Begun> {
    let Some(mut head) = lock(tx, id).await?.filter(|head| head.claim_token == Some(token)) else {
        return Ok(Begun::Lost);
    };
    if head.state == State::Committing {
        // The same token decided before, or it resumed what another decided and must not decide anew.
        return Ok(if head.decided_token == Some(token) { Begun::Committing } else { Begun::Lost });
    }
    if head.cancel_requested {
        return Ok(Begun::CancelAsked);
    }
    if let Some(partition) = changed_base(tx, &head, decision).await? {
        return Ok(Begun::BaseChanged(partition));
    }
    let asked = tx.one(tx.sql.asked, values![id]).await?.json::<Asked>("asked")?;
    let unmet = unmet_since(tx, id, &asked).await?;
    if !unmet.is_empty() {
        return Ok(Begun::PreconditionFailed(unmet));
    }
    save_decision(tx, &head, decision).await?;
    head.decide(&decision.progress);
    save(tx, &head).await?;
    Ok(Begun::Committing)
}

pub(super) async fn may_publish(tx: &mut Tx, id: RunId, token: ClaimToken) -> StoreResult<Fenced> {
    let held = lock(tx, id).await?.is_some_and(|head| head.held_by(token, State::Committing));
    Ok(if held { Fenced::Done } else { Fenced::Lost })
}

pub(super) async fn finish(tx: &mut Tx, id: RunId, token: ClaimToken) -> StoreResult<Fenced> {
    let Some(mut head) = lock(tx, id).await?.filter(|head| head.held_by(token, State::Committing)) else {
        return ended_before(tx, id, token, AttemptOutcome::Succeeded).await;
    };
    let now = tx.now().await?;
    enter(tx, &head, None, now).await?;
    head.succeed(tx.one(tx.sql.scope_size, values![id]).await?.count("partitions")?, now);
    close(tx, id, now, AttemptOutcome::Succeeded, None).await?;
    save(tx, &head).await?;
    tx.announce(Change::Queue);
    Ok(Fenced::Done)
}

pub(super) async fn postpone(
    tx: &mut Tx,
    id: RunId,
    token: ClaimToken,
    delay: Duration,
    outcome: AttemptOutcome,
    error: Option<&RunError>,
) -> StoreResult<Fenced> {
    if !matches!(outcome, AttemptOutcome::Failed | AttemptOutcome::Released) {
        let found = outcome.as_str();
        return Err(StoreError::Setup(format!("publishing was handed back as {found}, expected failed or released")));
    }
    let Some(mut head) = lock(tx, id).await?.filter(|head| head.held_by(token, State::Committing)) else {
        return ended_before(tx, id, token, outcome).await;
    };
    let now = tx.now().await?;
    head.postpone(after(now, delay), error.filter(|_| outcome == AttemptOutcome::Failed));
    close(tx, id, now, outcome, error).await?;
    save(tx, &head).await?;
    if delay.is_zero() {
        tx.announce(Change::Queue);
    }
    Ok(Fenced::Done)
}

pub(super) async fn staging_lost(
    tx: &mut Tx,
    id: RunId,
    token: ClaimToken,
    live: &[PartitionKey],
) -> StoreResult<Fenced> {
    let Some(mut head) = lock(tx, id).await?.filter(|head| head.held_by(token, State::Committing)) else {
        return ended_before(tx, id, token, AttemptOutcome::StagingLost).await;
    };
    let now = tx.now().await?;
    enter(tx, &head, Some(live), now).await?;
    head.undecide(now);
    close(tx, id, now, AttemptOutcome::StagingLost, None).await?;
    save(tx, &head).await?;
    undecide(tx, id, head.mode).await?;
    queued_again(tx, AttemptOutcome::StagingLost.as_str());
    tx.announce(Change::Queue);
    Ok(Fenced::Done)
}

/// The first partition whose rows were put into something else than the catalog has now. Whoever decides holds its
/// partitions, so nobody changes their entries until the transaction ends.
async fn changed_base(tx: &mut Tx, head: &Head, decision: &Decision) -> StoreResult<Option<PartitionKey>> {
    let merged: Vec<(&PartitionKey, &Base)> =
        decision.partitions.iter().filter_map(|d| Some((&d.partition, d.base.as_ref()?))).collect();
    if merged.is_empty() {
        return Ok(None);
    }
    let keys: Vec<PartitionKey> = merged.iter().map(|(key, _)| (*key).clone()).collect();
    let entries = read::entries(tx, &head.pipeline, Some(&keys)).await?;
    let entries: HashMap<&PartitionKey, &CatalogEntry> = entries.iter().map(|e| (&e.partition, e)).collect();
    let changed = merged.into_iter().find(|(key, base)| Base::of(entries.get(key).copied()) != **base);
    Ok(changed.map(|(key, _)| key.clone()))
}

/// Writes the decision down. For `overwrite` it must be for the scope and nothing else: a run replaces exactly what it
/// names.
async fn save_decision(tx: &mut Tx, head: &Head, decision: &Decision) -> StoreResult<()> {
    let rows = values![head.id, rows::decided_rows(&decision.partitions)?];
    match head.mode {
        Mode::Overwrite => tx.execute(tx.sql.decide_scope, rows).await?,
        Mode::Full => tx.execute(tx.sql.insert_decided, rows).await?,
    };
    let size = tx.one(tx.sql.scope_size, values![head.id]).await?;
    let (expected, found) = (size.count("partitions")?, decision.partitions.len() as u64);
    if found != expected || size.count("decided")? != expected {
        return Err(StoreError::Setup(format!(
            "run {} has a decision for {found} partitions, expected one for each of the {expected} of its scope",
            head.id
        )));
    }
    let (rows, sources) = (json(&decision.rows)?, json(&decision.sources)?);
    let report = values![head.id, rows, sources, json(&decision.warnings)?, decision.manifest];
    tx.execute(tx.sql.save_report, report).await?;
    let quarantine = rows::optional_json(decision.quarantine.as_ref())?;
    tx.execute(tx.sql.save_quarantine, values![head.id, quarantine]).await?;
    Ok(())
}

/// Enters in the catalog what was decided: all of it, or only the partitions in `only`. The version goes up by one where
/// any partition's content or definition changes.
async fn enter(tx: &mut Tx, head: &Head, only: Option<&[PartitionKey]>, now: DateTime<Utc>) -> StoreResult<()> {
    let sql = tx.sql;
    let (id, pipeline, definition) = (head.id, head.pipeline.as_str(), head.definition.0.as_str());
    let only = only.map(json).transpose()?;
    let changes = sums::changes(tx, (id, pipeline, definition), only.clone()).await?;
    let mut raised = None;
    if !changes.is_empty() {
        let version = tx.one(sql.raise_version, values![pipeline, 1_i64]).await?.int("version")?;
        tx.execute(sql.add_history, values![id, pipeline, only.clone(), definition, version, now]).await?;
        raised = Some(version);
    }
    tx.execute(sql.put_entries, values![id, pipeline, only.clone(), definition, now]).await?;
    tx.execute(sql.confirm_entries, values![id, pipeline, only.clone(), definition, now]).await?;
    tx.execute(sql.delete_entries, values![id, pipeline, only]).await?;
    match raised {
        Some(version) => sums::follow(tx, pipeline, version, &changes).await,
        None => Ok(()),
    }
}
