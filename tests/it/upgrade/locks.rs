//! What migrations lock while servers of the version before work beside them.

use super::root;
use crate::service::{Place, Store};
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor, PgConnection};

/// Those before this one may lock several tables.
const FIRST: i64 = 20;

/// The tables that were there before this transaction, and that it keeps others from writing; with those that it writes itself.
const LOCKED: &str = "
    select c.relname::text, bool_or(l.mode <> 'RowExclusiveLock')
    from pg_locks l
    join pg_class c on c.oid = l.relation
    where l.pid = pg_backend_pid()
        and l.mode in ('RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        and c.oid = any ($1)
    group by 1
    order by 1";

/// Requests lock several tables too, in orders of their own: a migration that waits for one of them while it has another
/// may wait in a circle.
#[tokio::test]
async fn a_migration_keeps_no_two_tables_from_those_who_write() {
    let place = Place::new(Store::Postgres).await;
    let mut database = PgConnection::connect(place.database_url().unwrap()).await.unwrap();
    let migrator = Migrator::new(root("migrations/postgres")).await.unwrap();
    let mut wrong = Vec::new();
    for migration in migrator.iter() {
        let mut transaction = database.begin().await.unwrap();
        let tables =
            "select array_agg(oid) from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace";
        let there: Option<Vec<sqlx::postgres::types::Oid>> =
            sqlx::query_scalar(tables).fetch_one(&mut *transaction).await.unwrap();
        transaction.execute(migration.sql.clone()).await.unwrap();
        let locked: Vec<(String, bool)> =
            sqlx::query_as(LOCKED).bind(there.unwrap_or_default()).fetch_all(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        if migration.version >= FIRST && locked.len() > 1 && locked.iter().any(|(_, strongly)| *strongly) {
            wrong.push((migration.version, locked));
        }
    }
    assert!(wrong.is_empty(), "expected one table of each migration, as CONTRIBUTING.md has it: {wrong:?}");
}
