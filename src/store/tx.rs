//! A transaction on either database: statements with values in, rows out. The only place that knows both drivers.

use super::bus::Bus;
use super::postgres::Server;
use super::statements::Statements;
use super::{Change, Clock, StoreError, StoreResult};
use crate::run::{ClaimToken, RunId};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::pool::PoolConnection;
use sqlx::types::Json;
use sqlx::{Postgres, Row as _, Sqlite};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A value bound to a statement. Nulls are typed, since Postgres wants to know.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Id(Option<Uuid>),
    Int(Option<i64>),
    Flag(bool),
    Text(Option<String>),
    Time(Option<DateTime<Utc>>),
}

/// The values of a statement, in the order of its numbers.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::tx::Value::from($value)),*] };
}
pub(super) use values;

macro_rules! value_from {
    ($($variant:ident($from:ty): $value:pat => $inner:expr;)*) => { $(
        impl From<$from> for Value {
            fn from($value: $from) -> Self { Value::$variant($inner) }
        }
    )* };
}

value_from! {
    Id(RunId): id => Some(id.0);
    Id(Option<RunId>): id => id.map(|id| id.0);
    Id(ClaimToken): token => Some(token.0);
    Id(Option<ClaimToken>): token => token.map(|token| token.0);
    Id(Uuid): id => Some(id);
    Int(i64): n => Some(n);
    Int(Option<i64>): n => n;
    Int(u32): n => Some(i64::from(n));
    Flag(bool): flag => flag;
    Text(String): text => Some(text);
    Text(Option<String>): text => text;
    Text(&str): text => Some(text.to_owned());
    Text(Option<&str>): text => text.map(str::to_owned);
    Time(DateTime<Utc>): time => Some(time);
    Time(Option<DateTime<Utc>>): time => time;
}

/// The JSON text of a document, to be bound.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Setup(format!("cannot be written as JSON: {error}")))
}

/// A row of either database.
pub(super) enum Row {
    Sqlite(sqlx::sqlite::SqliteRow),
    Postgres(sqlx::postgres::PgRow),
}

macro_rules! get {
    ($row:expr, $column:expr, $as:ty) => {
        match $row {
            Row::Sqlite(row) => row.try_get::<$as, _>($column),
            Row::Postgres(row) => row.try_get::<$as, _>($column),
        }
        .map_err(StoreError::from)
    };
}

impl Row {
    pub(super) fn optional_id(&self, column: &'static str) -> StoreResult<Option<Uuid>> {
        match self {
            Row::Postgres(row) => Ok(row.try_get(column)?),
            Row::Sqlite(row) => match row.try_get::<Option<String>, _>(column)? {
                Some(text) => Uuid::parse_str(&text).map(Some).map_err(|_| unreadable(column, &text, "a UUID")),
                None => Ok(None),
            },
        }
    }

    pub(super) fn id(&self, column: &'static str) -> StoreResult<Uuid> {
        self.optional_id(column)?.ok_or_else(|| missing(column))
    }

    pub(super) fn int(&self, column: &'static str) -> StoreResult<i64> {
        get!(self, column, i64)
    }

    pub(super) fn optional_int(&self, column: &'static str) -> StoreResult<Option<i64>> {
        get!(self, column, Option<i64>)
    }

    pub(super) fn count(&self, column: &'static str) -> StoreResult<u64> {
        let n = self.int(column)?;
        u64::try_from(n).map_err(|_| unreadable(column, &n.to_string(), "a count"))
    }

    pub(super) fn small_count(&self, column: &'static str) -> StoreResult<u32> {
        let n = self.int(column)?;
        u32::try_from(n).map_err(|_| unreadable(column, &n.to_string(), "a count"))
    }

    pub(super) fn flag(&self, column: &'static str) -> StoreResult<bool> {
        get!(self, column, bool)
    }

    pub(super) fn optional_text(&self, column: &'static str) -> StoreResult<Option<String>> {
        get!(self, column, Option<String>)
    }

    pub(super) fn text(&self, column: &'static str) -> StoreResult<String> {
        get!(self, column, String)
    }

    pub(super) fn optional_time(&self, column: &'static str) -> StoreResult<Option<DateTime<Utc>>> {
        match self {
            Row::Postgres(row) => Ok(row.try_get(column)?),
            Row::Sqlite(row) => match row.try_get::<Option<i64>, _>(column)? {
                Some(micros) => DateTime::from_timestamp_micros(micros)
                    .map(Some)
                    .ok_or_else(|| unreadable(column, &micros.to_string(), "microseconds since 1970")),
                None => Ok(None),
            },
        }
    }

    pub(super) fn time(&self, column: &'static str) -> StoreResult<DateTime<Utc>> {
        self.optional_time(column)?.ok_or_else(|| missing(column))
    }

    pub(super) fn optional_json<T: DeserializeOwned + Send + Unpin + 'static>(
        &self,
        column: &'static str,
    ) -> StoreResult<Option<T>> {
        Ok(get!(self, column, Option<Json<T>>)?.map(|Json(value)| value))
    }

    pub(super) fn json<T: DeserializeOwned + Send + Unpin + 'static>(&self, column: &'static str) -> StoreResult<T> {
        self.optional_json(column)?.ok_or_else(|| missing(column))
    }
}

