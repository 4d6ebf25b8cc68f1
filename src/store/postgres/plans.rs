//! Postgres searches an index for every statement, and sorts no more than a page.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod asked;
mod kept;
mod look;

use super::sql::STATEMENTS;
use super::{PostgresOptions, PostgresStore};
use crate::store::plans::{WALKS_A_BACKLOG, by_name, many_rows};
use asked::{TYPES, asked};
use look::Look;
use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Go from the newest run on until their page is full. All but the first may: where a state, a pipeline or a
/// principal is frequent, Postgres takes that to be the shorter way.
const FILLS_A_PAGE: [&str; 4] = ["list", "list_in_state", "list_of_pipeline", "list_of_principal"];

#[tokio::test]
async fn no_statement_reads_or_sorts_a_table() {
    let database = Database::create().await;
    let mut connection = database.connect().await;
    database.fill().await;
    let wrong = judged(&mut connection).await;
    connection.close().await.unwrap();
    database.drop().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A database of its own, with the schema.
struct Database {
    admin: String,
    name: String,
    options: PgConnectOptions,
}

impl Database {
    async fn create() -> Self {
        let admin = std::env::var("REFRAIN_TEST_DATABASE_URL")
            .unwrap_or_else(|_| panic!("REFRAIN_TEST_DATABASE_URL is not set; `./test` sets it"));
        let name = format!("refrain_{}", uuid::Uuid::new_v4().simple());
        let mut server = PgConnection::connect(&admin).await.unwrap();
        run(&mut server, format!("create database {name} template template0 encoding 'UTF8'")).await;
        let (cluster, _) = admin.rsplit_once('/').unwrap();
        let url = format!("{cluster}/{name}");
        let store = PostgresStore::connect(&url.as_str().into(), PostgresOptions::default()).await.unwrap();
        store.migrate().await.unwrap();
        Self { options: PgConnectOptions::from_str(&url).unwrap(), admin, name }
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect_with(&self.options).await.unwrap()
    }

    /// Many rows of everything.
    async fn fill(&self) {
        let mut connection = self.connect().await;
        run(&mut connection, many_rows(include_str!("../plans/numbers_postgres.sql"))).await;
        run(&mut connection, "drop table numbers; analyze".to_owned()).await;
        connection.close().await.unwrap();
    }

    async fn drop(self) {
        let mut server = PgConnection::connect(&self.admin).await.unwrap();
        run(&mut server, format!("drop database {} with (force)", self.name)).await;
    }
}

/// Those that are a transaction by themselves: their plans are made once, for whatever values.
const PLANNED_ONCE: [&str; 6] = ["definitions", "glances", "known_keys", "runs", "table_definitions", "version"];

/// What is wrong with the plans of all statements.
async fn judged(connection: &mut PgConnection) -> BTreeSet<String> {
    let statements = by_name(&STATEMENTS);
    let values = asked();
    let unknown: Vec<_> = values.iter().map(|(name, _)| *name).filter(|name| !statements.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "values for statements that are not there: {unknown:?}");

    let look = Look::over(connection).await;
    let mut wrong = BTreeSet::new();
    for (name, statement) in &statements {
        let plan = if PLANNED_ONCE.contains(&name.as_str()) { "generic" } else { "custom" };
        run(connection, format!("set plan_cache_mode = force_{plan}_plan")).await;
        let named: Vec<_> =
            values.iter().filter(|(of, _)| of == name).map(|(_, values)| Some(values.clone())).collect();
        for values in if named.is_empty() { vec![None] } else { named } {
            let execute = prepare(connection, name, statement, values.as_deref()).await;
            let pages = FILLS_A_PAGE.contains(&name.as_str());
            let plan = explain(connection, &execute).await;
            let mut found = look.at(&plan, pages);
            let (walks, index) = WALKS_A_BACKLOG;
            if name == walks && plan.to_string().contains(index) {
                found.push(format!("a backlog is walked through by {index}"));
            }
            // What has few rows here may have many: there must be a plan that reads an index.
            run(connection, "set enable_seqscan = off".to_owned()).await;
            found.extend(look.without_scans(&explain(connection, &execute).await));
            run(connection, "reset enable_seqscan; deallocate asked".to_owned()).await;
            wrong.extend(found.into_iter().map(|found| format!("{name}, {execute}: {found}")));
        }
    }
    wrong
}

/// Prepares a statement as `asked` and gives the command that executes it, with the values or with some of the types that
/// Postgres finds.
async fn prepare(connection: &mut PgConnection, name: &str, statement: &str, values: Option<&[&str]>) -> String {
    let types: Option<Vec<&str>> = values.map(|v| v.iter().map(|value| value.rsplit_once("::").unwrap().1).collect());
    let types = types.map_or(String::new(), |types| format!("({})", types.join(", ")));
    let prepare = AssertSqlSafe(format!("prepare asked {types} as {statement}"));
    if let Err(error) = sqlx::raw_sql(prepare).execute(&mut *connection).await {
        panic!("{name} cannot be prepared; are its values to be listed in asked.rs? {error}");
    }
    let find = "select parameter_types::text[] from pg_prepared_statements where name = 'asked'";
    let found: Vec<String> = sqlx::query_scalar(find).fetch_one(&mut *connection).await.unwrap();
    let values: Vec<&str> = match values {
        Some(values) => values.to_vec(),
        None => found.iter().map(|kind| TYPES.iter().find(|(of, _)| of == kind).unwrap().1).collect(),
    };
    match values.is_empty() {
        true => "execute asked".to_owned(),
        false => format!("execute asked ({})", values.join(", ")),
    }
}

/// The root of the plan.
async fn explain(connection: &mut PgConnection, execute: &str) -> Value {
    let explain = AssertSqlSafe(format!("explain (format json) {execute}"));
    let Json(plans): Json<Value> = sqlx::query_scalar(explain).persistent(false).fetch_one(connection).await.unwrap();
    plans[0]["Plan"].clone()
}

async fn run(connection: &mut PgConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}
