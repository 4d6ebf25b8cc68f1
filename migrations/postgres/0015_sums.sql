-- What each table sums up to as of a version, kept by the transactions that change the catalog. Where it is of another version than the table's,
-- a server of the version before, which does not know it, has changed the table since: then it is not to be believed.
create table sums (
    pipeline text collate "C" primary key references tables (pipeline),
    version bigint not null check (version > 0),
    sum json not null
);

-- Each submission asks by which definitions a table was written.
create index catalog_by_definition on catalog (pipeline, definition);
create index definitions_by_pipeline on definitions (pipeline, hash);

-- A submission that waits its turn and sets no conditions, in one round trip: what steps/submit.rs does statement by statement, in the
-- same order. Each statement in it sees what was committed before it, so those below the lock see every lower number.
create function accept_run(
    new_id uuid,
    new_principal text,
    new_key text,
    new_pipeline text,
    new_mode text,
    new_asked json,
    new_fingerprint text,
    new_definition text,
    definition_text text,
    new_priority bigint,
    new_not_before timestamptz,
    new_audience json,
    new_labels json,
    new_scope json,
    most_queued bigint,
    out result text,
    out new_sequence bigint,
    out new_due_at timestamptz,
    out new_created_at timestamptz
) language plpgsql as $$
declare
    numbered uuid[];
begin
    perform pg_advisory_xact_lock_shared(hashtextextended('refrain/' || new_pipeline, 0));
    new_created_at := clock_timestamp();
    if exists (select from runs where principal = new_principal and idempotency_key = new_key) then
        result := 'key_taken';
        return;
    end if;
    if most_queued is not null then
        if (
            select count(*)
            from (select from runs where state = 'queued' and principal = new_principal limit most_queued) as queued
        ) >= most_queued then
            result := 'too_many_queued';
            return;
        end if;
    end if;
    if exists (
        select from runs where state = 'queued' and sequence < 0 and due_at <= new_created_at and pipeline = new_pipeline
    ) then
        with due as (
            select id
            from runs
            where state = 'queued' and sequence < 0 and due_at <= new_created_at and pipeline = new_pipeline
            order by due_at, sequence desc
            for update
        ), drawn as (
            select id, nextval('run_sequence') as sequence from due
        ), taken as (
            update runs r set sequence = drawn.sequence from drawn where r.id = drawn.id returning r.id
        )
        select array_agg(id) into numbered from taken;
        insert into reservations (pipeline, partition, sequence, run_id)
        select r.pipeline, p.partition, r.sequence, r.id
        from runs r
        join run_partitions p on p.run_id = r.id
        where r.id = any (numbered) and r.mode = 'overwrite';
    end if;
    insert into definitions (hash, pipeline, text, created_at)
    values (new_definition, new_pipeline, definition_text, new_created_at)
    on conflict (hash) do nothing;
    if not exists (select from turns where principal = new_principal) then
        insert into turns (principal) values (new_principal) on conflict (principal) do nothing;
    end if;
    new_sequence := nextval('run_sequence');
    new_due_at := new_created_at;
    if new_not_before > new_created_at then
        new_sequence := -new_sequence;
        new_due_at := new_not_before;
    end if;
    insert into runs (
        id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
        due_at, created_at, priority, not_before, audience
    ) values (
        new_id, new_principal, new_key, new_pipeline, new_mode, new_asked, new_fingerprint, new_definition, new_definition,
        'queued', new_sequence, new_due_at, new_created_at, new_priority, new_not_before, new_audience
    )
    on conflict (principal, idempotency_key) do nothing;
    if not found then
        result := 'key_taken';
        return;
    end if;
    insert into run_labels (run_id, name, text) select new_id, key, value from json_each_text(new_labels);
    insert into run_partitions (run_id, partition) select new_id, json_array_elements_text(new_scope);
    if new_mode = 'overwrite' and new_sequence > 0 then
        insert into reservations (pipeline, partition, sequence, run_id)
        select new_pipeline, json_array_elements_text(new_scope), new_sequence, new_id;
    end if;
    result := 'accepted';
end
$$;
