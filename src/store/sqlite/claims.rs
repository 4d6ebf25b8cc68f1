//! The statements of claims in SQLite's dialect, in the order of their twins in Postgres's.
//!
//! `indexed by` keeps the planner from walking through all the runs that ended, which it cannot know are most.

use crate::store::statements::ClaimStatements;

/// The text of [`ClaimStatements::next_run`], which the look has too.
macro_rules! next_run {
    () => {
        r"
            select chosen.id, chosen.pipeline
            from turns t
            cross join runs chosen on chosen.id = (
                select r.id
                from runs r indexed by runs_in_front
                where r.principal = t.principal
                    and r.state = 'queued'
                    and r.sequence > 0
                    and r.behind is null
                    and r.due_at <= ?1
                    and (?2 is null or r.pipeline = ?2)
                    and r.pipeline not in (select value from json_each(?3))
                    and not exists (
                        select 1
                        from runs o indexed by runs_held
                        where o.state in ('running', 'committing')
                            and o.pipeline = r.pipeline
                            and (o.mode = 'full' or r.mode = 'full' or o.definition <> r.definition)
                    )
                    and not exists (
                        select 1
                        from reservations mine
                        where mine.run_id = r.id
                            and mine.sequence > (
                                select min(theirs.sequence)
                                from reservations theirs
                                where theirs.pipeline = mine.pipeline and theirs.partition = mine.partition
                            )
                    )
                    and not exists (
                        select 1
                        from runs o indexed by runs_active_full
                        where o.pipeline = r.pipeline
                            and o.mode = 'full'
                            and o.state in ('queued', 'running', 'committing')
                            and o.state = 'queued'
                            and o.sequence > 0
                            and o.sequence < r.sequence
                    )
                    and not exists (
                        select 1
                        from runs o indexed by runs_active
                        where o.pipeline = r.pipeline
                            and o.state in ('queued', 'running', 'committing')
                            and o.state = 'queued'
                            and o.sequence > 0
                            and o.sequence < r.sequence
                            and (r.mode = 'full' or (o.due_at <= ?1 and o.definition <> r.definition))
                    )
                order by r.priority desc, r.sequence
                limit 1
            )
            order by t.taken, t.principal
            limit 1"
    };
}

pub(super) const CLAIMS: ClaimStatements = ClaimStatements {
    look: concat!(
        r"
        select
            (select oldest_schema from meta) as oldest_schema,
            exists (
                select 1
                from runs indexed by runs_held
                where state = 'running' and state in ('running', 'committing') and lease_until <= ?1
            ) as lost,
            exists (
                select 1
                from runs indexed by runs_held
                where state = 'committing' and state in ('running', 'committing') and lease_until <= ?1
            ) as unfinished,
            (
                select pipeline
                from runs indexed by runs_unnumbered
                where state = 'queued' and sequence < 0 and due_at <= ?1 and pipeline not in (select value from json_each(?3))
                order by due_at
                limit 1
            ) as due,
            (
                select next.pipeline
                from (",
        next_run!(),
        r") as next
            ) as next"
    ),
    lost_runs: r"
        select id
        from runs indexed by runs_held
        where state = 'running' and state in ('running', 'committing') and lease_until <= ?1
        order by sequence
        limit +?2",
    unfinished_run: r"
        select id
        from runs indexed by runs_held
        where state = 'committing' and state in ('running', 'committing') and lease_until <= ?1
        order by sequence
        limit 1",
    next_run: next_run!(),
    take_turn: r"
        update turns set taken = (select max(taken) + 1 from turns)
        where principal = (select principal from runs where id = ?1)",
    free_stranded: r"
        update runs set behind = null
        where behind is not null and state = 'queued' and not exists (
            select 1 from runs o where o.sequence = runs.behind and o.state in ('queued', 'running', 'committing')
        )",
};
