//! What a database's error means to the caller: ask again, or not.

use super::UnreadableRun;
use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;
use std::fmt::Display;
use std::path::Path;

/// Why the store did not do a step.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database did not answer, or broke off: whether the step was done is unknown. Ask again.
    #[error("the database is unreachable: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// The database refused; asking again changes nothing.
    #[error("the database refused: {0}")]
    Refused(#[source] sqlx::Error),
    /// A stored value cannot be read.
    #[error("the database holds what this version cannot read: {0}")]
    Corrupt(String),
    /// The documents of a run cannot be read.
    #[error("the run {} cannot be read: {}", .0.control.id, .0.why)]
    UnreadableRun(Box<UnreadableRun>),
    /// The step cannot be done by this store, in words for the operator.
    #[error("{0}")]
    Setup(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::Corrupt(error.to_string()),
            _ if is_passing(&error) => StoreError::Unavailable(error),
            _ => StoreError::Refused(error),
        }
    }
}

impl StoreError {
    /// What was found that cannot be read, if that is what it is.
    pub(super) fn unreadable(&self) -> Option<&str> {
        match self {
            StoreError::Corrupt(why) => Some(why),
            StoreError::UnreadableRun(run) => Some(&run.why),
            _ => None,
        }
    }

    /// Whether the database undid the transaction for another's sake, so that doing it again at once is right.
    pub(super) fn is_conflict(&self) -> bool {
        let StoreError::Unavailable(error) = self else { return false };
        matches!(code(error).as_deref(), Some("40001" | "40P01"))
    }

    /// Whether the connection was found to lead nowhere: the server ended it, or went away.
    pub(super) fn is_broken_connection(&self) -> bool {
        match self {
            StoreError::Unavailable(sqlx::Error::Io(error)) => error.kind() != std::io::ErrorKind::TimedOut,
            StoreError::Unavailable(sqlx::Error::Protocol(_)) => true,
            // Postgres: admin_shutdown, crash_shutdown, idle_session_timeout.
            StoreError::Unavailable(error) => matches!(code(error).as_deref(), Some("57P01" | "57P02" | "57P05")),
            _ => false,
        }
    }

    /// Whether the database could not write for want of room: its disk is full, or a file of it is at its limit.
    pub fn is_for_want_of_room(&self) -> bool {
        let StoreError::Unavailable(error) = self else { return false };
        // Postgres: disk_full. SQLite: FULL, IOERR_WRITE, IOERR_SHMSIZE.
        matches!(code(error).as_deref(), Some("53100" | "13" | "778" | "4874"))
    }

    /// Whether the database only reads: it is a standby, or somebody has shut it to writers.
    pub fn is_read_only(&self) -> bool {
        let StoreError::Unavailable(error) = self else { return false };
        // Postgres: read_only_sql_transaction.
        code(error).as_deref() == Some("25006")
    }

    /// A schema that could not be brought up to date.
    pub(super) fn from_migration(error: MigrateError, place: &dyn Display) -> Self {
        match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error.into(),
            other => StoreError::Setup(format!("the schema of {place} cannot be brought up to date: {other}")),
        }
    }

    /// The database did not answer in time.
    pub(super) fn timed_out(what: &'static str) -> Self {
        StoreError::Unavailable(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, what)))
    }
}

/// A file of the data folder that cannot be used.
pub(super) fn file_error(verb: &str, path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Setup(format!("cannot {verb} {}: {error}", path.display()))
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(DatabaseError::code).map(|code| code.into_owned())
}

fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(_) => code(error).is_some_and(|code| is_passing_code(&code)),
        _ => false,
    }
}

/// Five characters are an SQLSTATE of Postgres, a number is SQLite's extended result code.
fn is_passing_code(code: &str) -> bool {
    if code.len() == 5 {
        let class = &code[..2];
        // Connections, resources; shutting down or starting up; conflicts; a statement or a lock that took too long; an
        // idle transaction that was ended; a failover's read-only server.
        return matches!(class, "08" | "53" | "58")
            || matches!(code, "57P01" | "57P02" | "57P03" | "57P05" | "57014" | "40001" | "40P01" | "55P03")
            || matches!(code, "25P03" | "25006");
    }
    // BUSY, LOCKED, NOMEM, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL
    code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 7 | 9 | 10 | 13 | 14 | 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_stays() {
        for passing in ["08006", "57P01", "53300", "40P01", "57014", "5", "261", "13", "778"] {
            assert!(is_passing_code(passing), "{passing}");
        }
        for staying in ["23505", "42P01", "22P02", "1", "19", "2067", "26"] {
            assert!(!is_passing_code(staying), "{staying}");
        }
        assert!(matches!(StoreError::timed_out("x"), StoreError::Unavailable(_)));
    }
}
