//! What functions and triggers of the database read, which no plan shows: Postgres counts it.

use super::run;
use crate::store::postgres::sql::ACCEPT_RUNS;
use serde_json::json;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use std::collections::BTreeMap;

/// The most rows that a step may come by over indexes: those of a few runs, and not those of all that are queued.
const MOST_ROWS: i64 = 500;

/// What each step reads too much of.
pub(super) async fn judged(connection: &mut PgConnection) -> Vec<String> {
    let prepared = "set session_replication_role = origin;
        set plan_cache_mode = auto;
        select setval('run_sequence', max(sequence)) from runs;
        update runs set due_at = now() + interval '1 day' where state = 'queued' and sequence < 0";
    run(connection, prepared.to_owned()).await;
    let mut wrong = Vec::new();
    for (what, step) in steps(connection).await {
        let before = read(connection).await;
        run(connection, step).await;
        for (name, (scans, rows)) in read(connection).await {
            let (scans_before, rows_before) = before.get(&name).copied().unwrap_or_default();
            if scans > scans_before {
                wrong.push(format!("{what}: all of {name} is read"));
            }
            if rows - rows_before > MOST_ROWS {
                wrong.push(format!("{what}: {} rows of {name} are read", rows - rows_before));
            }
        }
    }
    wrong
}

/// Each is done more than once, for the plan that is kept in the end is not the first one.
async fn steps(connection: &mut PgConnection) -> Vec<(String, String)> {
    const TIMES: usize = 8;
    let mut steps = Vec::new();
    for time in 0..TIMES {
        steps.push((format!("runs are accepted, {time}"), accepted(time, "overwrite")));
    }
    for time in 0..TIMES {
        steps.push((format!("a full run is accepted, {time}"), accepted(TIMES + time, "full")));
    }
    let somebody_is_behind =
        "select id::text from runs r where state = 'queued' and sequence > 0 and mode = 'overwrite' and exists (
            select from runs o where o.behind = r.sequence
        ) order by sequence limit $1";
    let ended = sqlx::query_scalar(somebody_is_behind).bind(TIMES as i64).fetch_all(connection).await.unwrap();
    for (time, id) in ended.into_iter().map(|id: String| id).enumerate() {
        let end = format!("update runs set state = 'cancelled', ended_at = clock_timestamp() where id = '{id}'");
        steps.push((format!("a run ends, {time}"), end));
    }
    steps
}

/// Two runs, of which the second stands behind the first, of a pipeline that has a long queue.
fn accepted(number: usize, mode: &str) -> String {
    let scope = if mode == "full" { json!([]) } else { json!(["at=1", "at=2"]) };
    let run = |nth: usize| {
        json!({
            "id": uuid::Uuid::now_v7(), "principal": "principal-1", "key": format!("within-{number}-{nth}"),
            "pipeline": "pipeline-1", "mode": mode, "asked": "{}", "fingerprint": "fingerprint", "definition": "definition-1",
            "definition_text": "", "priority": 0, "labels": "{\"team\": \"a\"}", "scope": scope.to_string(),
        })
    };
    let submitted = json!([run(1), run(2)]).to_string();
    ACCEPT_RUNS.replace("$1::json", &format!("'{submitted}'::json")).replace("$2", "null")
}

/// How often each large table was read as a whole, and how many rows were come by over each index.
async fn read(connection: &mut PgConnection) -> BTreeMap<String, (i64, i64)> {
    run(connection, "select pg_stat_force_next_flush()".to_owned()).await;
    let counted = "select t.relname::text as name, t.seq_scan as scans, 0::bigint as rows
        from pg_stat_user_tables t join pg_class c on c.oid = t.relid where c.reltuples > 1000
        union all
        select i.indexrelname::text, 0, i.idx_tup_read from pg_stat_user_indexes i";
    let rows = sqlx::query(AssertSqlSafe(counted)).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| (row.get("name"), (row.get("scans"), row.get("rows")))).collect()
}
