-- These look up by an index that must be the right one when there are many rows. While there are few any will do, and a plan that is kept is made
-- then; so they are planned at each call.
create function runs_under_keys(keys json) returns setof uuid language plpgsql stable
set plan_cache_mode = 'force_custom_plan' as $$
begin
    return query
    select r.id
    from json_array_elements(keys) as asked(key)
    cross join lateral (
        select id from runs where principal = asked.key ->> 0 and idempotency_key = asked.key ->> 1 offset 0
    ) r;
end
$$;

create function definitions_of_table(table_of text) returns setof text language plpgsql stable
set plan_cache_mode = 'force_custom_plan' as $$
begin
    return query
    select d.hash
    from definitions d
    where d.pipeline = table_of and exists (select 1 from catalog c where c.pipeline = table_of and c.definition = d.hash);
end
$$;

-- How many runs of each principal are queued, counted no further than it matters.
create function queued_of_principals(principals json, most bigint) returns jsonb language plpgsql stable
set plan_cache_mode = 'force_custom_plan' as $$
begin
    return (
        select jsonb_object_agg(asked.principal, (
            select count(*)
            from (select from runs where state = 'queued' and principal = asked.principal limit most) as queued
        ))
        from json_array_elements_text(principals) as asked(principal)
    );
end
$$;

-- Submissions that come together: one round trip and one wait for the disk for all of them. Each is accepted or refused by itself, as
-- accept_run does it, and what is refused for the number of queued runs has not begun to write. They go in the order of their pipelines and keys, whatever order
-- they came in, so that two servers which take the same locks do not wait for each other in a circle.
create function accept_runs(submissions json, most_queued bigint)
returns table (place bigint, result text, new_sequence bigint, new_due_at timestamptz, new_created_at timestamptz)
language plpgsql as $$
declare
    one record;
    queued jsonb;
    numbered uuid[];
begin
    if most_queued is not null then
        queued := queued_of_principals(
            (select json_agg(distinct submitted ->> 'principal') from json_array_elements(submissions) as submitted), most_queued
        );
    end if;
    for one in
        select *
        from rows from (
            json_to_recordset(submissions) as (
                id uuid, principal text, key text, pipeline text, mode text, asked text, fingerprint text, definition text,
                definition_text text, priority bigint, not_before timestamptz, audience text, labels text, scope text
            )
        ) with ordinality as submitted (
            id, principal, key, pipeline, mode, asked, fingerprint, definition, definition_text, priority, not_before, audience, labels,
            scope, nth
        )
        order by submitted.pipeline collate "C", submitted.principal collate "C", submitted.key collate "C", submitted.nth
    loop
        place := one.nth;
        perform pg_advisory_xact_lock_shared(hashtextextended('refrain/' || one.pipeline, 0));
        new_created_at := clock_timestamp();
        if (queued ->> one.principal)::bigint >= most_queued then
            result := case
                when exists (select runs_under_keys(json_build_array(json_build_array(one.principal, one.key)))) then 'key_taken'
                else 'too_many_queued'
            end;
            return next;
            continue;
        end if;
        if exists (
            select from runs r where r.state = 'queued' and r.sequence < 0 and r.due_at <= new_created_at and r.pipeline = one.pipeline
        ) then
            with due as (
                select r.id
                from runs r
                where r.state = 'queued' and r.sequence < 0 and r.due_at <= new_created_at and r.pipeline = one.pipeline
                order by r.due_at, r.sequence desc
                for update
            ), drawn as (
                select due.id, nextval('run_sequence') as sequence from due
            ), taken as (
                update runs r set sequence = drawn.sequence from drawn where r.id = drawn.id returning r.id
            )
            select array_agg(taken.id) into numbered from taken;
            insert into reservations (pipeline, partition, sequence, run_id)
            select r.pipeline, p.partition, r.sequence, r.id
            from runs r
            join run_partitions p on p.run_id = r.id
            where r.id = any (numbered) and r.mode = 'overwrite';
        end if;
        if not exists (select from definitions d where d.hash = one.definition) then
            insert into definitions (hash, pipeline, text, created_at)
            values (one.definition, one.pipeline, one.definition_text, new_created_at)
            on conflict (hash) do nothing;
        end if;
        if not exists (select from turns t where t.principal = one.principal) then
            insert into turns (principal) values (one.principal) on conflict (principal) do nothing;
        end if;
        new_sequence := nextval('run_sequence');
        new_due_at := new_created_at;
        if one.not_before > new_created_at then
            new_sequence := -new_sequence;
            new_due_at := one.not_before;
        end if;
        insert into runs (
            id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
            due_at, created_at, priority, not_before, audience
        ) values (
            one.id, one.principal, one.key, one.pipeline, one.mode, one.asked::json, one.fingerprint, one.definition, one.definition,
            'queued', new_sequence, new_due_at, new_created_at, one.priority, one.not_before, one.audience::json
        )
        on conflict (principal, idempotency_key) do nothing;
        if not found then
            result := 'key_taken';
            return next;
            continue;
        end if;
        if one.labels <> '{}' then
            insert into run_labels (run_id, name, text) select one.id, label.key, label.value from json_each_text(one.labels::json) label;
        end if;
        insert into run_partitions (run_id, partition) select one.id, json_array_elements_text(one.scope::json);
        if one.mode = 'overwrite' and new_sequence > 0 then
            insert into reservations (pipeline, partition, sequence, run_id)
            select one.pipeline, json_array_elements_text(one.scope::json), new_sequence, one.id;
        end if;
        if most_queued is not null then
            queued := jsonb_set(queued, array[one.principal], to_jsonb((queued ->> one.principal)::bigint + 1));
        end if;
        result := 'accepted';
        return next;
    end loop;
end
$$;