/// What a stored text should have been.
pub(super) fn unreadable(column: &str, found: &str, expected: &str) -> StoreError {
    StoreError::Corrupt(format!("column {column} has {found:?}, expected {expected}"))
}

fn missing(column: &str) -> StoreError {
    StoreError::Corrupt(format!("column {column} has a null, expected a value"))
}

/// An open connection in a transaction.
pub(super) enum Open {
    Sqlite {
        connection: SqliteUse,
        clock: Clock,
        extent: Extent,
    },
    /// Closed when it is dropped: a connection that was left in the middle of a statement is not to be trusted with the
    /// next, and closing it needs no answer from a server that may be out of reach.
    Postgres {
        connection: Abandoned,
        server: Arc<Server>,
        extent: Extent,
    },
}

/// A connection to a SQLite file in its transaction. A transaction of one statement is no more than that: to begin and to end it are
/// ways of their own to the thread that has the connection.
pub(super) enum SqliteUse {
    /// Rolled back when it is dropped.
    Block(sqlx::Transaction<'static, Sqlite>),
    Statement(PoolConnection<Sqlite>),
}

impl SqliteUse {
    fn get(&mut self) -> &mut sqlx::SqliteConnection {
        match self {
            Self::Block(transaction) => transaction,
            Self::Statement(connection) => connection,
        }
    }
}

/// How far a transaction reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// From a `begin` to its end.
    Block,
    /// One statement, which is a transaction by itself.
    Statement,
    /// That statement was sent.
    Over,
}

impl Extent {
    /// A second statement would not be of the same transaction.
    fn reach(&mut self) -> StoreResult<()> {
        match self {
            Self::Block => Ok(()),
            Self::Statement => {
                *self = Self::Over;
                Ok(())
            }
            Self::Over => Err(StoreError::Setup("a step of one statement has a second one".to_owned())),
        }
    }
}

