//! What functions of the database look up: their plans are kept, and were made while there was next to nothing.

use super::{Database, many_rows, run};
use crate::store::plans::rows;
use rstest::rstest;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// So many rows and entries of indexes at the most, however many there are: no look takes half of them.
const MOST_READ: i64 = 300;
/// So many pages of a table or an index at the most: an index that is gone through for one entry counts as one row above.
const MOST_PAGES: i64 = 150;

/// A session that falls far behind with what others change in any database of the server forgets all of its plans.
const MOST_TRIES: usize = 5;

/// The number of the last runs' partition, which all wait.
fn last_partition() -> u64 {
    (rows() - 1) / 20
}

/// Five submissions, as a list of JSON, to a pipeline and to these partitions of it.
fn submissions(partitions: &str) -> String {
    format!(
        "(select json_agg(json_build_object('id', gen_random_uuid(), 'principal', 'principal-1', 'key', gen_random_uuid(), 'pipeline', 'pipeline-1',
            'mode', 'overwrite', 'asked', '{{}}'::json, 'fingerprint', 'f', 'definition', 'few', 'definition_text', 'text',
            'priority', 0, 'labels', '{{}}'::json, 'scope', (select json_agg(distinct partition)::json from (
                values {partitions}
            ) as named(partition))))
        from generate_series(1, 5) as n)"
    )
}

/// A run and what it reserves, as a server of the version before writes it.
fn older(mode: &str) -> String {
    let last = last_partition();
    format!(
        "with new as (
            insert into runs (id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
                due_at, created_at)
            values (gen_random_uuid(), 'principal-1', 'older', 'pipeline-1', '{mode}', '{{}}', 'f', 'few', 'few', 'queued',
                nextval('run_sequence'), now(), now())
            returning id, sequence
        )
        insert into reservations (pipeline, partition, sequence, run_id)
        select 'pipeline-1', 'at={last}', sequence, id from new where '{mode}' = 'overwrite'"
    )
}

/// A run whose time has come, which gets its number.
fn due() -> String {
    let last = last_partition();
    format!(
        "with due as (
            insert into runs (id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
                due_at, created_at)
            values (gen_random_uuid(), 'principal-1', 'due', 'pipeline-due', 'overwrite', '{{}}', 'f', 'few', 'few', 'queued',
                -nextval('run_sequence'), now(), now())
            returning id
        )
        insert into run_partitions (run_id, partition) select id, 'at={last}' from due;
        select number_due_runs('{{pipeline-due,pipeline-none}}', now());
        do $$ begin
            assert (select count(*) from reservations where pipeline = 'pipeline-due') = 1, 'it has no number';
        end $$"
    )
}

