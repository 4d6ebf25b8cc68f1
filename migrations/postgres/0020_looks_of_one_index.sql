-- Where many runs of other tables have come to their time, whoever looks for those of one does not pass over them.
create index runs_unnumbered_of_pipeline on runs (pipeline, due_at, sequence desc) where state = 'queued' and sequence < 0;

-- As before, but each pipeline's are found by that index alone. Each is named once.
create or replace function number_due_runs(pipelines text[], moment timestamptz) returns void language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' set enable_sort = 'off'
set enable_incremental_sort = 'off' set enable_bitmapscan = 'off' set refrain.placed = 'no' as $$
declare
    due record;
    number bigint;
begin
    for due in
        select found.id, found.pipeline, found.mode
        from unnest(pipelines) as mine(pipeline)
        cross join lateral (
            select r.id, r.pipeline, r.mode, r.due_at, r.sequence
            from runs r
            where r.state = 'queued'
                and r.sequence < 0
                and r.due_at <= moment
                and r.pipeline >= mine.pipeline
                and r.pipeline <= mine.pipeline
            order by r.pipeline, r.due_at, r.sequence desc
            for update
        ) found
        order by found.due_at, found.sequence desc
    loop
        update runs set sequence = nextval('run_sequence') where id = due.id returning sequence into number;
        if due.mode = 'overwrite' then
            insert into reservations (pipeline, partition, sequence, run_id)
            select due.pipeline, p.partition, number, due.id
            from run_partitions p
            where p.run_id >= due.id and p.run_id <= due.id
            order by p.run_id;
        end if;
    end loop;
end
$$;

-- As before, but that a run has not ended is said so that no index of those alone is taken for its number, all of which would be gone through.
create or replace function stand_behind(queued uuid[]) returns void language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' set enable_sort = 'off'
set enable_incremental_sort = 'off' set enable_bitmapscan = 'off' as $$
declare
    one record;
begin
    for one in select id, sequence from ahead where id = any (queued) loop
        perform from runs
        where sequence = one.sequence and case when state in ('queued', 'running', 'committing') then true end
        for share skip locked;
        if not found then
            one.sequence := null;
        end if;
        update runs set behind = one.sequence where id = one.id and behind is distinct from one.sequence;
    end loop;
end
$$;

-- As before, but the numbers are given without a look of its own beforehand, which passed over those of other pipelines, and whom a run stands behind is
-- found by his number alone, as above.
create or replace function accept_together(definitions_of json, principals json, submissions json, most_queued bigint)
returns table (place bigint, result text, new_sequence bigint, new_due_at timestamptz, new_created_at timestamptz) language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' set enable_sort = 'off'
set enable_incremental_sort = 'off' set enable_bitmapscan = 'off' set refrain.placed = 'yes' as $$
declare
    pipelines text[];
    moment timestamptz;
    crowded jsonb;
    refused bigint[] := '{}';
    is_complete boolean := true;
