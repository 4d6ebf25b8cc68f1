//! The store in a SQLite file: one serving process, which holds a lock on a file beside it.

mod claims;
mod outbox;
#[cfg(test)]
mod plans;
mod prune;
mod sql;
mod sums;
mod tokens;
mod whole;

use super::bus::Bus;
use super::error::file_error;
use super::pool::{in_queue, tell_of};
use super::steps::{Access, Database};
use super::tx::{Open, SqliteUse, Tx};
use super::{StoreError, StoreResult, schema};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rustix::fs::{FlockOperation, flock};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, SqlitePool};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// What a dead process had in hand.
const HAND_BACK_MESSAGES: &str =
    "update outbox set token = null, due_at = ?1 where state = 'pending' and token is not null";

/// Holders of leases are dead once their process has let go of the file's lock, so every lease ends at the start.
const END_ALL_LEASES: &str =
    "update runs set lease_until = ?1 where state in ('running', 'committing') and lease_until > ?1";

/// What time it is; the store rounds it down to microseconds.
pub type Clock = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// How the file is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Connections that read beside the one that writes.
    pub read_connections: u32,
    /// How long a step waits for the connection or for the file, before it is unavailable.
    pub wait: Duration,
    /// The clock of leases and times.
    pub clock: Clock,
    /// The most queued runs of one principal; none for no limit.
    pub max_queued_runs: Option<u32>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { read_connections: 4, wait: Duration::from_secs(30), clock: Arc::new(Utc::now), max_queued_runs: None }
    }
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("read_connections", &self.read_connections)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// The store in a SQLite file.
pub struct SqliteStore {
    /// One connection, so writers wait in a queue and not for the file. None where the store only reads.
    writer: Option<SqlitePool>,
    readers: SqlitePool,
    clock: Clock,
    max_queued_runs: Option<u32>,
    bus: Bus,
    /// Unlocked when it is dropped, last of all.
    _lock: Option<File>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("serves", &self.writer.is_some()).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file to serve it, making it if it is not there: takes the lock, applies the migrations and ends every
    /// lease. [`StoreError::Setup`] where another process serves it.
    pub async fn open(path: &Path, options: SqliteOptions) -> StoreResult<Self> {
        let lock = lock_for_serving(path)?;
        make_private(path)?;
        // Full synchronisation: an answer that was given survives a power cut.
        let connect = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(options.wait);
        let writer = pool(1, &options).connect_with(connect.clone()).await?;
        let migrated = schema::migrator(&MIGRATIONS).run(&writer).await;
        migrated.map_err(|error| StoreError::from_migration(error, &path.display()))?;
        let readers = pool(options.read_connections, &options).connect_with(connect.pragma("query_only", "on")).await?;
        let now = (options.clock)().timestamp_micros();
        let store = Self::over(Some(writer.clone()), readers, options, Some(lock));
        store.check_schema().await?;
        for at_start in [END_ALL_LEASES, HAND_BACK_MESSAGES] {
            sqlx::query(at_start).bind(now).execute(&writer).await?;
        }
        Ok(store)
    }

    /// Opens the file to write to it beside the process that serves it; where it is not there yet, makes it.
    /// [`StoreError::Setup`] where its schema is not this version's.
    pub async fn open_beside(path: &Path, options: SqliteOptions) -> StoreResult<Self> {
        if !path.is_file() {
            return Self::open(path, options).await;
        }
        // As whoever serves it does, so that what is written here is as safe.
        let connect = SqliteConnectOptions::new()
            .filename(path)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(options.wait);
        let writer = pool(1, &options).connect_with(connect.clone()).await?;
        let there = "select count(*) > 0 from sqlite_master where name = '_sqlx_migrations'";
        let applied: Option<i64> = match sqlx::query_scalar(there).fetch_one(&writer).await? {
            true => sqlx::query_scalar(schema::APPLIED).fetch_one(&writer).await?,
            false => None,
        };
        if applied.is_none() {
            // Somebody has begun to make it.
            writer.close().await;
            return Self::open(path, options).await;
        }
        let readers = pool(1, &options).connect_with(connect.pragma("query_only", "on")).await?;
        let store = Self::over(Some(writer), readers, options, None);
        store.check_schema().await?;
        Ok(store)
    }

