//! When a run is due, and its number in the order: at once, or, where it is not to begin before a time, then.
//!
//! Until then its `sequence` is below 0: it has no reservations, so it waits for nobody and nobody waits for it.

use super::next_sequence;
use crate::run::{Asked, RunId};
use crate::store::StoreResult;
use crate::store::tx::{Tx, json, values};
use chrono::{DateTime, Utc};

/// The number of a run that is queued now, or below 0 what stands for it, and when the run is due.
pub(super) async fn place(tx: &mut Tx, asked: &Asked, now: DateTime<Utc>) -> StoreResult<(i64, DateTime<Utc>)> {
    let number = next_sequence(tx).await?;
    Ok(match asked.not_before.filter(|time| *time > now) {
        Some(time) => (-number, time),
        None => (number, now),
    })
}

/// Gives those runs of a pipeline their numbers whose time has come, in the order of their times.
///
/// Whoever is about to draw a number of the pipeline, or to look at its queue, does this first and under the same lock: so
/// such a run goes before all that is submitted after its time, as if somebody had been there at that very moment. Where the
/// lock is shared, two who do it at once wait for each other at the runs' rows, and the second finds them numbered.
pub(super) async fn take_numbers(tx: &mut Tx, pipeline: &str, now: DateTime<Utc>) -> StoreResult<()> {
    let numbered = tx.rows(tx.sql.take_numbers, values![pipeline, now]).await?;
    let ids = numbered.iter().map(|row| row.id("id").map(RunId)).collect::<StoreResult<Vec<_>>>()?;
    if let Some(drawn) = i64::try_from(ids.len()).ok().filter(|drawn| *drawn > 0) {
        tx.rows(tx.sql.drawn_numbers, values![drawn]).await?;
        tx.execute(tx.sql.reserve_scope, values![json(&ids)?]).await?;
    }
    Ok(())
}
