//! What migrations lock while servers of the version before work beside them.

use super::root;
use crate::service::{Place, Store};
use sqlx::migrate::Migrator;
use sqlx::postgres::types::Oid;
use sqlx::{Connection, Executor, PgConnection, SqlSafeStr};

/// Those before this one may lock several tables.
const FIRST: i64 = 20;

/// What was there before this transaction and is kept from those who write, and what it writes to itself; but for the row that says which
/// versions may work with the database, which is written once a server starts.
const LOCKED: &str = "
    select distinct c.relname::text, l.mode <> 'RowExclusiveLock' as strongly
    from pg_locks l
    join pg_class c on c.oid = l.relation
    where l.pid = pg_backend_pid()
        and l.mode in ('RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        and c.oid = any ($1)
        and (c.relname <> 'meta' or l.mode <> 'RowExclusiveLock')
    order by 1, 2";

/// Requests lock several tables too, in orders of their own, and rows of them: a migration that waits for one while it has another
/// may wait in a circle.
#[tokio::test]
async fn a_migration_keeps_no_two_tables_from_those_who_write() {
    let place = Place::new(Store::Postgres).await;
    let mut database = PgConnection::connect(place.database_url().unwrap()).await.unwrap();
    let migrator = Migrator::new(root("migrations/postgres")).await.unwrap();
    let mut wrong = Vec::new();
    for migration in migrator.iter() {
        let locked = locked_by(&mut database, migration.sql.clone()).await;
        if migration.version >= FIRST && waits_in_a_circle(&locked) {
            wrong.push((migration.version, locked));
        }
    }
    assert!(wrong.is_empty(), "expected one table of each migration, as CONTRIBUTING.md has it: {wrong:?}");
    for (circle, statements) in [
        (true, "create index one on runs (mode); create index two on catalog (run_id)"),
        (true, "update runs set priority = 1; create index three on runs (mode)"),
        (
            true,
            "create or replace view ahead as select id, null::bigint as sequence from runs; create index four on runs (mode)",
        ),
        (true, "alter sequence run_sequence cache 1; create index five on runs (mode)"),
        (true, "delete from catalog; drop index one"),
        (
            false,
            "create table other (run_id uuid); create index six on other (run_id); create index seven on runs (mode)",
        ),
        (false, "update meta set oldest_schema = 22; alter table runs drop column progress cascade"),
        (false, "update runs set priority = 1; update catalog set run_id = run_id"),
    ] {
        let locked = locked_by(&mut database, statements).await;
        assert_eq!(waits_in_a_circle(&locked), circle, "{statements}: {locked:?}");
    }
}

fn waits_in_a_circle(locked: &[(String, bool)]) -> bool {
    locked.len() > 1 && locked.iter().any(|(_, strongly)| *strongly)
}

/// What a transaction of these statements locks, and how.
async fn locked_by(database: &mut PgConnection, statements: impl SqlSafeStr) -> Vec<(String, bool)> {
    let mut transaction = database.begin().await.unwrap();
    let there = "select array_agg(oid) from pg_class where relkind in ('r', 'v', 'S') and relnamespace = 'public'::regnamespace";
    let there: Option<Vec<Oid>> = sqlx::query_scalar(there).fetch_one(&mut *transaction).await.unwrap();
    transaction.execute(sqlx::raw_sql(statements)).await.unwrap();
    let locked = sqlx::query_as(LOCKED).bind(there.unwrap_or_default()).fetch_all(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    locked
}