    /// Opens the file to look at it, beside the process that serves it. Steps that write are refused, and so is a schema that
    /// is not one for this version.
    pub async fn open_read_only(path: &Path) -> StoreResult<Self> {
        if !path.is_file() {
            let path = path.display();
            return Err(StoreError::Setup(format!("there is no database at {path}, expected one that was served")));
        }
        let options = SqliteOptions::default();
        let connect = SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(options.wait);
        let readers = pool(1, &options).connect_with(connect).await?;
        let store = Self::over(None, readers, options, None);
        store.check_schema().await?;
        Ok(store)
    }

    /// Writes a copy of the database, as it is at one moment, beside whoever serves it. There must be no such file.
    pub async fn copy_to(&self, path: &Path) -> StoreResult<()> {
        make_private(path)?;
        let path = path.to_str().ok_or_else(|| StoreError::Setup(format!("{} is no UTF-8 path", path.display())))?;
        let mut connection = self.readers.acquire().await?;
        sqlx::query("vacuum into ?1").bind(path).execute(&mut *connection).await?;
        Ok(())
    }

    fn over(writer: Option<SqlitePool>, readers: SqlitePool, options: SqliteOptions, lock: Option<File>) -> Self {
        let SqliteOptions { clock, max_queued_runs, .. } = options;
        Self { writer, readers, clock, max_queued_runs, bus: Bus::new(), _lock: lock }
    }

    async fn check_schema(&self) -> StoreResult<()> {
        schema::check(&mut self.begin(Access::Read).await?, &MIGRATIONS).await
    }
}

#[async_trait]
impl Database for SqliteStore {
    async fn begin(&self, access: Access) -> StoreResult<Tx> {
        let connection = match (access, &self.writer) {
            (Access::Statement, _) => SqliteUse::Statement(in_queue(self.readers.acquire()).await?),
            (Access::Read, _) => SqliteUse::Block(in_queue(self.readers.begin()).await?),
            // At once a writer: a reader that becomes one may find that its snapshot is too old.
            (Access::Write, Some(writer)) => SqliteUse::Block(in_queue(writer.begin_with("begin immediate")).await?),
            (Access::Write, None) => {
                return Err(StoreError::Setup("the database was opened to be read, not to be served".to_owned()));
            }
        };
        tell_of(&self.readers);
        let open = Open::Sqlite { connection, clock: self.clock.clone(), extent: access.extent() };
        Ok(Tx::new(&sql::STATEMENTS, open, self.bus.clone(), self.max_queued_runs))
    }

    fn bus(&self) -> &Bus {
        &self.bus
    }

    fn migrations(&self) -> &'static Migrator {
        &MIGRATIONS
    }
}

/// After a write that failed for want of room SQLite has undone the transaction, and sqlx, whose rollback then fails, counts it
/// as open for good. Such a connection is closed, and another one opened.
fn pool(connections: u32, options: &SqliteOptions) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(options.wait)
        .idle_timeout(None)
        .max_lifetime(None)
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
}

/// Makes the file, unless it is there, for its owner alone: it says who may do what, and who is told of it. SQLite gives those that it
/// makes beside it the same mode, and takes an empty file for none.
fn make_private(path: &Path) -> StoreResult<()> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(file_error("make", path, &error)),
        _ => Ok(()),
    }
}

/// The kernel lets go of the lock when the process ends, however it does. The file is never removed: a lock on a removed
/// file would exclude nobody.
fn lock_for_serving(path: &Path) -> StoreResult<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = File::options().create(true).truncate(false).write(true).open(&name);
    let file = file.map_err(|error| file_error("open", &name, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Setup(format!(
            "another process serves this data folder: it holds the lock on {}; a SQLite database has one serving process \
             (several need --database-url with Postgres)",
            name.display()
        ))),
        Err(error) => Err(file_error("lock", &name, &error.into())),
    }
}
