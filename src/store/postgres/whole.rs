//! Runs with all that belongs to them, in Postgres's dialect.

/// The runs are found one by one: as a set Postgres may read all of them, as long as there are few, and keep to that plan when there are
/// many. Documents are texts within the JSON, so that they come back to the letter; times are microseconds since 1970.
macro_rules! whole {
    ($of:literal) => {
        concat!(
            r"
    select r.id, r.principal, r.idempotency_key, r.pipeline, r.mode, r.asked, r.state, r.definition, r.sequence, r.cancel_requested,
        r.progress, r.error, r.rows, r.sources, r.warnings, r.quarantine, r.created_at, r.started_at, r.ended_at, r.due_at,
        r.fingerprint, r.accepted_with,
        (
            select json_agg(json_build_object(
                'partition', p.partition, 'outcome', p.outcome, 'content', p.content::text, 'previous', p.previous::text,
                'base', p.base
            ))
            from run_partitions p
            where p.run_id = r.id
        ) as partitions,
        (
            select json_agg(json_build_object(
                'number', a.number, 'worker', a.worker, 'outcome', a.outcome, 'error', a.error::text,
                'started_at', (extract(epoch from a.started_at) * 1000000)::bigint,
                'ended_at', (extract(epoch from a.ended_at) * 1000000)::bigint
            ))
            from (select * from attempts where run_id = r.id order by number desc limit $2) a
        ) as last_attempts,
        case when r.state = 'succeeded' then (
            select json_agg(json_build_object('partition', changed.partition, 'run_id', changed.run_id))
            from (
                select p.partition, (
                    select case when h.committed_at >= r.ended_at then h.run_id end
                    from history h
                    where h.pipeline = r.pipeline and h.partition = p.partition and h.outcome <> 'unchanged'
                    order by h.version desc
                    limit 1
                ) as run_id
                from run_partitions p
                where p.run_id = r.id
            ) changed
            join runs later on later.id = changed.run_id
            where later.sequence > r.sequence
        ) end as superseded,
        (
            select json_agg(json_build_object(
                'position', o.position, 'id', o.id, 'event', o.event, 'url', o.url, 'state', o.state, 'tries', o.tries, 'last_status', o.last_status,
                'last_error', o.last_error,
                'last_try_at', (extract(epoch from o.last_try_at) * 1000000)::bigint,
                'due_at', (extract(epoch from o.due_at) * 1000000)::bigint
            ))
            from outbox o
            where o.run_id = r.id and o.kind = 'webhook'
        ) as deliveries
    ",
            $of
        )
    };
}

pub(super) const RUNS: &str = whole!(
    r"from json_array_elements_text($1::json) as asked(id)
    cross join lateral (select * from runs where id = asked.id::uuid offset 0) r"
);

pub(super) const KNOWN_KEYS: &str = whole!(
    r"from runs_under_keys($1::json) as asked(id)
    cross join lateral (select * from runs where id = asked.id offset 0) r"
);
