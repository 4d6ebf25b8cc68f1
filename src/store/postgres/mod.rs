//! The store in Postgres: any number of servers and workers.

mod claims;
mod listen;
mod outbox;
#[cfg(test)]
mod plans;
mod prune;
mod server;
mod sql;
mod sums;
mod tell;
mod tokens;
mod whole;

pub(super) use server::Server;

use super::bus::Bus;
use super::pool::{in_queue, tell_of};
use super::steps::{Access, Database};
use super::tx::{Abandoned, Open, Tx, within};
use super::{StoreError, StoreResult, schema};
use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// How long the server may leave a transaction of ours alone before it ends it: a process that is stopped must not keep
/// the others from a pipeline.
const IDLE_IN_TRANSACTION_SECONDS: u32 = 10;

/// How much longer than the server's own limit the client waits for its word.
const GRACE: Duration = Duration::from_secs(2);

/// How long a connection that lay idle may take to show that it still leads to the server: one that the network forgot
/// never does, and a step has time for another one.
const ALIVE: Duration = Duration::from_millis(500);

/// How the database is used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Connections of the pool; one more listens.
    pub max_connections: u32,
    /// How long a step waits for a connection, before the database is unavailable.
    pub acquire_timeout: Duration,
    /// How long one statement may take, before the database is unavailable.
    pub statement_timeout: Duration,
    /// How long a connection may lie idle and be used without a look whether it still leads to the server, as long as none was
    /// found broken since.
    pub trusted_idle: Duration,
    /// The most queued runs of one principal; none for no limit.
    pub max_queued_runs: Option<u32>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            max_connections: 10,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            trusted_idle: Duration::from_secs(1),
            max_queued_runs: None,
        }
    }
}

/// The store in Postgres.
pub struct PostgresStore {
    pool: PgPool,
    broken: Broken,
    server: Arc<Server>,
    max_queued_runs: Option<u32>,
    bus: Bus,
    listener: JoinHandle<()>,
    teller: JoinHandle<()>,
}

impl std::fmt::Debug for PostgresStore {
    /// Without the connect options, which hold the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("pool", &self.pool.size()).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects, without touching the schema: see [`PostgresStore::migrate`].
    pub async fn connect(url: &SecretString, options: PostgresOptions) -> StoreResult<Self> {
        let connect = PgConnectOptions::from_str(url.expose_secret())
            .map_err(|error| StoreError::Setup(format!("the database URL cannot be read: {error}")))?
            .application_name("refrain");
        let milliseconds = options.statement_timeout.as_millis().to_string();
        let limited = connect.clone().options([
            ("statement_timeout", milliseconds),
            ("idle_in_transaction_session_timeout", format!("{IDLE_IN_TRANSACTION_SECONDS}s")),
            // No statement here takes as long as it would take to compile one.
            ("jit", "off".to_owned()),
        ]);
        let (alive, trusted) = (ALIVE.min(options.acquire_timeout / 2), options.trusted_idle);
        let broken = Broken::default();
        let found = broken.clone();
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(move |connection, lay| {
                let is_trusted = lay.idle_for < trusted.min(found.ago());
                Box::pin(async move { Ok(is_trusted || is_alive(connection, alive).await?) })
            });
        let pool = pool.connect_with(limited).await?;
        let (others, payloads) = mpsc::channel(tell::CAPACITY);
        let bus = Bus { others: Some(others), ..Bus::new() };
        let listener = tokio::spawn(listen::forward(connect.clone(), bus.clone()));
        let teller = tokio::spawn(tell::tell(pool.clone(), payloads));
        let server = Arc::new(Server { connect, limit: options.statement_timeout + GRACE });
        Ok(Self { pool, broken, server, max_queued_runs: options.max_queued_runs, bus, listener, teller })
    }

    /// Applies the migrations, under a lock of the database; without a limit of time, since a later one may have much to
    /// do. [`StoreError::Setup`] where a later version has brought the schema further than this one can follow.
    pub async fn migrate(&self) -> StoreResult<()> {
        let (mut connection, place) = self.connect_alone().await?;
        let migrated = schema::migrator(&MIGRATIONS).run(&mut connection).await;
        migrated.map_err(|error| StoreError::from_migration(error, &place))?;
        connection.close().await?;
        self.check_schema().await
    }

    /// [`StoreError::Setup`] where the schema is not one for this version.
    pub async fn check_schema(&self) -> StoreResult<()> {
        let mut tx = self.begin(Access::Read).await?;
        schema::check(&mut tx, &MIGRATIONS).await?;
        tx.commit().await
    }

    /// Applies the migrations to a database that has none yet; [`StoreError::Setup`] where its schema is another version's.
    pub async fn migrate_if_new(&self) -> StoreResult<()> {
        let (mut connection, _) = self.connect_alone().await?;
        let there = "select to_regclass('_sqlx_migrations') is not null";
        let applied: Option<i64> = match sqlx::query_scalar(there).fetch_one(&mut connection).await? {
            true => sqlx::query_scalar(schema::APPLIED).fetch_one(&mut connection).await?,
            false => None,
        };
        connection.close().await?;
        match applied {
            None => self.migrate().await,
            Some(_) => self.check_schema().await,
        }
    }

    /// A connection of its own, and the database's name.
    async fn connect_alone(&self) -> StoreResult<(PgConnection, String)> {
        let connect = &self.server.connect;
        let connection = within(self.server.limit, PgConnection::connect_with(connect)).await?;
        Ok((connection, connect.get_database().unwrap_or("postgres").to_owned()))
    }
}

/// When a connection was last found broken.
#[derive(Debug, Clone, Default)]
struct Broken(Arc<Mutex<Option<Instant>>>);

impl Broken {
    /// How long it is since; without end where none was.
    fn ago(&self) -> Duration {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(Duration::MAX, |last| last.elapsed())
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// How such a transaction begins. A single statement finds its rows by their keys, and Postgres may keep its plan; in the others the
/// filters of a listing are worth a plan of their own.
fn begin(access: Access) -> Option<&'static str> {
    match access {
        Access::Statement => None,
        Access::Read => {
            Some("begin isolation level repeatable read read only; set local plan_cache_mode = force_custom_plan")
        }
        Access::Write => Some("begin isolation level read committed; set local plan_cache_mode = force_custom_plan"),
    }
}

/// An error closes the connection, and the pool opens another one.
async fn is_alive(connection: &mut PgConnection, within: Duration) -> Result<bool, sqlx::Error> {
    match tokio::time::timeout(within, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.listener.abort();
        self.teller.abort();
    }
}

#[async_trait]
impl Database for PostgresStore {
    async fn begin(&self, access: Access) -> StoreResult<Tx> {
        let mut connection = Abandoned(Some(in_queue(self.pool.acquire()).await?));
        tell_of(&self.pool);
        if let Some(begin) = begin(access) {
            self.server.answer(sqlx::raw_sql(begin).execute(&mut **connection.get()?)).await?;
        }
        let open = Open::Postgres { connection, server: Arc::clone(&self.server), extent: access.extent() };
        Ok(Tx::new(&sql::STATEMENTS, open, self.bus.clone(), self.max_queued_runs))
    }

    fn distrust(&self) {
        self.broken.now();
    }

    fn bus(&self) -> &Bus {
        &self.bus
    }

    fn accept_runs(&self) -> Option<&'static str> {
        Some(sql::ACCEPT_RUNS)
    }

    fn migrations(&self) -> &'static Migrator {
        &MIGRATIONS
    }
}