begin
    pipelines := array(select distinct d.pipeline collate "C" from json_to_recordset(definitions_of) as d(pipeline text) order by 1);
    perform pg_advisory_xact_lock_shared(hashtextextended('refrain/' || p.pipeline, 0)) from unnest(pipelines) as p(pipeline);
    moment := clock_timestamp();
    insert into definitions (hash, pipeline, text, created_at)
    select d.hash, d.pipeline, d.text, moment
    from json_to_recordset(definitions_of) as d(hash text, pipeline text, text text)
    where (select known.hash from definitions known where known.hash = d.hash) is null
    order by d.hash
    on conflict (hash) do nothing;
    insert into turns (principal)
    select asked.principal
    from json_each_text(principals) as asked(principal, more)
    where (select t.principal from turns t where t.principal = asked.principal) is null
    order by asked.principal
    on conflict (principal) do nothing;
    if most_queued is not null then
        crowded := queued_of_crowded(principals, most_queued);
        if crowded is not null then
            refused := one_too_many(submissions, crowded, most_queued);
            return query select nth, 'too_many_queued', null::bigint, null::timestamptz, null::timestamptz from unnest(refused) as nth;
        end if;
    end if;
    perform number_due_runs(pipelines, moment);
    for place, result, new_sequence, new_due_at, new_created_at in
        with submitted as materialized (
            select s.*, case when s.not_before > moment then -nextval('run_sequence') else nextval('run_sequence') end as sequence
            from (
                select *
                from rows from (
                    json_to_recordset(submissions) as (
                        id uuid, principal text, key text, pipeline text, mode text, asked json, fingerprint text, definition text,
                        priority bigint, not_before timestamptz, audience json, labels json, scope json
                    )
                ) with ordinality as submission (
                    id, principal, key, pipeline, mode, asked, fingerprint, definition, priority, not_before, audience, labels, scope, nth
                )
                where submission.nth <> all (refused)
                order by submission.principal collate "C", submission.key collate "C", submission.nth
            ) s
        ), scopes as materialized (
            select s.id, s.pipeline, s.sequence, p.partition
            from submitted s
            cross join lateral json_array_elements_text(s.scope) as p(partition)
        ), in_the_way as (
            select s.id, s.sequence, s.pipeline,
                lag(s.sequence) over (partition by s.pipeline, s.partition order by s.sequence) as beside,
                (
                    select r.sequence
                    from reservations r
                    where r.pipeline = s.pipeline and r.partition = s.partition
                    order by r.sequence desc
                    limit 1
                ) as before
            from scopes s
            where s.sequence > 0
            union all
            select s.id, s.sequence, s.pipeline,
                max(case when s.mode = 'full' then s.sequence end)
                    over (partition by s.pipeline order by s.sequence rows between unbounded preceding and 1 preceding),
                (
                    select o.sequence
                    from runs o
                    where o.pipeline >= s.pipeline
                        and o.pipeline <= s.pipeline
                        and o.mode = 'full'
                        and o.state in ('queued', 'running', 'committing')
                        and o.sequence > 0
                    order by o.pipeline desc, o.sequence desc
                    limit 1
                )
            from submitted s
            where s.sequence > 0
        ), nearest as materialized (
            select id, max(beside) as beside, max(before) as before from in_the_way group by id
        ), held as materialized (
            select r.sequence
            from (select distinct before from nearest where beside is null) n
            cross join lateral (
                select o.sequence
                from runs o
                where o.sequence = n.before and case when o.state in ('queued', 'running', 'committing') then true end
                for share skip locked
            ) r
        ), accepted as (
            insert into runs (
                id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
                due_at, created_at, priority, not_before, audience, behind
            )
            select s.id, s.principal, s.key, s.pipeline, s.mode, s.asked, s.fingerprint, s.definition, s.definition, 'queued', s.sequence,
                greatest(s.not_before, moment), moment, s.priority, s.not_before, s.audience, coalesce(n.beside, h.sequence)
            from submitted s
            left join nearest n on n.id = s.id
            left join held h on h.sequence = n.before
            order by s.principal collate "C", s.key collate "C", s.nth
            on conflict (principal, idempotency_key) do nothing
            returning id
        ), labelled as (
            insert into run_labels (run_id, name, text)
            select a.id, label.key, label.value
            from accepted a
            join submitted s on s.id = a.id
            cross join lateral json_each_text(s.labels) as label(key, value)
        ), scoped as (
            insert into run_partitions (run_id, partition)
            select a.id, s.partition from accepted a join scopes s on s.id = a.id
        ), reserved as (
            insert into reservations (pipeline, partition, sequence, run_id)
            select s.pipeline, s.partition, s.sequence, a.id from accepted a join scopes s on s.id = a.id where s.sequence > 0
        )
        select s.nth, case when a.id is null then 'key_taken' else 'accepted' end, s.sequence, greatest(s.not_before, moment), moment
        from submitted s
        left join accepted a on a.id = s.id
    loop
        is_complete := is_complete and result = 'accepted';
        return next;
    end loop;
    if not is_complete then
        -- Some may stand behind one that is not there.
        perform stand_behind(array(select (submission ->> 'id')::uuid from json_array_elements(submissions) as submission));
    end if;
end
$$;
