//! What is asked and changes nothing. Each answer is from one snapshot.

use super::sums;
use crate::partition::PartitionKey;
use crate::run::{
    CatalogEntry, ClaimToken, DefinitionHash, HistoryEntry, IdempotencyKey, Principal, Quarantine, QuarantineFile, Run,
    RunId, RunSummary, Scope, State,
};
use crate::store::tx::{Tx, json, values};
use crate::store::{
    AsOf, Glance, KnownKey, Listing, PartitionFilter, PipelineDepth, QueueDepth, RunFilter, StagingVerdict, StoreError,
    StoreResult, StoredDefinition, rows, whole,
};
use chrono::{DateTime, Utc};
use std::collections::HashMap;
use uuid::Uuid;

/// How many of a run's attempts are read; the last ones.
const LISTED_ATTEMPTS: u32 = 100;

/// The database's own id and its warehouse's.
pub(super) async fn identity(tx: &mut Tx) -> StoreResult<(Uuid, Option<Uuid>)> {
    let row = tx.one(tx.sql.identity, Vec::new()).await?;
    Ok((row.id("database_id")?, row.optional_id("warehouse_id")?))
}

pub(super) async fn overlapping(
    tx: &mut Tx,
    pipeline: &str,
    scope: &Scope,
    limit: u32,
) -> StoreResult<Vec<(RunId, State)>> {
    let keys = match scope {
        Scope::Full => None,
        Scope::Partitions(keys) => Some(json(keys)?),
    };
    let now = tx.now().await?;
    let rows = tx.rows(tx.sql.overlapping_scope, values![pipeline, keys, limit, now]).await?;
    rows.iter().map(|row| Ok((RunId(row.id("id")?), rows::state(row)?))).collect()
}

pub(super) async fn glances(tx: &mut Tx, ids: &[RunId]) -> StoreResult<Vec<Glance>> {
    tx.rows(tx.sql.glances, values![json(ids)?]).await?.iter().map(rows::glance).collect()
}

pub(super) async fn run(tx: &mut Tx, id: RunId) -> StoreResult<Option<Run>> {
    Ok(runs(tx, &[id]).await?.pop())
}

pub(super) async fn runs(tx: &mut Tx, ids: &[RunId]) -> StoreResult<Vec<Run>> {
    tx.rows(tx.sql.runs, values![json(ids)?, LISTED_ATTEMPTS]).await?.iter().map(whole::run).collect()
}

pub(super) async fn known_keys(tx: &mut Tx, keys: &[(Principal, IdempotencyKey)]) -> StoreResult<Vec<KnownKey>> {
    tx.rows(tx.sql.known_keys, values![json(keys)?, LISTED_ATTEMPTS]).await?.iter().map(whole::known_key).collect()
}

/// Of several pipelines the first ones of each: so a listing does not walk through the runs of others, however many there are.
pub(super) async fn list(tx: &mut Tx, filter: &RunFilter) -> StoreResult<Vec<RunSummary>> {
    let Some(pipelines) = &filter.pipelines else { return list_one(tx, filter).await };
    let mut found = Vec::new();
    for pipeline in pipelines.iter().filter(|name| filter.pipeline.as_ref().is_none_or(|asked| asked == *name)) {
        let of_one = RunFilter { pipeline: Some(pipeline.clone()), pipelines: None, ..filter.clone() };
        found.append(&mut list_one(tx, &of_one).await?);
    }
    found.sort_by_key(|run| std::cmp::Reverse(run.id));
    found.truncate(filter.limit as usize);
    Ok(found)
}

async fn list_one(tx: &mut Tx, filter: &RunFilter) -> StoreResult<Vec<RunSummary>> {
    let key = filter.idempotency_key.as_ref();
    let values = values![
        filter.pipeline.as_deref(),
        filter.state.map(State::as_str),
        filter.created_after,
        filter.created_before,
        filter.before,
        filter.limit,
        filter.partition.as_ref().map(PartitionKey::as_str),
        json(&filter.labels)?,
        key.map(|(principal, _)| principal).or(filter.principal.as_ref()).map(|principal| principal.0.as_str()),
        key.map(|(_, key)| key.as_str()),
    ];
    // The same listing by whichever index narrows it most.
    let statement = match filter {
        RunFilter { idempotency_key: Some(_), .. } => tx.sql.list_of_key,
        RunFilter { partition: Some(_), .. } => tx.sql.list_of_partition,
        RunFilter { state: Some(state), .. } if !state.is_ended() => tx.sql.list_in_state,
        RunFilter { labels, .. } if !labels.is_empty() => tx.sql.list_of_label,
        RunFilter { pipeline: Some(_), .. } => tx.sql.list_of_pipeline,
        RunFilter { principal: Some(_), .. } => tx.sql.list_of_principal,
        RunFilter { state: Some(_), .. } => tx.sql.list_in_state,
        _ => tx.sql.list,
    };
    tx.rows(statement, values).await?.iter().map(rows::summary).collect()
}

