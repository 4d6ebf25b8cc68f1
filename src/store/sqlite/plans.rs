//! SQLite searches an index for every statement, and sorts no more than a page.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::sql::STATEMENTS;
use super::{SqliteOptions, SqliteStore};
use crate::store::plans::{WALKS_A_BACKLOG, by_name, many_rows};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use std::collections::BTreeSet;

/// Tables of one row, or of one for each token, each pipeline (`t`) or its versions, as the statements call them.
const SMALL: [&str; 5] = ["definitions", "meta", "run_sequence", "t", "tokens"];

/// Goes from the newest run on until its page is full, whatever else narrows it.
const FILLS_A_PAGE: [&str; 1] = ["list"];

/// What is sorted is few, though SQLite cannot tell.
const SORTS_FEW: [(&str, &str); 8] = [
    ("attempts", "the page that its limit has cut"),
    ("claims.lost_runs", "held runs, which are no more than there are workers"),
    ("outbox.claim_message", "one message of each principal and host"),
    ("overlapping_scope", "those of one pipeline that have not ended"),
    ("pipeline_depths", "a row for each pipeline"),
    ("reserve_scope", "the partitions of runs that take their numbers"),
    ("tokens.list", "tokens"),
    ("claims.unfinished_run", "held runs, which are no more than there are workers"),
];

/// How a principal's message for a host is found among those of all.
const OF_RECIPIENT: &str = "outbox_by_recipient (principal=? AND host=? AND due_at<?)";

#[tokio::test]
async fn no_statement_reads_or_sorts_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refrain.db");
    drop(SqliteStore::open(&file, SqliteOptions::default()).await.unwrap());
    let options = SqliteConnectOptions::new().filename(&file).foreign_keys(false);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();

    // As a service has it, which gathers no statistics; then as an operator may leave it.
    let mut wrong = judged(&mut connection).await;
    let filled = ["begin;", &many_rows(include_str!("../plans/numbers_sqlite.sql")), "commit; analyze;"].concat();
    sqlx::raw_sql(AssertSqlSafe(filled)).execute(&mut connection).await.unwrap();
    wrong.extend(judged(&mut connection).await);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is wrong with the plans as things are.
async fn judged(connection: &mut SqliteConnection) -> BTreeSet<String> {
    let partial =
        "select i.name from sqlite_schema t join pragma_index_list(t.name) i where t.type = 'table' and i.partial";
    let partial: Vec<String> = sqlx::query_scalar(partial).fetch_all(&mut *connection).await.unwrap();
    let mut wrong = BTreeSet::new();
    for (name, statement) in by_name(&STATEMENTS) {
        let explain = AssertSqlSafe(format!("explain query plan {statement}"));
        let rows = sqlx::raw_sql(explain).fetch_all(&mut *connection).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        let sorts = plan.iter().any(|step| step == "USE TEMP B-TREE FOR ORDER BY");
        let may = SORTS_FEW.iter().any(|(few, _)| *few == name);
        if sorts != may {
            wrong.insert(format!("{name}: sorts: {sorts}, expected {may}: {plan:#?}"));
        }
        if name == WALKS_A_BACKLOG.0 && !plan.iter().any(|step| step.contains(OF_RECIPIENT)) {
            wrong.insert(format!("{name}: a backlog is walked through: {plan:#?}"));
        }
        let pages = FILLS_A_PAGE.contains(&name.as_str()) && !sorts;
        wrong.extend(
            plan.iter()
                .filter(|step| reads_a_table(step, &plan, &partial, pages))
                .map(|step| format!("{name}: {step}")),
        );
    }
    wrong
}

/// Whether a step goes through all of a table: not one of those that wait or are held, nor a part of the query, nor from the
/// end of an index until a page is full.
fn reads_a_table(step: &str, plan: &[String], partial: &[String], pages: bool) -> bool {
    let Some(scanned) = step.strip_prefix("SCAN ") else { return false };
    let (name, how) = scanned.split_once(' ').unwrap_or((scanned, ""));
    let made = ["CO-ROUTINE ", "MATERIALIZE "].iter().any(|made| plan.contains(&format!("{made}{name}")));
    if made || SMALL.contains(&name) || name == "CONSTANT" || how.starts_with("VIRTUAL TABLE") {
        return false;
    }
    match how.rsplit_once("INDEX ") {
        Some((_, index)) => !partial.iter().any(|known| known == index) && !pages,
        None => true,
    }
}
