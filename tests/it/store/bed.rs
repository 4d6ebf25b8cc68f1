//! What a store's test lies in: a fresh database, a second way into it, and a say over time.

use chrono::{DateTime, TimeDelta, Utc};
use refrain::store::{PostgresOptions, PostgresStore, RunStore, SqliteOptions, SqliteStore};
use secrecy::SecretString;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqlSafeStr, SqliteConnection};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct Bed {
    /// The store under test.
    pub(crate) store: Arc<dyn RunStore>,
    /// Another server's store over the same database; on SQLite, which has one server, the same.
    pub(crate) other: Arc<dyn RunStore>,
    database: Database,
}

enum Database {
    Sqlite { path: PathBuf, now: Arc<Mutex<DateTime<Utc>>> },
    Postgres(Box<PgConnectOptions>),
}

impl Bed {
    /// The time for requests that name one, in whole microseconds.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        let now = match &self.database {
            Database::Sqlite { now, .. } => *now.lock().unwrap(),
            Database::Postgres(_) => Utc::now(),
        };
        DateTime::from_timestamp_micros(now.timestamp_micros()).unwrap()
    }

    /// A day as this database adds it to a time.
    pub(crate) fn day(&self) -> &'static str {
        match self.database {
            Database::Sqlite { .. } => "86400000000",
            Database::Postgres(_) => "interval '1 day'",
        }
    }

    /// Lets `duration` pass for leases and due times.
    pub(crate) async fn pass(&self, duration: Duration) {
        match &self.database {
            Database::Sqlite { now, .. } => *now.lock().unwrap() += duration,
            // The clock is the server's own, so the deadlines come nearer instead.
            Database::Postgres(connect) => {
                let nearer = "update runs set due_at = due_at - make_interval(secs => $1), \
                              lease_until = lease_until - make_interval(secs => $1) \
                              where state in ('queued', 'running', 'committing')";
                let mut connection = PgConnection::connect_with(connect).await.unwrap();
                sqlx::query(nearer).bind(duration.as_secs_f64()).execute(&mut connection).await.unwrap();
                let nearer = "update outbox set due_at = due_at - make_interval(secs => $1) where state = 'pending'";
                sqlx::query(nearer).bind(duration.as_secs_f64()).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// Makes all that is recorded so much older.
    pub(crate) async fn age(&self, duration: Duration) {
        let Database::Postgres(_) = &self.database else { return self.pass(duration).await };
        let earlier = |column: &str| format!("{column} = {column} - interval '{} seconds'", duration.as_secs());
        let runs = ["created_at", "started_at", "ended_at", "due_at", "lease_until"].map(earlier).join(", ");
        for (table, columns) in [("runs", runs), ("history", earlier("committed_at"))] {
            self.past_the_store(AssertSqlSafe(format!("update {table} set {columns}"))).await.unwrap();
        }
    }

    /// How many rows of a table are of a run.
    pub(crate) async fn rows_of(&self, table: &str, column: &str, run: refrain::run::RunId) -> i64 {
        self.number(&format!("select count(*) from {table} where {column} = '{run}'")).await
    }

    /// A number that a query of one row gives.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.text(query).await.unwrap().parse().unwrap()
    }

    /// What a query gives, of one column and one row at the most, as text.
    pub(crate) async fn text(&self, query: &str) -> Option<String> {
        let query = AssertSqlSafe(format!("with found (it) as ({query}) select cast(it as text) from found"));
        match &self.database {
            Database::Sqlite { path, .. } => {
                let connect = SqliteConnectOptions::new().filename(path);
                let mut connection = SqliteConnection::connect_with(&connect).await.unwrap();
                sqlx::query_scalar(query).fetch_optional(&mut connection).await.unwrap()
            }
            Database::Postgres(connect) => {
                let mut connection = PgConnection::connect_with(connect).await.unwrap();
                let found = sqlx::query_scalar(query).fetch_optional(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                found
            }
        }
    }

    /// The time as a statement of this database has it.
    pub(crate) fn time(&self) -> String {
        match &self.database {
            Database::Sqlite { now, .. } => now.lock().unwrap().timestamp_micros().to_string(),
            Database::Postgres(_) => "statement_timestamp()".to_owned(),
        }
    }

    /// Copies the only run, which names one partition: `ended` times as a cancelled and `queued` times as a queued one,
    /// with sequence numbers from 1,000,001 on.
    pub(crate) async fn copy_run(&self, ended: u32, queued: u32) {
        let (id, json, text) = match &self.database {
            Database::Sqlite { .. } => {
                let hex = |bytes: u32| format!("lower(hex(randomblob({bytes})))");
                let id = [4, 2, 2, 2, 6].map(hex).join(" || '-' || ");
                (id, "", "")
            }
            Database::Postgres(_) => ("gen_random_uuid()".to_owned(), "::json", "::text"),
        };
        let copy = |times: u32, state: &str, ended_at: &str, sequence: &str| {
            format!(
                "with recursive n(i) as (select 1 union all select i + 1 from n where i < {times})
                 insert into runs (id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with,
                    definition, state, sequence, due_at, created_at, ended_at)
                 select {id}, principal, '{state}-' || n.i{text}, pipeline, mode, asked{json}, fingerprint, accepted_with,
                    definition, '{state}', {sequence} n.i, due_at, created_at, {ended_at}
                 from n cross join (select * from runs order by created_at limit 1) as one"
            )
        };
        for statement in [
            copy(ended, "cancelled", "created_at", "-"),
            copy(queued, "queued", "null", "1000000 +"),
            "insert into run_partitions (run_id, partition) select r.id, one.partition from runs r \
             cross join (select partition from reservations limit 1) as one where r.state = 'queued'"
                .to_owned(),
            "insert into reservations (pipeline, partition, sequence, run_id) select r.pipeline, one.partition, \
             r.sequence, r.id from runs r cross join (select partition from reservations limit 1) as one \
             where r.state = 'queued' order by r.sequence"
                .to_owned(),
            "analyze".to_owned(),
        ] {
            self.past_the_store(AssertSqlSafe(statement)).await.unwrap();
        }
    }

    /// Copies the only message of a run so many times, as a server of the version before would write it, due just after it.
    pub(crate) async fn copy_message(&self, run: refrain::run::RunId, times: u32) {
        let (id, moment) = match &self.database {
            Database::Sqlite { .. } => {
                let hex = |bytes: u32| format!("lower(hex(randomblob({bytes})))");
                ([4, 2, 2, 2, 6].map(hex).join(" || '-' || "), "1")
            }
            Database::Postgres(_) => ("gen_random_uuid()".to_owned(), "interval '1 microsecond'"),
        };
        let copy = format!(
            "insert into outbox (id, run_id, kind, url, host, event, notice, created_at, due_at)
             with recursive n(i) as (select 1 union all select i + 1 from n where i < {times})
             select {id}, run_id, kind, url, host, event, notice, created_at, due_at + {moment}
             from n cross join outbox where run_id = '{run}'"
        );
        self.past_the_store(AssertSqlSafe(copy)).await.unwrap();
    }

    /// Runs a statement past the store, as no step would.
    pub(crate) async fn past_the_store(&self, statement: impl SqlSafeStr) -> Result<(), sqlx::Error> {
        match &self.database {
            Database::Sqlite { path, .. } => {
                let connect = SqliteConnectOptions::new().filename(path).foreign_keys(true);
                let mut connection = SqliteConnection::connect_with(&connect).await?;
                sqlx::query(statement).execute(&mut connection).await.map(|_| ())
            }
            Database::Postgres(connect) => {
                let mut connection = PgConnection::connect_with(connect).await?;
                sqlx::query(statement).execute(&mut connection).await.map(|_| ())
            }
        }
    }
}

/// Runs a test on a SQLite file of its own.
pub(crate) async fn on_sqlite(test: impl AsyncFnOnce(&Bed)) {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(Mutex::new(Utc::now()));
    let clock = {
        let now = now.clone();
        // Each look at the clock is a moment later, as on a real one.
        Arc::new(move || {
            let mut now = now.lock().unwrap();
            *now += TimeDelta::microseconds(1);
            *now
        })
    };
    let options = SqliteOptions { clock, ..SqliteOptions::default() };
    let path = folder.path().join("refrain.db");
    let store: Arc<dyn RunStore> = Arc::new(SqliteStore::open(&path, options).await.unwrap());
    test(&Bed { other: store.clone(), store, database: Database::Sqlite { path, now } }).await;
}

/// Runs a test on a Postgres database of its own, with two servers' stores over it.
pub(crate) async fn on_postgres(test: impl AsyncFnOnce(&Bed)) {
    let database = PostgresDatabase::create().await;
    let open = async || PostgresStore::connect(&database.url(), PostgresOptions::default()).await.unwrap();
    let (store, other) = tokio::join!(open(), open());
    let (first, second) = tokio::join!(store.migrate(), other.migrate());
    first.and(second).unwrap();
    let bed = Bed {
        store: Arc::new(store),
        other: Arc::new(other),
        database: Database::Postgres(Box::new(database.options.clone())),
    };
    test(&bed).await;
    drop(bed);
    database.drop().await;
}

/// A database of its own on the cluster that `REFRAIN_TEST_DATABASE_URL` names. One that a failed test leaves behind goes
/// with the cluster.
pub(crate) struct PostgresDatabase {
    admin: String,
    name: String,
    pub(crate) options: PgConnectOptions,
}

impl PostgresDatabase {
    pub(crate) async fn create() -> Self {
        let admin = std::env::var("REFRAIN_TEST_DATABASE_URL").unwrap_or_else(|_| panic!(
            "REFRAIN_TEST_DATABASE_URL is not set: it names a Postgres cluster by a superuser's URL, and `./test` starts \
             one; this test needs it and does not skip",
        ));
        let name = format!("refrain_{}", uuid::Uuid::new_v4().simple());
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        let create = format!("create database {name} template template0 encoding 'UTF8'");
        sqlx::query(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let options = PgConnectOptions::from_str(&admin).unwrap().database(&name);
        Self { admin, name, options }
    }

    pub(crate) fn url(&self) -> SecretString {
        let (server, _) = self.admin.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name).into()
    }

    pub(crate) async fn drop(self) {
        let mut connection = PgConnection::connect(&self.admin).await.unwrap();
        let drop = format!("drop database {} with (force)", self.name);
        sqlx::query(AssertSqlSafe(drop)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}
