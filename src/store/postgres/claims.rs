//! The statements of claims in Postgres's dialect, in the order of their twins in SQLite's.

use crate::store::statements::ClaimStatements;

/// The text of [`ClaimStatements::next_run`], which the look has too.
macro_rules! next_run {
    () => {
        r"
            select chosen.id, chosen.pipeline
            from (select principal, taken from turns order by taken, principal) t
            cross join lateral (
                select r.id, r.pipeline
                from runs r
                where r.principal = t.principal
                    and r.state = 'queued'
                    and r.sequence > 0
                    and r.behind is null
                    and r.due_at <= coalesce($1::timestamptz, statement_timestamp())
                    and ($2::text is null or r.pipeline = $2)
                    and r.pipeline not in (select json_array_elements_text($3::json))
                    and not exists (
                        select 1
                        from runs o
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
                        from runs o
                        where o.pipeline = r.pipeline
                            and o.mode = 'full'
                            and o.state in ('queued', 'running', 'committing')
                            and o.state = 'queued'
                            and o.sequence > 0
                            and o.sequence < r.sequence
                    )
                    -- Looked up for each: a join may compare each with all that are queued.
                    and (
                        select o.sequence
                        from runs o
                        where o.pipeline = r.pipeline
                            and o.state in ('queued', 'running', 'committing')
                            and o.state = 'queued'
                            and o.sequence > 0
                            and o.sequence < r.sequence
                            and (r.mode = 'full' or (o.due_at <= coalesce($1::timestamptz, statement_timestamp()) and o.definition <> r.definition))
                        limit 1
                    ) is null
                order by r.priority desc, r.sequence
                limit 1
            ) chosen
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
                from runs
                where state = 'running' and state in ('running', 'committing') and lease_until <= coalesce($1::timestamptz, statement_timestamp())
            ) as lost,
            exists (
                select 1
                from runs
                where state = 'committing' and state in ('running', 'committing') and lease_until <= coalesce($1::timestamptz, statement_timestamp())
            ) as unfinished,
            (
                select pipeline
                from runs
                where state = 'queued' and sequence < 0 and due_at <= coalesce($1::timestamptz, statement_timestamp()) and pipeline not in (select json_array_elements_text($3::json))
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
        from runs
        where state = 'running' and state in ('running', 'committing') and lease_until <= $1
        order by sequence
        limit $2
        for update skip locked",
    unfinished_run: r"
        select id
        from runs
        where state = 'committing' and state in ('running', 'committing') and lease_until <= $1
        order by sequence
        limit 1
        for update skip locked",
    next_run: next_run!(),
    take_turn: r"
        update turns set taken = (select max(taken) + 1 from turns)
        where principal = (
            select mine.principal
            from turns mine
            where mine.principal = (select principal from runs where id = $1)
            for update skip locked
        )",
    free_stranded: r"
        update runs set behind = null
        where behind is not null and state = 'queued' and not exists (
            select 1 from runs o where o.sequence = runs.behind and case when o.state in ('queued', 'running', 'committing') then true end
        )",
};
