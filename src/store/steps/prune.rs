//! What goes when it is old: versions of tables that were superseded, then runs that ended and that nothing refers to.
//!
//! Each step is as large as what was once done in one transaction, so that it holds up nobody for longer than that did.

use crate::run::RunId;
use crate::store::prune::{EndedAt, Prunable, PrunableRun};
use crate::store::tx::{Tx, json, values};
use crate::store::{StoreError, StoreResult};
use chrono::{DateTime, TimeDelta, Utc};
use std::time::Duration;

/// Forgets the oldest version of a table, where the next one was committed so long ago: as of that one and all later ones the
/// table is told as before.
pub(super) async fn version(tx: &mut Tx, kept: Duration) -> StoreResult<bool> {
    let before = before(tx, kept).await?;
    let Some(row) = tx.optional(tx.sql.prune.version, values![before]).await? else { return Ok(false) };
    let (pipeline, version) = (row.text("pipeline")?, row.int("version")?);
    tx.execute(tx.sql.prune.history, values![pipeline.as_str(), version]).await?;
    tx.execute(tx.sql.prune.begin_history, values![pipeline, version]).await?;
    Ok(true)
}

pub(super) async fn prunable(tx: &mut Tx, kept: Duration, after: EndedAt, limit: u32) -> StoreResult<Prunable> {
    let before = before(tx, kept).await?;
    let rows = tx.rows(tx.sql.prune.ended_runs, values![before, after.time, after.run, limit]).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize);
    let next = next.map(|row| Ok::<_, StoreError>(EndedAt { time: row.time("ended_at")?, run: row.id("id")? }));
    let mut runs = Vec::new();
    for row in &rows {
        if row.flag("referred_to")? {
            continue;
        }
        let (id, partitions) = (RunId(row.id("id")?), row.count("partitions")?);
        match row.optional_json("quarantine") {
            // Its record may be the only one that names a file.
            Err(StoreError::Corrupt(why)) => {
                tracing::warn!(run.id = %id, why, "what the run has kept apart cannot be read, the run stays");
            }
            quarantine => runs.push(PrunableRun { id, partitions, quarantine: quarantine? }),
        }
    }
    Ok(Prunable { runs, next: next.transpose()? })
}

/// Those of the runs that may still go; one that was queued again meanwhile stays, and so does one that somebody else prunes.
pub(super) async fn runs(tx: &mut Tx, kept: Duration, runs: &[RunId]) -> StoreResult<u64> {
    let before = before(tx, kept).await?;
    let rows = tx.rows(tx.sql.prune.lock_runs, values![json(runs)?, before]).await?;
    let locked = json(&rows.iter().map(|row| row.id("id")).collect::<StoreResult<Vec<_>>>()?)?;
    for statement in [tx.sql.prune.labels, tx.sql.prune.attempts, tx.sql.prune.scopes] {
        tx.execute(statement, values![locked.as_str()]).await?;
    }
    tx.execute(tx.sql.prune.runs, values![locked]).await
}

/// By the database's clock, as all that is compared with it.
async fn before(tx: &mut Tx, kept: Duration) -> StoreResult<DateTime<Utc>> {
    let now = tx.now().await?;
    let before = TimeDelta::from_std(kept).ok().and_then(|kept| now.checked_sub_signed(kept));
    before.ok_or_else(|| StoreError::Setup(format!("runs cannot be kept for {kept:?}: there was no such time")))
}
