-- Plans are kept, and may be made while there is next to nothing, when all ways cost the same. So each look below is put in such a way that one index
-- alone gives it without a sort, and sorts are not to be had where there may be many rows: then that is the plan, whenever it was made.

-- How many of a principal's runs were queued, or held and so perhaps queued again, when so many numbers had been drawn. Whatever is queued since has
-- drawn one: so no more are queued now than those, and one for each number that was drawn since.
alter table turns add column counted bigint;
alter table turns add column counted_at bigint;

-- As before, but that of the active runs of a pipeline the last one is found, and not looked for from the last one of all on.
create or replace view ahead as
select r.id, greatest(
    (
        select max((
            select max(theirs.sequence)
            from reservations theirs
            where theirs.pipeline = mine.pipeline and theirs.partition = mine.partition and theirs.sequence < mine.sequence
        ))
        from reservations mine
        where mine.run_id = r.id
    ),
    (
        select o.sequence
        from runs o
        where o.pipeline >= r.pipeline
            and o.pipeline <= r.pipeline
            and o.mode = 'full'
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and o.sequence < r.sequence
        order by o.pipeline desc, o.sequence desc
        limit 1
    ),
    case when r.mode = 'full' then (
        select o.sequence
        from runs o
        where o.pipeline >= r.pipeline
            and o.pipeline <= r.pipeline
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and o.sequence < r.sequence
        order by o.pipeline desc, o.sequence desc
        limit 1
    ) end
) as sequence
from runs r
where case when r.state = 'queued' and r.sequence > 0 then true end;

alter function stand_behind(uuid[]) set enable_sort = 'off';
alter function stand_behind(uuid[]) set enable_incremental_sort = 'off';
alter function stand_behind(uuid[]) set enable_bitmapscan = 'off';

-- The first key from this one on, if it is this one.
create or replace function runs_under_keys(keys json) returns setof uuid language plpgsql stable
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' set enable_sort = 'off'
set enable_incremental_sort = 'off' set enable_bitmapscan = 'off' as $$
begin
    return query
    select r.id
    from json_array_elements(keys) as asked(key)
    cross join lateral (
        select id, principal, idempotency_key
        from runs
        where (principal, idempotency_key) >= (asked.key ->> 0, asked.key ->> 1)
        order by principal, idempotency_key
        limit 1
    ) r
    where r.principal = asked.key ->> 0 and r.idempotency_key = asked.key ->> 1;
end
$$;

-- From one definition of the catalog to the next one.
create or replace function definitions_of_table(table_of text) returns setof text language plpgsql stable
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' set enable_sort = 'off'
set enable_incremental_sort = 'off' set enable_bitmapscan = 'off' as $$
begin
    return query
    with recursive written(definition) as (
        (select c.definition from catalog c where c.pipeline = table_of order by c.definition limit 1)
        union all
        select (
            select c.definition
            from catalog c
            where c.pipeline = table_of and c.definition > written.definition
            order by c.definition
            limit 1
        )
        from written
        where written.definition is not null
    )
    select written.definition from written where written.definition is not null;
end
$$;

-- Servers of the version before go on with it.
alter function accept_runs(json, bigint) set enable_seqscan = 'off';

-- Whoever has placed what is to be reserved says so.
drop trigger reserved_runs_stand_behind on reservations;

create trigger reserved_runs_stand_behind after insert on reservations
referencing new table as reserved for each statement
when (current_setting('refrain.placed', true) is distinct from 'yes') execute function reserved_runs_stand_behind();

-- Gives the runs of these pipelines their numbers whose time has come, in the order of their times.
create function number_due_runs(pipelines text[], moment timestamptz) returns void language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' set refrain.placed = 'no' as $$
declare
    due record;
    number bigint;
begin
    for due in
        select r.id, r.pipeline, r.mode
        from runs r
        where r.state = 'queued' and r.sequence < 0 and r.due_at <= moment and r.pipeline = any (pipelines)
        order by r.due_at, r.sequence desc
        for update
    loop
        update runs set sequence = nextval('run_sequence') where id = due.id returning sequence into number;
        if due.mode = 'overwrite' then
            insert into reservations (pipeline, partition, sequence, run_id)
            select due.pipeline, p.partition, number, due.id from run_partitions p where p.run_id = due.id;
        end if;
    end loop;
end
$$;

-- How many runs are queued of those principals of whom more may be too many; null where they surely are of nobody. Principals come with how many
-- more there are of each.
create function queued_of_crowded(principals json, most bigint) returns jsonb language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' as $$
declare
    drawn bigint;
    one record;
    queued bigint;
    crowded jsonb;
begin
    -- Before anything is counted: what is queued meanwhile may count twice, but not fail to count.
    drawn := (select case when is_called then last_value else last_value - 1 end from run_sequence);
    for one in
        select t.principal, asked.more::bigint as more, t.counted + drawn - t.counted_at as at_most
        from json_each_text(principals) as asked(principal, more)
        cross join lateral (select * from turns where turns.principal = asked.principal offset 0) t
    loop
        if one.at_most + one.more <= most then
            continue;
        end if;
        queued := (
            select count(*) from (select from runs r where r.state = 'queued' and r.principal = one.principal limit most) as counted
        );
        if queued + one.more > most then
            crowded := coalesce(crowded, '{}') || jsonb_build_object(one.principal, queued);
            continue;
        end if;
        -- A claim that has the row in hand is not waited for: then the next one counts.
        update turns
        set counted_at = drawn, counted = queued + (select count(*) from runs r where r.state in ('running', 'committing'))
        where principal = (
            select mine.principal from turns mine where mine.principal = one.principal for update skip locked
        );
    end loop;
    return crowded;
end
$$;

-- The places of those submissions whose keys are new, and which are more than may be queued of their principals.
create function one_too_many(submissions json, crowded jsonb, most bigint) returns bigint[] language plpgsql stable
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' as $$
begin
    return array(
        select standing.nth
        from (
            select s.nth, dense_rank() over (partition by s.principal order by s.key collate "C") + (crowded ->> s.principal)::bigint as queued
            from rows from (json_to_recordset(submissions) as (principal text, key text)) with ordinality as s (principal, key, nth)
            where crowded ? s.principal
                and not exists (select from runs_under_keys(json_build_array(json_build_array(s.principal, s.key))))
        ) as standing
        where standing.queued > most
    );
end
$$;

-- Submissions that come together, as accept_runs has them, but each table is written once for all of them. They go in the order of their keys,
-- so that two servers that take the same ones do not wait for each other in a circle.
--
-- The numbers are drawn by the statement that looks whom the runs are to stand behind, after it began: all that it sees has lower ones. Who stands
-- behind somebody of the table holds him, as stand_behind does; one who comes along cannot end before all of them are there.
create function accept_together(definitions_of json, principals json, submissions json, most_queued bigint)
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
    if (
        select r.id
        from runs r
        where r.state = 'queued' and r.sequence < 0 and r.due_at <= moment and r.pipeline = any (pipelines)
        order by r.due_at
        limit 1
    ) is not null then
        perform number_due_runs(pipelines, moment);
    end if;
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
                where o.sequence = n.before and o.state in ('queued', 'running', 'committing')
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

-- Nothing claims over it any more. Servers of the version before claim over runs_queued.
drop index runs_queued_by_turn;
