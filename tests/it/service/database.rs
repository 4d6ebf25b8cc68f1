//! A database of the test's own on the cluster that the tests are given.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

const VARIABLE: &str = "REFRAIN_TEST_DATABASE_URL";

/// Makes an empty database and answers its URL. The cluster is `./test`'s own, so it goes with it.
pub(crate) async fn create() -> String {
    let url = std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: run ./test, or name a Postgres where databases may be made")
    });
    let name = format!("service_{}", Uuid::new_v4().simple());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}
