-- A queued run stands behind the last run before it that overlaps it and has not ended, by its number: so a claim looks at those alone that are
-- behind nobody. Nothing is claimed because it is behind nobody here, so one that should be behind somebody costs a look and breaks no promise. One that is
-- behind a run that has ended would never start: so it is the database that lets it go, whatever ends the run.
alter table runs add column behind integer;

create index runs_in_front on runs (principal, priority desc, sequence) where state = 'queued' and sequence > 0 and behind is null;
create index runs_behind on runs (behind) where behind is not null;

-- Of each queued run that has its number: the number of the last run before it that overlaps it and has not ended.
create view ahead as
select r.id, nullif(max(
    coalesce((
        select max((
            select max(theirs.sequence)
            from reservations theirs
            where theirs.pipeline = mine.pipeline and theirs.partition = mine.partition and theirs.sequence < mine.sequence
        ))
        from reservations mine
        where mine.run_id = r.id
    ), 0),
    coalesce((
        select max(o.sequence)
        from runs o indexed by runs_active_full
        where o.pipeline = r.pipeline
            and o.mode = 'full'
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and o.sequence < r.sequence
    ), 0),
    coalesce(case when r.mode = 'full' then (
        select max(o.sequence)
        from runs o indexed by runs_active
        where o.pipeline = r.pipeline
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and o.sequence < r.sequence
    ) end, 0)
), 0) as sequence
from runs r
where r.state = 'queued' and r.sequence > 0;

-- Row by row, so each partition moves its run behind whoever had it last, unless it is behind a later one.
create trigger reserved_runs_stand_behind after insert on reservations
begin
    update runs set behind = nearest.sequence
    from (
        select max(last.sequence) as sequence
        from (
            select max(theirs.sequence) as sequence
            from reservations theirs
            where theirs.pipeline = new.pipeline and theirs.partition = new.partition and theirs.sequence < new.sequence
            union all
            select max(o.sequence)
            from runs o indexed by runs_active_full
            where o.pipeline = new.pipeline
                and o.mode = 'full'
                and o.state in ('queued', 'running', 'committing')
                and o.sequence > 0
                and o.sequence < new.sequence
        ) as last
    ) as nearest
    where runs.id = new.run_id and runs.state = 'queued' and nearest.sequence > coalesce(runs.behind, 0);
end;

-- A full run has no reservations.
create trigger full_runs_stand_behind after insert on runs
when new.mode = 'full' and new.state = 'queued' and new.sequence > 0
begin
    update runs set behind = (select ahead.sequence from ahead where ahead.id = new.id) where id = new.id;
end;

create trigger full_runs_stand_behind_anew after update of sequence on runs
when new.mode = 'full' and new.state = 'queued' and new.sequence > 0 and new.sequence <> old.sequence
begin
    update runs set behind = (select ahead.sequence from ahead where ahead.id = new.id) where id = new.id;
end;

-- A run that ends lets go of its partitions, and of those that stand behind it.
create trigger ended_runs_let_go after update of state on runs
when old.state in ('queued', 'running', 'committing') and new.state not in ('queued', 'running', 'committing')
begin
    delete from reservations where run_id = old.id;
    update runs set behind = null where id = old.id and behind is not null;
    update runs set behind = (select ahead.sequence from ahead where ahead.id = runs.id) where behind = old.sequence;
end;

create trigger deleted_runs_let_go after delete on runs
when old.state in ('queued', 'running', 'committing')
begin
    update runs set behind = (select ahead.sequence from ahead where ahead.id = runs.id) where behind = old.sequence;
end;

update runs set behind = (select ahead.sequence from ahead where ahead.id = runs.id) where state = 'queued' and sequence > 0;
