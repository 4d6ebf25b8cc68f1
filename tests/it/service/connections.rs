//! What runs take of the database's connections.

use super::slow::quick_pipeline;
use super::{Place, Store};
use serde_json::json;
use sqlx::{Connection, PgConnection};

const RUNS: i64 = 12;

/// Connections that were broken off, as Postgres counts them.
async fn broken_off(place: &Place) -> i64 {
    let mut connection = PgConnection::connect(place.database_url().unwrap()).await.unwrap();
    let counted = "select sessions_abandoned from pg_stat_database where datname = current_database()";
    let count = sqlx::query_scalar(counted).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_break_off_no_connections() {
    let place = Place::new(Store::Postgres).await;
    quick_pipeline(&place);
    let server = place.start().await;
    let before = broken_off(&place).await;
    for n in 0..RUNS {
        server.run(&format!("quick-{n}"), &json!({"pipeline": "quick", "partitions": ["2024-02"]})).await;
    }
    let found = broken_off(&place).await - before;
    assert!(found * 4 < RUNS, "{found} connections were broken off by {RUNS} runs");
}
