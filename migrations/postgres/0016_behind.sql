-- A queued run stands behind the last run before it that overlaps it and has not ended, by its number: so a claim looks at those alone that are
-- behind nobody. Nothing is claimed because it is behind nobody here, so one that should be behind somebody costs a look and breaks no promise. One that is
-- behind a run that has ended would never start: so it is the database that lets it go, whatever ends the run.
alter table runs add column behind bigint;

create index runs_in_front on runs (principal, priority desc, sequence) where state = 'queued' and sequence > 0 and behind is null;
create index runs_behind on runs (behind) where behind is not null;

-- Of each queued run that has its number: the number of the last run before it that overlaps it and has not ended. The condition is put so that no
-- index answers it: of a run whose id is given the plan that is kept, made while few runs were queued, would go through all that are.
create view ahead as
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
        select max(o.sequence)
        from runs o
        where o.pipeline = r.pipeline
            and o.mode = 'full'
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and o.sequence < r.sequence
    ),
    case when r.mode = 'full' then (
        select max(o.sequence)
        from runs o
        where o.pipeline = r.pipeline
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and o.sequence < r.sequence
    ) end
) as sequence
from runs r
where case when r.state = 'queued' and r.sequence > 0 then true end;

-- Queued runs stand behind whom they are to, but not behind a run that another transaction has in hand: it may be about to end it, and will not know of
-- them. Until this transaction ends, nobody ends those that they stand behind. Planned once, for every part of it is a look at an index.
create function stand_behind(queued uuid[]) returns void language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' as $$
declare
    one record;
begin
    for one in select id, sequence from ahead where id = any (queued) loop
        perform from runs where sequence = one.sequence and state in ('queued', 'running', 'committing') for share skip locked;
        if not found then
            one.sequence := null;
        end if;
        update runs set behind = one.sequence where id = one.id and behind is distinct from one.sequence;
    end loop;
end
$$;

create function reserved_runs_stand_behind() returns trigger language plpgsql as $$
begin
    perform stand_behind(array(select distinct run_id from reserved));
    return null;
end
$$;

create trigger reserved_runs_stand_behind after insert on reservations
referencing new table as reserved for each statement execute function reserved_runs_stand_behind();

-- A full run has no reservations.
create function full_runs_stand_behind() returns trigger language plpgsql as $$
begin
    perform stand_behind(array[new.id]);
    return null;
end
$$;

create trigger full_runs_stand_behind after insert on runs
for each row when (new.mode = 'full' and new.state = 'queued' and new.sequence > 0) execute function full_runs_stand_behind();

create trigger full_runs_stand_behind_anew after update of sequence on runs
for each row when (new.mode = 'full' and new.state = 'queued' and new.sequence > 0 and new.sequence <> old.sequence)
execute function full_runs_stand_behind();

-- A run that ends lets go of its partitions, and of those that stand behind it. They are found by a statement of their own, which sees all that
-- stood there before this transaction had the run in hand.
create function ended_runs_let_go() returns trigger language plpgsql
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = 'off' as $$
begin
    delete from reservations where run_id = old.id;
    update runs set behind = null where id = old.id and behind is not null;
    perform stand_behind(array(select id from runs where behind = old.sequence));
    return null;
end
$$;

create trigger ended_runs_let_go after update of state on runs
for each row when (old.state in ('queued', 'running', 'committing') and new.state not in ('queued', 'running', 'committing'))
execute function ended_runs_let_go();

create trigger deleted_runs_let_go after delete on runs
for each row when (old.state in ('queued', 'running', 'committing')) execute function ended_runs_let_go();

update runs set behind = ahead.sequence from ahead where ahead.id = runs.id and ahead.sequence is not null;
