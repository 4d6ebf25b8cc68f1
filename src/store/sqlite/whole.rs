//! Runs with all that belongs to them, in SQLite's dialect.

/// Documents are texts within the JSON, so that they come back to the letter; times are microseconds since 1970.
macro_rules! whole {
    ($of:literal) => {
        concat!(
            r"
    select r.id, r.principal, r.idempotency_key, r.pipeline, r.mode, r.asked, r.state, r.definition, r.sequence, r.cancel_requested,
        r.progress, r.error, r.rows, r.sources, r.warnings, r.quarantine, r.created_at, r.started_at, r.ended_at, r.due_at,
        r.fingerprint, r.accepted_with,
        (
            select json_group_array(json_object(
                'partition', p.partition, 'outcome', p.outcome, 'content', p.content, 'previous', p.previous,
                'base', p.base
            ))
            from run_partitions p
            where p.run_id = r.id
        ) as partitions,
        (
            select json_group_array(json_object(
                'number', a.number, 'worker', a.worker, 'outcome', a.outcome, 'error', a.error,
                'started_at', a.started_at, 'ended_at', a.ended_at
            ))
            from (select * from attempts where run_id = r.id order by number desc limit +?2) a
        ) as last_attempts,
        case when r.state = 'succeeded' then (
            select json_group_array(json_object('partition', changed.partition, 'run_id', changed.run_id))
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
            select json_group_array(json_object(
                'position', o.position, 'id', o.id, 'event', o.event, 'url', o.url, 'state', o.state, 'tries', o.tries, 'last_status', o.last_status,
                'last_error', o.last_error, 'last_try_at', o.last_try_at, 'due_at', o.due_at
            ))
            from outbox o
            where o.run_id = r.id and o.kind = 'webhook'
        ) as deliveries
    ",
            $of
        )
    };
}

pub(super) const RUNS: &str = whole!(r"from json_each(?1) as asked cross join runs r on r.id = asked.value");

pub(super) const KNOWN_KEYS: &str = whole!(
    r"from json_each(?1) as asked cross join runs r on r.principal = asked.value ->> 0 and r.idempotency_key = asked.value ->> 1"
);
