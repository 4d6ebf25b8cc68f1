//! The outbox's statements in SQLite's dialect, in the order of their twins in Postgres's.

use crate::store::statements::OutboxStatements;

pub(in crate::store) const OUTBOX: OutboxStatements = OutboxStatements {
    told: r"
        select r.principal, r.idempotency_key, r.pipeline, r.mode, r.state, r.definition, r.attempts, r.created_at, r.started_at,
            r.ended_at, r.error, r.rows, r.sources, r.audience,
            (select json_group_object(l.name, l.text) from run_labels l where l.run_id = r.id) as labels
        from runs r
        where r.id = ?1",
    insert_message: r"
        insert into outbox (id, run_id, kind, url, host, event, notice, created_at, due_at)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
    claim_message: r"
        update outbox set token = ?3, due_at = ?2
        where position = (
            select o.position
            from outbox o
            where o.state = 'pending'
                and o.due_at <= ?1
                and o.kind in (select value from json_each(?4))
                and o.host not in (select value from json_each(?5))
                and (
                    o.kind <> 'webhook'
                    or (select r.principal from runs r where r.id = o.run_id) not in (select value from json_each(?6))
                )
                and (o.kind <> 'lineage' or not exists (
                    select 1
                    from outbox earlier
                    where earlier.run_id = o.run_id
                        and earlier.position < o.position
                        and earlier.kind = 'lineage'
                        and earlier.state = 'pending'
                ))
            order by o.due_at, o.position
            limit 1
        )
        returning id, url, host, notice, tries",
    save_try: r"
        update outbox set
            state = ?3, due_at = ?4, token = null, tries = tries + 1, last_status = ?5, last_error = ?6, last_try_at = ?7
        where id = ?1 and token = ?2",
    drop_told_lineage: r"delete from outbox where id = ?1 and token = ?2 and kind = 'lineage'",
    outbox_depth: r"
        select kind, 'pending' as state, count(*) as messages, min(created_at) as oldest
        from outbox
        where state = 'pending'
        group by kind
        union all
        select kind, 'gave_up' as state, count(*) as messages, min(created_at) as oldest
        from outbox
        where state = 'gave_up'
        group by kind",
};
