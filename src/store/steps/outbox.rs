//! What is told of runs: written in the transaction in which it happens, taken in hand by one server at a time.

use crate::partition::PartitionKey;
use crate::run::{
    AttemptOutcome, Audience, Labels, Notice, Occasion, PartitionCounts, RowCounts, RunError, RunId, SourceFile,
};
use crate::store::head::after;
use crate::store::rows::known;
use crate::store::tx::{Row, Tx, json, values};
use crate::store::{
    Fenced, Message, MessageClaim, OutboxDepth, Recipient, StoreError, StoreResult, Taken, Then, Tried,
    UnreadableMessage, Waiting, rows,
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use uuid::Uuid;

/// The names of the two kinds in the database.
const WEBHOOK: &str = "webhook";
const LINEAGE: &str = "lineage";

/// Tells the run's webhooks that it has ended.
pub(super) async fn run_ended(tx: &mut Tx, id: RunId) -> StoreResult<()> {
    let Some((row, audience)) = told(tx, id).await?.filter(|(_, told)| !told.webhooks.is_empty()) else {
        return Ok(());
    };
    let now = tx.now().await?;
    let notice = Notice { at: row.optional_time("ended_at")?.unwrap_or(now), ..notice(tx, id, &row, now).await? };
    for url in &audience.webhooks {
        put(tx, &notice, Some(url), now).await?;
    }
    Ok(())
}

/// Tells the lineage of a run that an attempt was claimed.
pub(super) async fn attempt_started(tx: &mut Tx, id: RunId, attempt: u32, now: DateTime<Utc>) -> StoreResult<()> {
    attempt_told(tx, id, attempt, Occasion::AttemptStarted, None, now).await
}

/// Tells the lineage of a run how an attempt has ended.
pub(super) async fn attempt_ended(
    tx: &mut Tx,
    id: RunId,
    attempt: u32,
    (outcome, error): (AttemptOutcome, Option<&RunError>),
    now: DateTime<Utc>,
) -> StoreResult<()> {
    attempt_told(tx, id, attempt, Occasion::AttemptEnded(outcome), error, now).await
}

async fn attempt_told(
    tx: &mut Tx,
    id: RunId,
    attempt: u32,
    occasion: Occasion,
    error: Option<&RunError>,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    let Some((row, _)) = told(tx, id).await?.filter(|(_, told)| told.lineage) else { return Ok(()) };
    let mut sources = None;
    if occasion == Occasion::AttemptEnded(AttemptOutcome::Succeeded) {
        sources = known(row.optional_json::<Vec<SourceFile>>("sources"))?;
    }
    let (error, sources) = (error.cloned(), sources.unwrap_or_default());
    let notice = Notice { occasion, attempt, error, sources, ..notice(tx, id, &row, now).await? };
    put(tx, &notice, None, now).await
}

/// The run as it is and who is told of it; none where nobody is.
async fn told(tx: &mut Tx, id: RunId) -> StoreResult<Option<(Row, Audience)>> {
    let Some(row) = tx.optional(tx.sql.outbox.told, values![id]).await? else { return Ok(None) };
    let audience = known(row.optional_json::<Audience>("audience"))?.filter(|told| !told.is_nobody());
    Ok(audience.map(|audience| (row, audience)))
}

/// What is told of the run as it is. What cannot be read is left out: a run ends whatever can be said of it.
async fn notice(tx: &mut Tx, id: RunId, row: &Row, now: DateTime<Utc>) -> StoreResult<Notice> {
    let rows = known(row.optional_json::<RowCounts>("rows"))?;
    Ok(Notice {
        occasion: Occasion::RunEnded,
        at: now,
        run_id: id,
        principal: row.text("principal")?,
        idempotency_key: row.text("idempotency_key")?,
        pipeline: row.text("pipeline")?,
        mode: rows::mode(row)?,
        state: rows::state(row)?,
        attempt: row.small_count("attempts")?,
        labels: known(row.optional_json::<Labels>("labels"))?.unwrap_or_default(),
        definition: rows::definition_hash(row)?,
        created_at: row.time("created_at")?,
        started_at: row.optional_time("started_at")?,
        error: known(row.optional_json("error"))?,
        rows: rows.map(|rows| RowCounts { out_of_scope_by_partition: Default::default(), ..rows }),
        partitions: partitions(tx, id).await?,
        sources: Vec::new(),
    })
}

/// The size of a partition's file, of all that is stored of it.
#[derive(Deserialize)]
struct Size {
    rows: u64,
    bytes: u64,
}

async fn partitions(tx: &mut Tx, id: RunId) -> StoreResult<PartitionCounts> {
    let mut counts = PartitionCounts::default();
    tx.each(tx.sql.run_partitions, values![id], |row| {
        let key = PartitionKey::from_canonical(row.text("partition")?);
        let size = known(row.optional_json::<Size>("content"))?;
        let (rows, bytes) = size.map_or((0, 0), |size| (size.rows, size.bytes));
        counts.add(key, rows::outcome(&row)?, rows, bytes);
        Ok(())
    })
    .await?;
    Ok(counts)
}

/// Writes a message: for a URL, or for the lineage.
async fn put(tx: &mut Tx, notice: &Notice, url: Option<&str>, now: DateTime<Utc>) -> StoreResult<()> {
    let kind = if url.is_some() { WEBHOOK } else { LINEAGE };
    let host = url.map_or("", host_of);
    let (id, whose) = (Uuid::now_v7(), notice.principal.as_str());
    let row = values![id, notice.run_id, kind, url, host, notice.event(), json(notice)?, now, whose];
    tx.execute(tx.sql.outbox.insert_message, row).await.map(drop)
}

/// The host of a URL, with its port where it says one.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Takes the message in hand that has been due longest, if there is one: of the lineage of a run the first one that was not told.
pub(super) async fn claim(tx: &mut Tx, request: &MessageClaim) -> StoreResult<Option<Taken>> {
    let now = tx.now().await?;
    let kinds: Vec<&str> = [(request.webhooks, WEBHOOK), (request.lineage, LINEAGE)]
        .into_iter()
        .filter_map(|(is_taken, kind)| is_taken.then_some(kind))
        .collect();
    let (hosts, principals) = (json(&request.busy)?, json(&request.busy_principals)?);
    let values = values![now, after(now, request.lease), request.token, json(&kinds)?, hosts, principals];
    tx.optional(tx.sql.outbox.claim_message, values).await?.as_ref().map(taken).transpose()
}

/// An error here would undo the claim, and this message would be the first one for ever.
fn taken(row: &Row) -> StoreResult<Taken> {
    let to = row.optional_text("url")?.map_or(Recipient::Lineage, Recipient::Webhook);
    let (position, host, tries) = (row.int("position")?, row.text("host")?, row.small_count("tries")?);
    let id = row.id("id");
    let readable_id = id.as_ref().ok().copied();
    match id.and_then(|id| Ok((id, row.json("notice")?))) {
        Ok((id, notice)) => Ok(Taken::Message(Box::new(Message { position, id, to, host, notice, tries }))),
        Err(StoreError::Corrupt(why)) => {
            Ok(Taken::Unreadable(UnreadableMessage { position, id: readable_id, to, tries, why }))
        }
        Err(error) => Err(error),
    }
}

/// Notes how a try ended. Lineage that was told is no longer of use to anybody.
pub(super) async fn tried(tx: &mut Tx, position: i64, token: Uuid, tried: &Tried) -> StoreResult<Fenced> {
    let now = tx.now().await?;
    let (state, due) = match tried.then {
        Then::Delivered => ("delivered", now),
        Then::Again(delay) => ("pending", after(now, delay)),
        Then::GiveUp => ("gave_up", now),
    };
    let told = values![position, token];
    if tried.then == Then::Delivered && tx.execute(tx.sql.outbox.drop_told_lineage, told).await? > 0 {
        return Ok(Fenced::Done);
    }
    let row = values![position, token, state, due, tried.status.map(i64::from), tried.error.as_deref(), now];
    if tx.execute(tx.sql.outbox.save_try, row).await? == 0 {
        return Ok(Fenced::Lost);
    }
    if matches!(tried.then, Then::Again(_)) {
        tx.execute(tx.sql.outbox.put_off_later_lineage, values![position, due]).await?;
    }
    Ok(Fenced::Done)
}

/// Who was told of the run's end, or is to be.
pub(super) async fn depth(tx: &mut Tx) -> StoreResult<OutboxDepth> {
    let now = tx.now().await?;
    let mut depth = OutboxDepth::default();
    for row in tx.rows(tx.sql.outbox.outbox_depth, Vec::new()).await? {
        let of: &mut Waiting = if row.text("kind")? == LINEAGE { &mut depth.lineage } else { &mut depth.webhooks };
        let messages = row.count("messages")?;
        if row.text("state")? == "pending" {
            of.pending = messages;
            of.oldest = row.optional_time("oldest")?.map(|oldest| (now - oldest).to_std().unwrap_or_default());
        } else {
            of.gave_up = messages;
        }
    }
    Ok(depth)
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn a_host_is_what_stands_before_the_path() {
        for (url, host) in [
            ("https://h.example/a/b?c", "h.example"),
            ("http://127.0.0.1:81", "127.0.0.1:81"),
            ("https://h?c://d/", "h"),
            ("https://[::1]:8443/a", "[::1]:8443"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }
}
