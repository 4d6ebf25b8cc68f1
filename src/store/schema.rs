//! Which databases this version works with.
//!
//! Migrations only add, so a version works with a database that a later one has brought along. One that takes away says so: it
//! raises `meta.oldest_schema`, the lowest migration that a version must know.

use super::tx::{Row, Tx};
use super::{StoreError, StoreResult};
use sqlx::migrate::Migrator;
use std::collections::BTreeSet;

/// The last migration that was applied; none where there is no schema yet.
pub(super) const APPLIED: &str = "select max(version) from _sqlx_migrations";

/// The migrations that this version knows, for a database that may have later ones: those are judged by [`check`].
pub(super) fn migrator(known: &Migrator) -> Migrator {
    let mut migrator = Migrator::with_migrations(known.iter().cloned().collect());
    migrator.set_ignore_missing(true);
    migrator
}

/// Whether the database is one for this version: neither behind it nor too far ahead.
pub(super) async fn check(tx: &mut Tx, migrations: &Migrator) -> StoreResult<()> {
    let known: BTreeSet<i64> = migrations.iter().map(|migration| migration.version).collect();
    let applied = tx.rows("select version from _sqlx_migrations", Vec::new()).await?;
    let applied: BTreeSet<i64> = applied.iter().map(|row| row.int("version")).collect::<StoreResult<_>>()?;
    let (latest, found) = (last(&known), last(&applied));
    if let Some(lacking) = known.difference(&applied).next() {
        return Err(StoreError::Setup(format!(
            "the database is at migration {found} and lacks {lacking}, expected all up to {latest}: `refrain serve` and \
             `refrain migrate` bring it along"
        )));
    }
    if let Some(stranger) = applied.difference(&known).find(|version| **version < latest) {
        return Err(StoreError::Setup(format!(
            "the database has migration {stranger}, which this version of refrain does not know, expected none below its own \
             latest, {latest}: it is of another line of versions"
        )));
    }
    still_accepts(tx, migrations).await
}

/// Whether a database that was right when this process began still is. A later version may have changed it since.
pub(super) async fn still_accepts(tx: &mut Tx, known: &Migrator) -> StoreResult<()> {
    accepts(&tx.one(tx.sql.oldest_schema, Vec::new()).await?, known)
}

/// The same of a row that has `oldest_schema`.
pub(super) fn accepts(row: &Row, known: &Migrator) -> StoreResult<()> {
    let oldest = row.int("oldest_schema")?;
    let latest = known.iter().map(|migration| migration.version).max().unwrap_or_default();
    if oldest > latest {
        return Err(StoreError::Setup(format!(
            "the database needs a version of refrain that knows migration {oldest}, found one that knows those up to {latest}: a \
             later version has changed the database; start that one, or restore a backup from before it"
        )));
    }
    Ok(())
}

fn last(versions: &BTreeSet<i64>) -> i64 {
    versions.last().copied().unwrap_or_default()
}