pub(super) async fn partitions(tx: &mut Tx, pipeline: &str, filter: &PartitionFilter) -> StoreResult<Listing> {
    let text = |key: &Option<PartitionKey>| key.as_ref().map(|key| key.as_str().to_owned());
    let (from, until, after) = (text(&filter.from), text(&filter.until), text(&filter.after));
    let (current, history_from) = table_versions(tx, pipeline).await?;
    let version = filter.as_of.unwrap_or(current);
    let is_all = filter.as_of.is_none() && filter.from.is_none() && filter.until.is_none();
    let mut range = values![pipeline, from.clone(), until.clone()];
    let mut page = values![pipeline, from, until, after, i64::from(filter.limit) + 1];
    let (contents, entries) = match filter.as_of {
        None => (tx.sql.contents, tx.sql.page),
        Some(version) => {
            range.push(version.into());
            page.push(version.into());
            (tx.sql.contents_as_of, tx.sql.page_as_of)
        }
    };
    let sum = match is_all {
        true => sums::current(tx, pipeline, version).await?,
        false => sums::of(tx, contents, range).await?,
    };
    let mut page = tx.rows(entries, page).await?;
    let more = page.len() > filter.limit as usize;
    page.truncate(filter.limit as usize);
    Ok(Listing {
        version,
        history_from,
        entries: page.iter().map(rows::catalog_entry).collect::<StoreResult<_>>()?,
        more,
        partitions: sum.partitions,
        rows: sum.rows,
        totals: sum.totals(),
    })
}

pub(super) async fn table_version(tx: &mut Tx, pipeline: &str) -> StoreResult<i64> {
    Ok(table_versions(tx, pipeline).await?.0)
}

/// The version of a table, and the oldest one that can be told.
async fn table_versions(tx: &mut Tx, pipeline: &str) -> StoreResult<(i64, i64)> {
    let row = tx.optional(tx.sql.version, values![pipeline]).await?;
    row.map_or(Ok((0, 0)), |row| Ok((row.int("version")?, row.int("history_from")?)))
}

pub(super) async fn version_as_of(tx: &mut Tx, pipeline: &str, moment: AsOf) -> StoreResult<Option<i64>> {
    match moment {
        AsOf::Version(version) => {
            let last = table_version(tx, pipeline).await?;
            Ok(Some(version).filter(|version| (0..=last).contains(version)))
        }
        AsOf::Run(id) => version_of_run(tx, pipeline, id).await,
        AsOf::Time(time) => match version_at(tx, pipeline, time).await? {
            // Before all that is told there may have been versions that were forgotten.
            None if table_versions(tx, pipeline).await?.1 > 0 => Ok(Some(0)),
            version => Ok(version),
        },
    }
}

async fn version_of_run(tx: &mut Tx, pipeline: &str, id: RunId) -> StoreResult<Option<i64>> {
    let Some(run) = tx.optional(tx.sql.ended_run, values![id]).await? else { return Ok(None) };
    if run.text("pipeline")? != pipeline || rows::state(&run)? != State::Succeeded {
        return Ok(None);
    }
    let made = tx.one(tx.sql.version_of_run, values![pipeline, id]).await?.optional_int("version")?;
    match made {
        Some(made) => Ok(Some(made)),
        None => Ok(Some(version_at(tx, pipeline, run.time("ended_at")?).await?.unwrap_or(0))),
    }
}

async fn version_at(tx: &mut Tx, pipeline: &str, time: DateTime<Utc>) -> StoreResult<Option<i64>> {
    tx.one(tx.sql.version_at, values![pipeline, time]).await?.optional_int("version")
}

pub(super) async fn entries(
    tx: &mut Tx,
    pipeline: &str,
    keys: Option<&[PartitionKey]>,
) -> StoreResult<Vec<CatalogEntry>> {
    let rows = match keys {
        Some(keys) => tx.rows(tx.sql.entries, values![pipeline, json(keys)?]).await?,
        None => tx.rows(tx.sql.table_entries, values![pipeline]).await?,
    };
    let mut entries = rows.iter().map(rows::catalog_entry).collect::<StoreResult<Vec<_>>>()?;
    entries.sort_unstable_by(|a, b| a.partition.cmp(&b.partition));
    Ok(entries)
}