/// A connection that is closed unless it is given back.
pub(super) struct Abandoned(pub(super) Option<PoolConnection<Postgres>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

impl Abandoned {
    pub(super) fn get(&mut self) -> StoreResult<&mut PoolConnection<Postgres>> {
        self.0.as_mut().ok_or(StoreError::Unavailable(sqlx::Error::PoolClosed))
    }
}

/// What a transaction had to tell before a part of it.
#[must_use]
pub(super) struct Part {
    changes: usize,
    counts: usize,
}

/// A transaction. Dropped without [`Tx::commit`], nothing of it happened.
pub(super) struct Tx {
    /// The statements in this database's dialect.
    pub(super) sql: &'static Statements,
    open: Open,
    bus: Bus,
    /// The most queued runs of one principal.
    pub(super) max_queued_runs: Option<u32>,
    changes: Vec<Change>,
    counts: Vec<metrics::Counter>,
    undone: bool,
}

impl Tx {
    pub(super) fn new(sql: &'static Statements, open: Open, bus: Bus, max_queued_runs: Option<u32>) -> Self {
        Self { sql, open, bus, max_queued_runs, changes: Vec::new(), counts: Vec::new(), undone: false }
    }

    /// The database's clock, in whole microseconds.
    pub(super) async fn now(&mut self) -> StoreResult<DateTime<Utc>> {
        match self.given_now()? {
            Some(now) => Ok(now),
            None => self.one("select clock_timestamp() as now", Vec::new()).await?.time("now"),
        }
    }

    /// The same for a statement that itself asks the database's clock where it is given no time: on Postgres, where to ask is a round trip.
    pub(super) fn given_now(&self) -> StoreResult<Option<DateTime<Utc>>> {
        let Open::Sqlite { clock, .. } = &self.open else { return Ok(None) };
        let micros = clock().timestamp_micros();
        let now = DateTime::from_timestamp_micros(micros);
        now.map(Some).ok_or_else(|| StoreError::Setup(format!("the clock says {micros} microseconds since 1970")))
    }

    /// Runs a statement; answers how many rows it wrote.
    pub(super) async fn execute(&mut self, sql: &'static str, values: Vec<Value>) -> StoreResult<u64> {
        match &mut self.open {
            Open::Sqlite { connection, extent, .. } => {
                extent.reach()?;
                Ok(bind_sqlite(sql, values).execute(connection.get()).await?.rows_affected())
            }
            Open::Postgres { connection, server, extent } => {
                extent.reach()?;
                let running = bind_postgres(sql, values).execute(&mut **connection.get()?);
                Ok(server.answer(running).await?.rows_affected())
            }
        }
    }

    /// All rows of a statement.
    pub(super) async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> StoreResult<Vec<Row>> {
        match &mut self.open {
            Open::Sqlite { connection, extent, .. } => {
                extent.reach()?;
                let rows = bind_sqlite(sql, values).fetch_all(connection.get()).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Open::Postgres { connection, server, extent } => {
                extent.reach()?;
                let running = bind_postgres(sql, values).fetch_all(&mut **connection.get()?);
                Ok(server.answer(running).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Each row of a statement as it comes in, so that all of them need not fit in memory.
    pub(super) async fn each(
        &mut self,
        sql: &'static str,
        values: Vec<Value>,
        mut take: impl FnMut(Row) -> StoreResult<()> + Send,
    ) -> StoreResult<()> {
        match &mut self.open {
            Open::Sqlite { connection, extent, .. } => {
                extent.reach()?;
                let mut rows = bind_sqlite(sql, values).fetch(connection.get());
                while let Some(row) = rows.try_next().await? {
                    take(Row::Sqlite(row))?;
                }
            }
            Open::Postgres { connection, server, extent } => {
                extent.reach()?;
                let mut rows = bind_postgres(sql, values).fetch(&mut **connection.get()?);
                while let Some(row) = server.answer(rows.try_next()).await? {
                    take(Row::Postgres(row))?;
                }
            }
        }
        Ok(())
    }

    /// The first row of a statement, if any.
    pub(super) async fn optional(&mut self, sql: &'static str, values: Vec<Value>) -> StoreResult<Option<Row>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// The first row of a statement that always has one.
    pub(super) async fn one(&mut self, sql: &'static str, values: Vec<Value>) -> StoreResult<Row> {
        self.optional(sql, values).await?.ok_or(StoreError::Refused(sqlx::Error::RowNotFound))
    }

    /// Tells waiters of a change, once the transaction is committed.
    pub(super) fn announce(&mut self, change: Change) {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    /// Counts one, once the transaction is committed.
    pub(super) fn count(&mut self, counter: metrics::Counter) {
        self.counts.push(counter);
    }

    /// Makes [`Tx::commit`] undo everything; in a part, the end of it what is of the part.
    pub(super) fn undo(&mut self) {
        self.undone = true;
    }

    /// Begins a part that may be undone by itself. Parts come one after the other.
    pub(super) async fn begin_part(&mut self) -> StoreResult<Part> {
        self.execute("savepoint part", Vec::new()).await?;
        Ok(Part { changes: self.changes.len(), counts: self.counts.len() })
    }

    /// Ends it. What it had to tell is told where it was not undone.
    pub(super) async fn end_part(&mut self, part: Part) -> StoreResult<()> {
        if std::mem::take(&mut self.undone) {
            self.changes.truncate(part.changes);
            self.counts.truncate(part.counts);
            self.execute("rollback to part", Vec::new()).await?;
        }
        self.execute("release part", Vec::new()).await.map(drop)
    }

    /// Makes it so, then tells the waiters.
    pub(super) async fn commit(mut self) -> StoreResult<()> {
        if self.undone {
            self.changes.clear();
            self.counts.clear();
        }
        match self.open {
            Open::Sqlite { connection: SqliteUse::Block(tx), .. } if self.undone => tx.rollback().await?,
            Open::Sqlite { connection: SqliteUse::Block(tx), .. } => tx.commit().await?,
            Open::Sqlite { connection: SqliteUse::Statement(connection), .. } => drop(connection),
            Open::Postgres { mut connection, server, extent } => {
                if extent == Extent::Block {
                    let end = if self.undone { "rollback" } else { "commit" };
                    server.answer(sqlx::query(end).execute(&mut **connection.get()?)).await?;
                }
                drop(connection.0.take());
            }
        }
        self.counts.iter().for_each(|counter| counter.increment(1));
        self.changes.into_iter().for_each(|change| self.bus.tell(change));
        Ok(())
    }
}

/// Waits for an answer of the server, but not longer than `limit`: a connection that hangs never says so.
pub(super) async fn within<T>(
    limit: Duration,
    running: impl Future<Output = Result<T, sqlx::Error>>,
) -> StoreResult<T> {
    match tokio::time::timeout(limit, running).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::timed_out("the database did not answer in time")),
    }
}

fn bind_sqlite(
    sql: &'static str,
    values: Vec<Value>,
) -> sqlx::query::Query<'static, Sqlite, sqlx::sqlite::SqliteArguments> {
    values.into_iter().fold(sqlx::query(sql), |query, value| match value {
        Value::Id(id) => query.bind(id.map(|id| id.to_string())),
        Value::Int(n) => query.bind(n),
        Value::Flag(flag) => query.bind(flag),
        Value::Text(text) => query.bind(text),
        Value::Time(time) => query.bind(time.map(|time| time.timestamp_micros())),
    })
}

fn bind_postgres(
    sql: &'static str,
    values: Vec<Value>,
) -> sqlx::query::Query<'static, Postgres, sqlx::postgres::PgArguments> {
    values.into_iter().fold(sqlx::query(sql), |query, value| match value {
        Value::Id(id) => query.bind(id),
        Value::Int(n) => query.bind(n),
        Value::Flag(flag) => query.bind(flag),
        Value::Text(text) => query.bind(text),
        Value::Time(time) => query.bind(time),
    })
}
