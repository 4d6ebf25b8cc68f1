//! Whether a schema is the one of this version, for those who use a database beside its servers.

use super::{StoreError, StoreResult};
use sqlx::migrate::Migrator;
use std::fmt::Display;

/// The last migration that was applied.
pub(super) const APPLIED: &str = "select max(version) from _sqlx_migrations";

/// How a schema stands to this version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// There is none yet.
    Absent,
    /// It is this version's.
    Current,
}

/// Judges the last migration that was applied to the database at `place`, if any was.
///
/// # Errors
///
/// The schema is older, or newer.
pub(super) fn judge(applied: Option<i64>, migrations: &Migrator, place: &dyn Display) -> StoreResult<Schema> {
    let expected = migrations.iter().map(|migration| migration.version).max().unwrap_or(0);
    match applied {
        None => Ok(Schema::Absent),
        Some(applied) if applied == expected => Ok(Schema::Current),
        Some(applied) if applied < expected => Err(StoreError::Setup(format!(
            "the database {place} has an older schema: found migration {applied}, expected {expected}; start its server with \
             this version, or run refrain migrate"
        ))),
        Some(applied) => Err(StoreError::Setup(format!(
            "the database {place} has a newer schema: found migration {applied}, expected {expected}; use the version of its \
             server"
        ))),
    }
}
