//! The outbox's statements in Postgres's dialect, in the order of their twins in SQLite's.

use crate::store::statements::OutboxStatements;

pub(in crate::store) const OUTBOX: OutboxStatements = OutboxStatements {
    told: r"
        select r.principal, r.idempotency_key, r.pipeline, r.mode, r.state, r.definition, r.attempts, r.created_at, r.started_at,
            r.ended_at, r.error, r.rows, r.sources, r.audience,
            (select json_object_agg(l.name, l.text order by l.name) from run_labels l where l.run_id = r.id) as labels
        from runs r
        where r.id = $1",
    insert_message: r"
        insert into outbox (id, run_id, kind, url, host, event, notice, created_at, due_at, principal)
        values ($1, $2, $3, $4, $5, $6, $7::json, $8, $8, $9)",
    claim_message: r"
        update outbox set token = $3, due_at = $2
        where position = (
            with recursive recipients as (
                (
                    select o.principal, o.host, o.kind
                    from outbox o
                    where o.state = 'pending'
                    order by o.principal, o.host
                    limit 1
                )
                union all
                select next.principal, next.host, next.kind
                from recipients r
                cross join lateral (
                    select o.principal, o.host, o.kind
                    from outbox o
                    where o.state = 'pending' and (o.principal, o.host) > (r.principal, r.host)
                    order by o.principal, o.host
                    limit 1
                ) next
            )
            select taken.position
            from (
                select due.position
                from recipients r
                -- Some of each: others may be taking the first ones in hand at this moment.
                cross join lateral (
                    select d.position, d.due_at
                    from outbox d
                    where d.state = 'pending'
                        and d.principal = r.principal
                        and d.host = r.host
                        and d.due_at <= $1
                        and (d.kind <> 'lineage' or not exists (
                            select 1
                            from outbox earlier
                            where earlier.run_id = d.run_id
                                and earlier.position < d.position
                                and earlier.kind = 'lineage'
                                and earlier.state = 'pending'
                        ))
                    order by d.due_at, d.position
                    limit 8
                ) due
                where r.kind in (select json_array_elements_text($4::json))
                    and r.host not in (select json_array_elements_text($5::json))
                    and (r.kind <> 'webhook' or r.principal not in (select json_array_elements_text($6::json)))
                order by due.due_at, due.position
            ) due
            cross join lateral (
                select o.position
                from outbox o
                where o.position = due.position and o.state = 'pending' and o.due_at <= $1
                for update skip locked
            ) taken
            limit 1
        )
        returning position, id, url, host, notice, tries",
    save_try: r"
        update outbox set
            state = $3, due_at = $4, token = null, tries = tries + 1, last_status = $5, last_error = $6, last_try_at = $7
        where position = $1 and token = $2",
    put_off_later_lineage: r"
        update outbox set due_at = $2
        where run_id = (select o.run_id from outbox o where o.position = $1 and o.kind = 'lineage')
            and position > $1
            and kind = 'lineage'
            and state = 'pending'
            and due_at < $2",
    drop_told_lineage: r"delete from outbox where position = $1 and token = $2 and kind = 'lineage'",
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