/// What is looked up, by name.
fn looks() -> Vec<(&'static str, String)> {
    let definition = r#"[{"hash": "few", "pipeline": "pipeline-1", "text": "text"}]"#;
    let principals = r#"{"principal-1": 5}"#;
    let last = last_partition();
    let in_each_others_way = format!("('at=1'), ('at=' || n), ('at={last}')");
    let together = |partitions: &str| {
        let submissions = submissions(partitions);
        format!("select * from accept_together('{definition}', '{principals}', {submissions}, null)")
    };
    vec![
        ("submissions", together(&in_each_others_way)),
        ("submissions each of which is behind a run", together(&format!("('at=' || {last} - n)"))),
        ("a run of the version before", older("overwrite")),
        ("a full run", older("full")),
        (
            "a run ends",
            format!("update runs set state = 'cancelled', ended_at = now() where sequence = {}", rows() - 992),
        ),
        ("keys", r#"select runs_under_keys('[["principal-1", "key-1"], ["principal-1", "none"]]')"#.to_owned()),
        ("definitions of a table", "select definitions_of_table('pipeline-1')".to_owned()),
        ("whose time has come", due()),
    ]
}

/// Looks that are told to read all of a table when their plans are made, and would read next to nothing if they were made anew.
async fn prepare_controls(connection: &mut PgConnection) -> Vec<String> {
    run(
        connection,
        "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off".to_owned(),
    )
    .await;
    let none = "'00000000-0000-0000-0000-000000000000'";
    let mut controls = Vec::new();
    for (table, key) in [
        ("runs", format!("id = {none}")),
        ("reservations", format!("run_id = {none}")),
        ("run_partitions", format!("run_id = {none}")),
        ("definitions", "hash = 'none'".to_owned()),
        ("catalog", "pipeline = 'none'".to_owned()),
    ] {
        run(connection, format!("prepare all_{table} as select from {table} where {key}")).await;
        controls.push(format!("execute all_{table}"));
    }
    for control in &controls {
        run(connection, control.clone()).await;
    }
    run(connection, "reset enable_indexscan; reset enable_indexonlyscan; reset enable_bitmapscan".to_owned()).await;
    controls
}

#[rstest]
#[case::that_is_new("select 1")]
#[case::that_was_looked_at("vacuum analyze")]
#[case::that_has_a_few_runs("a few")]
#[tokio::test]
async fn plans_that_were_made_over_next_to_nothing_read_little_of_much(#[case] before: &str) {
    for _ in 0..MOST_TRIES {
        if let Some(read_too_much) = tried(before).await {
            assert!(read_too_much.is_empty(), "expected at most {MOST_READ} and {MOST_PAGES}: {read_too_much:?}");
            return;
        }
    }
    panic!("plans were made anew each time");
}

/// What reads too much, by name, with its rows and pages; nothing where plans were made anew meanwhile, which says nothing.
async fn tried(before: &str) -> Option<Vec<(&'static str, i64, i64)>> {
    let database = Database::create().await;
    let mut connection = database.connect().await;
    // Nobody else looks at the tables meanwhile, which would make the plans anew.
    let alone = "do $$ declare one text; begin
        for one in select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
            execute format('alter table %I set (autovacuum_enabled = off)', one);
        end loop;
    end $$";
    run(&mut connection, alone.to_owned()).await;
    run(&mut connection, "insert into definitions values ('few', 'pipeline-1', 'text', now())".to_owned()).await;
    run(&mut connection, "select setval('run_sequence', 100000000)".to_owned()).await;
    if before == "a few" {
        run(&mut connection, looks()[0].1.clone()).await;
        run(&mut connection, "analyze".to_owned()).await;
    } else {
        run(&mut connection, before.to_owned()).await;
    }
    let controls = prepare_controls(&mut connection).await;
    // A plan is kept from the sixth time on, where nothing says from when.
    for _ in 0..7 {
        for (_, look) in looks() {
            read_by(&mut connection, &look).await;
        }
    }
    // Without statistics, which would make the plans anew.
    let mut other = database.connect().await;
    run(&mut other, "delete from reservations".to_owned()).await;
    // A first temporary table makes a schema, and that all plans anew.
    let lasting = include_str!("../../plans/numbers_postgres.sql").replace("temporary", "");
    run(&mut other, many_rows(&lasting)).await;
    other.close().await.unwrap();
    let mut were_kept = true;
    for control in controls {
        were_kept &= read_by(&mut connection, &control).await.0 > MOST_READ;
    }
    let mut read_too_much = Vec::new();
    for (name, look) in looks() {
        let (read, pages) = read_by(&mut connection, &look).await;
        if read > MOST_READ || pages > MOST_PAGES {
            read_too_much.push((name, read, pages));
        }
    }
    connection.close().await.unwrap();
    database.drop().await;
    were_kept.then_some(read_too_much)
}

/// How many rows and entries of indexes a statement reads, whose writes are undone, and the most pages of one table or index.
async fn read_by(connection: &mut PgConnection, statement: &str) -> (i64, i64) {
    let read =
        "select oid::bigint, pg_stat_get_xact_tuples_returned(oid), pg_stat_get_xact_blocks_fetched(oid) from pg_class
        where relkind in ('r', 'i') and relnamespace = 'public'::regnamespace order by oid";
    let mut transaction = connection.begin().await.unwrap();
    let before: Vec<(i64, i64, i64)> = sqlx::query_as(read).fetch_all(&mut *transaction).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *transaction).await.unwrap();
    let after: Vec<(i64, i64, i64)> = sqlx::query_as(read).fetch_all(&mut *transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    let of_each = before.iter().zip(&after).map(|(before, after)| (after.1 - before.1, after.2 - before.2));
    of_each.fold((0, 0), |(rows, most), (read, pages)| (rows + read, most.max(pages)))
}