pub(super) async fn table_definitions(tx: &mut Tx, pipeline: &str) -> StoreResult<Vec<StoredDefinition>> {
    tx.rows(tx.sql.table_definitions, values![pipeline]).await?.iter().map(rows::definition).collect()
}

pub(super) async fn definitions(tx: &mut Tx, hashes: &[DefinitionHash]) -> StoreResult<Vec<StoredDefinition>> {
    if hashes.is_empty() {
        return Ok(Vec::new());
    }
    tx.rows(tx.sql.definitions, values![json(hashes)?]).await?.iter().map(rows::definition).collect()
}

pub(super) async fn partition(
    tx: &mut Tx,
    pipeline: &str,
    key: &PartitionKey,
    before: Option<i64>,
    limit: u32,
) -> StoreResult<(Option<CatalogEntry>, Vec<HistoryEntry>)> {
    let entry = entries(tx, pipeline, Some(std::slice::from_ref(key))).await?.pop();
    let changes = tx.rows(tx.sql.history, values![pipeline, key.as_str(), before, limit]).await?;
    Ok((entry, changes.iter().map(rows::history_entry).collect::<StoreResult<_>>()?))
}

pub(super) async fn staging_verdicts(
    tx: &mut Tx,
    folders: &[(RunId, Option<ClaimToken>)],
) -> StoreResult<Vec<StagingVerdict>> {
    let ids: Vec<RunId> = folders.iter().map(|(id, _)| *id).collect();
    let mut known = HashMap::new();
    for row in tx.rows(tx.sql.leftover_runs, values![json(&ids)?]).await? {
        let tokens = [row.optional_id("claim_token")?, row.optional_id("decided_token")?];
        known.insert(row.id("id")?, (rows::state(&row)?, tokens));
    }
    let verdict = |(id, token): &(RunId, Option<ClaimToken>)| match known.get(&id.0) {
        None => StagingVerdict::Unknown,
        Some((state, tokens)) if !state.is_ended() && token.is_none_or(|t| tokens.contains(&Some(t.0))) => {
            StagingVerdict::Keep
        }
        Some(_) => StagingVerdict::Remove,
    };
    Ok(folders.iter().map(verdict).collect())
}

pub(super) async fn quarantine_verdicts(tx: &mut Tx, files: &[QuarantineFile]) -> StoreResult<Vec<StagingVerdict>> {
    let ids: Vec<RunId> = files.iter().map(|file| file.run).collect();
    let mut known = HashMap::new();
    for row in tx.rows(tx.sql.leftover_runs, values![json(&ids)?]).await? {
        let recorded = match row.optional_json::<Quarantine>("quarantine") {
            // It may name any of them.
            Err(StoreError::Corrupt(why)) => Err(why),
            other => Ok(other?.map(|recorded| recorded.path)),
        };
        let at_work = row.optional_id("claim_token")?.filter(|_| rows::state(&row).is_ok_and(|s| s == State::Running));
        known.insert(row.id("id")?, (recorded, at_work));
    }
    let verdict = |file: &QuarantineFile| match known.get(&file.run.0) {
        None => StagingVerdict::Unknown,
        Some((Err(why), _)) => {
            tracing::warn!(run.id = %file.run, path = %file.path, why, "what the run has kept apart cannot be read, it stays");
            StagingVerdict::Keep
        }
        Some((Ok(recorded), at_work)) if recorded.as_ref() == Some(&file.path) || *at_work == Some(file.token.0) => {
            StagingVerdict::Keep
        }
        Some(_) => StagingVerdict::Remove,
    };
    Ok(files.iter().map(verdict).collect())
}

pub(super) async fn queue_depth(tx: &mut Tx) -> StoreResult<QueueDepth> {
    let now = tx.now().await?;
    let row = tx.one(tx.sql.queue_depth, values![now]).await?;
    let waiting = |due: Option<DateTime<Utc>>| due.and_then(|due| (now - due).to_std().ok());
    let mut depth = QueueDepth {
        queued: row.count("queued")?,
        scheduled: row.count("scheduled")?,
        running: row.count("running")?,
        committing: row.count("committing")?,
        oldest_due: waiting(row.optional_time("oldest_due")?),
        pipelines: Vec::new(),
    };
    for row in tx.rows(tx.sql.pipeline_depths, values![now]).await? {
        depth.pipelines.push(PipelineDepth {
            pipeline: row.text("pipeline")?,
            due: row.count("due")?,
            oldest_due: waiting(row.optional_time("oldest_due")?),
            last_success: row.optional_time("last_success")?,
        });
    }
    Ok(depth)
}
