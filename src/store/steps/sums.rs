//! What tables sum up to: kept beside the catalog, by the transactions that change it.
//!
//! A kept sum is of a version of its table. Servers of the version before raise that and know of no sum; so one of another version
//! than the table's is not believed, but counted anew.

use crate::run::{Part, RunId, TableSum};
use crate::store::tx::{Tx, Value, json, values};
use crate::store::{StoreError, StoreResult};
use serde::Deserialize;

/// How a partition changes: from nothing where it is new, to nothing where it goes.
pub(super) struct Change {
    was: Option<Part>,
    becomes: Option<Part>,
}

/// What partitions will change when a decided run, or those in `only`, are entered in the catalog.
pub(super) async fn changes(
    tx: &mut Tx,
    (id, pipeline, definition): (RunId, &str, &str),
    only: Option<String>,
) -> StoreResult<Vec<Change>> {
    let mut changes = Vec::new();
    tx.each(tx.sql.sums.changes, values![id, pipeline, only, definition], |row| {
        changes.push(Change { was: row.optional_json("was")?, becomes: row.optional_json("becomes")? });
        Ok(())
    })
    .await?;
    Ok(changes)
}

/// Keeps the sum of a version that these changes have made, once the catalog has them.
pub(super) async fn follow(tx: &mut Tx, pipeline: &str, version: i64, changes: &[Change]) -> StoreResult<()> {
    let before = match version {
        1 => Some(TableSum::default()),
        _ => kept(tx, pipeline, version - 1).await?,
    };
    let sum = match before.and_then(|sum| changes.iter().try_fold(sum, changed)) {
        Some(sum) => sum,
        None => counted(tx, pipeline).await?,
    };
    tx.execute(tx.sql.sums.keep, values![pipeline, version, json(&sum)?]).await?;
    Ok(())
}

fn changed(mut sum: TableSum, change: &Change) -> Option<TableSum> {
    if let Some(was) = &change.was {
        sum = sum.without(was)?;
    }
    match &change.becomes {
        Some(becomes) => sum.with(becomes),
        None => Some(sum),
    }
}

/// The sum of a table that is at this version.
pub(super) async fn current(tx: &mut Tx, pipeline: &str, version: i64) -> StoreResult<TableSum> {
    match kept(tx, pipeline, version).await? {
        Some(sum) => Ok(sum),
        None => counted(tx, pipeline).await,
    }
}

/// Counts a table's sum anew and keeps it; whether the one that was kept of the same version was another.
pub(super) async fn settle(tx: &mut Tx, pipeline: &str) -> StoreResult<bool> {
    let Some(row) = tx.optional(tx.sql.sums.lock_table, values![pipeline]).await? else { return Ok(false) };
    let version = row.int("version")?;
    let (found, sum) = (kept(tx, pipeline, version).await?, counted(tx, pipeline).await?);
    if found.as_ref().is_none_or(|found| found.differs_from(&sum)) {
        tx.execute(tx.sql.sums.keep, values![pipeline, version, json(&sum)?]).await?;
    }
    Ok(found.is_some_and(|found| found.differs_from(&sum)))
}

/// What is kept of a table and what its partitions sum up to, where the two differ; from one snapshot.
pub(super) async fn difference(tx: &mut Tx, pipeline: &str) -> StoreResult<Option<(TableSum, TableSum)>> {
    let version = super::read::table_version(tx, pipeline).await?;
    let Some(found) = kept(tx, pipeline, version).await? else { return Ok(None) };
    let sum = counted(tx, pipeline).await?;
    Ok(found.differs_from(&sum).then_some((found, sum)))
}

/// None where it is of another version, or was written by a version that keeps it otherwise.
async fn kept(tx: &mut Tx, pipeline: &str, version: i64) -> StoreResult<Option<TableSum>> {
    /// Read as one, or not at all.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Kept {
        Sum(TableSum),
        Other(serde::de::IgnoredAny),
    }

    let Some(row) = tx.optional(tx.sql.sums.kept, values![pipeline]).await? else { return Ok(None) };
    if row.int("version")? != version {
        return Ok(None);
    }
    Ok(match row.json("sum")? {
        Kept::Sum(sum) => Some(sum),
        Kept::Other(_) => None,
    })
}

async fn counted(tx: &mut Tx, pipeline: &str) -> StoreResult<TableSum> {
    of(tx, tx.sql.contents, values![pipeline, None::<String>, None::<String>]).await
}

/// The sum of the contents that a statement gives: a table may have more partitions than fit in memory at once.
pub(super) async fn of(tx: &mut Tx, contents: &'static str, range: Vec<Value>) -> StoreResult<TableSum> {
    let mut sum = TableSum::default();
    tx.each(contents, range, |row| {
        let all = std::mem::take(&mut sum).with(&row.json::<Part>("content")?);
        sum = all.ok_or_else(|| StoreError::Corrupt("rows add up to more than 2^64".to_owned()))?;
        Ok(())
    })
    .await?;
    Ok(sum)
}
