//! The statements of what goes when it is old, in SQLite's dialect, in the order of their twins in Postgres's.

use crate::store::statements::PruneStatements;

pub(super) const STATEMENTS: PruneStatements = PruneStatements {
    version: r"
        select t.pipeline, next.version
        from tables t
        cross join history next indexed by history_by_version on next.pipeline = t.pipeline and next.version = (
            select min(later.version) from history later where later.pipeline = t.pipeline and later.version > t.history_from
        )
        where next.committed_at < ?1
        limit 1",
    history: r"
        delete from history
        where rowid in (
            select old.rowid
            from history later indexed by history_by_version
            cross join history old on old.pipeline = ?1 and old.partition = later.partition and old.version < ?2
            where later.pipeline = ?1
                and later.version = ?2
                and (later.outcome <> 'unchanged' or old.outcome = 'unchanged')
        )",
    begin_history: r"update tables set history_from = ?2 where pipeline = ?1",
    ended_runs: r"
        select r.id, r.ended_at, r.quarantine,
            (select count(*) from run_partitions p where p.run_id = r.id) as partitions,
            (
                exists (select 1 from catalog c where c.run_id = r.id)
                or exists (select 1 from catalog c where c.confirmed_by = r.id)
                or exists (select 1 from history h where h.run_id = r.id)
                or exists (select 1 from outbox o where o.run_id = r.id and o.kind = 'webhook' and o.state = 'pending')
            ) as referred_to
        from runs r
        where r.ended_at is not null and r.ended_at < ?1 and (r.ended_at, r.id) > (?2, ?3)
        order by r.ended_at, r.id
        limit +?4",
    lock_runs: r"
        select r.id
        from runs r
        where r.id in (select value from json_each(?1))
            and r.ended_at < ?2
            and not exists (select 1 from catalog c where c.run_id = r.id)
            and not exists (select 1 from catalog c where c.confirmed_by = r.id)
            and not exists (select 1 from history h where h.run_id = r.id)
            and not exists (select 1 from outbox o where o.run_id = r.id and o.kind = 'webhook' and o.state = 'pending')",
    labels: r"delete from run_labels where run_id in (select value from json_each(?1))",
    attempts: r"delete from attempts where run_id in (select value from json_each(?1))",
    scopes: r"delete from run_partitions where run_id in (select value from json_each(?1))",
    runs: r"delete from runs where id in (select value from json_each(?1))",
};
