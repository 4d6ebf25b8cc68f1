//! The statements in SQLite's dialect, in the order of their twins in Postgres's.
//!
//! `indexed by` keeps the planner from walking through all the runs that ended, which it cannot know are most, and `cross join`
//! from walking through a whole history where it is to look up the last changes, which are few.

use super::outbox::OUTBOX;
use crate::store::statements::Statements;

/// A listing of summaries, newest first, over the index of what narrows it.
macro_rules! list {
    ($narrowed:literal, $id:literal) => {
        concat!(
            r"
        select r.id, r.principal, r.pipeline, r.idempotency_key, r.mode, r.state, r.attempts, r.error, r.created_at, r.started_at, r.ended_at,
            r.priority, r.not_before,
            (select count(*) from run_partitions p where p.run_id = r.id) as partitions,
            (select json_group_object(l.name, l.text) from run_labels l where l.run_id = r.id) as labels
        from runs r ",
            $narrowed,
            r"
            and (?1 is null or r.pipeline = ?1)
            and (?2 is null or r.state = ?2)
            and (?3 is null or r.created_at > ?3)
            and (?4 is null or r.created_at < ?4)
            and (?7 is null or exists (
                select 1 from run_partitions named where named.run_id = r.id and named.partition = ?7
            ))
            and not exists (
                select 1
                from json_each(?8) as asked
                where asked.value ->> 1 is not (select l.text from run_labels l where l.run_id = r.id and l.name = asked.value ->> 0)
            )
            and (?9 is null or r.principal = ?9)
            and (?10 is null or r.idempotency_key = ?10)
            and (?5 is null or ",
            $id,
            " < ?5) order by ",
            $id,
            " desc limit +?6"
        )
    };
}

pub(in crate::store) const STATEMENTS: Statements = Statements {
    oldest_schema: r"select oldest_schema from meta",
    tokens: super::tokens::TOKENS,
    put_pulse: r"insert into pulse (id, at) values (?1, ?2)",
    remove_pulse: r"delete from pulse where id = ?1",
    identity: r"select database_id, warehouse_id from meta",
    bind_warehouse: r"update meta set warehouse_id = ?1 where warehouse_id is null",
    share_pipeline: r"
        -- The transaction holds the whole database.
        select ?1",
    lock_pipeline: r"
        -- The transaction holds the whole database.
        select ?1",
    try_lock_pipeline: r"
        -- The transaction holds the whole database.
        select ?1 is not null as locked",
    next_sequence: r"update run_sequence set last = last + 1 returning last as sequence",
    take_numbers: r"
        update runs set sequence = due.sequence
        from (
            select id, (select last from run_sequence) + row_number() over (order by due_at, sequence desc) as sequence
            from runs indexed by runs_unnumbered_of_pipeline
            where state = 'queued' and sequence < 0 and due_at <= ?2 and pipeline = ?1
        ) as due
        where runs.id = due.id
        returning id",
    drawn_numbers: r"update run_sequence set last = last + ?1",
    put_definition: r"
        insert into definitions (hash, pipeline, text, created_at) values (?1, ?2, ?3, ?4)
        on conflict (hash) do nothing",
    definition: r"select hash, pipeline, text from definitions where hash = ?1",
    insert_run: r"
        insert into runs (
            id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
            due_at, created_at, priority, not_before, audience
        ) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, 'queued', ?9, ?10, ?11, ?12, ?13, ?14)
        on conflict (principal, idempotency_key) do nothing",
    join_turns: r"insert into turns (principal) values (?1) on conflict (principal) do nothing",
    queued_runs: r"
        select count(*) as queued
        from (
            select 1
            from runs indexed by runs_queued_of_principal
            where state = 'queued' and principal = (select principal from runs where id = ?1)
            limit +?2
        ) as counted",
    insert_scope: r"
        insert into run_partitions (run_id, partition)
        select ?1, value from json_each(?2)",
    insert_labels: r"
        insert into run_labels (run_id, name, text)
        select ?1, key, value from json_each(?2)",
    reserve_scope: r"
        insert into reservations (pipeline, partition, sequence, run_id)
        select r.pipeline, p.partition, r.sequence, r.id
        from runs r
        join run_partitions p on p.run_id = r.id
        where r.id in (select value from json_each(?1)) and r.mode = 'overwrite' and r.sequence > 0
        order by r.sequence",
    asked: r"select asked from runs where id = ?1",
    overlapping_runs: r"
        select o.id
        from runs r
        join runs o indexed by runs_active on o.pipeline = r.pipeline
        where r.id = ?1
            and o.id <> r.id
            and o.state in ('queued', 'running', 'committing')
            and o.sequence > 0
            and (r.mode = 'full' or o.mode = 'full' or o.id in (
                select theirs.run_id
                from reservations mine
                join reservations theirs on theirs.pipeline = mine.pipeline and theirs.partition = mine.partition
                where mine.run_id = ?1
            ))
        order by o.sequence
        limit +?2",
    overlapping_scope: r"
        select o.id, o.state
        from runs o indexed by runs_active
        where o.pipeline = ?1
            and o.state in ('queued', 'running', 'committing')
            and (o.sequence > 0 or o.due_at <= ?4)
            and (?2 is null or o.mode = 'full' or (
                select true
                from run_partitions theirs
                where theirs.run_id = o.id and theirs.partition in (select value from json_each(?2))
                limit 1
            ))
        order by o.sequence < 0, case when o.sequence > 0 then o.sequence end, o.due_at, o.sequence desc
        limit +?3",
    known_keys: super::whole::KNOWN_KEYS,
    lock_run: r"
        select id, pipeline, mode, definition, state, sequence, due_at, cancel_requested, claim_token, lease_until, decided_token,
            attempts, lost_workers, failures_source, failures_service, failures_compute, progress, error, started_at, ended_at
        from runs
        where id = ?1",
    save_run: r"
        update runs set
            definition = ?2, state = ?3, sequence = ?4, due_at = ?5, cancel_requested = ?6, claim_token = ?7, lease_until = ?8,
            decided_token = ?9, attempts = ?10, lost_workers = ?11, failures_source = ?12, failures_service = ?13,
            failures_compute = ?14, progress = ?15, error = ?16, started_at = ?17, ended_at = ?18
        where id = ?1",
    claims: super::claims::CLAIMS,
    fail_unreadable: r"
        update runs set
            state = 'failed', cancel_requested = false, claim_token = null, lease_until = null, progress = null,
            error = ?3, ended_at = ?2
        where id = ?1 and state in ('queued', 'running')
        returning pipeline",
    put_off_unreadable: r"
        update runs set claim_token = null, lease_until = ?2, due_at = ?2
        where id = ?1 and state = 'committing'",
    insert_attempt: r"insert into attempts (run_id, number, worker, token, started_at) values (?1, ?2, ?3, ?4, ?5)",
    end_open_attempt: r"
        update attempts set ended_at = ?2, outcome = ?3, error = ?4
        where run_id = ?1 and ended_at is null
        returning number",
    attempt_outcome: r"select outcome from attempts where run_id = ?1 and token = ?2",
    publish_failures: r"
        select count(*) as failures
        from attempts
        where run_id = ?1 and outcome = 'failed' and number >= (select number from attempts where token = ?2)",
    scope_size: r"select count(*) as partitions, count(outcome) as decided from run_partitions where run_id = ?1",
    decide_scope: r"
        update run_partitions set
            outcome = d.value ->> 'outcome', file = d.value ->> 'file', content = d.value ->> 'content',
            previous = d.value ->> 'previous', foreign_files = d.value ->> 'foreign_files',
            base = d.value ->> 'base'
        from json_each(?2) as d
        where run_id = ?1 and partition = d.value ->> 'partition'",
    insert_decided: r"
        insert into run_partitions (run_id, partition, outcome, file, content, previous, foreign_files, base)
        select ?1, d.value ->> 'partition', d.value ->> 'outcome', d.value ->> 'file', d.value ->> 'content', d.value ->> 'previous',
            d.value ->> 'foreign_files', d.value ->> 'base'
        from json_each(?2) as d",
    undecide_scope: r"update run_partitions set outcome = null, file = null, content = null, previous = null, foreign_files = 'fail', base = null where run_id = ?1",
    delete_scope: r"delete from run_partitions where run_id = ?1",
    save_report: r"update runs set rows = ?2, sources = ?3, warnings = ?4, manifest = ?5 where id = ?1",
    decided_manifest: r"select manifest from runs where id = ?1",
    save_quarantine: r"update runs set quarantine = ?2 where id = ?1",
    raise_version: r"
        insert into tables (pipeline, version) values (?1, ?2)
        on conflict (pipeline) do update set version = tables.version + excluded.version
        returning version",
    add_history: r"
        insert into history (pipeline, partition, version, run_id, committed_at, outcome, content, definition)
        select ?2, p.partition, ?5, p.run_id, ?6, p.outcome, p.content, ?4
        from run_partitions p
        left join catalog c on c.pipeline = ?2 and c.partition = p.partition
        where p.run_id = ?1
            and (p.outcome in ('created', 'replaced', 'cleared') or (p.outcome = 'unchanged' and (c.definition <> ?4 or c.content <> p.content)))
            and (?3 is null or p.partition in (select value from json_each(?3)))",
    put_entries: r"
        insert into catalog (pipeline, partition, content, run_id, committed_at, definition)
        select ?2, p.partition, p.content, p.run_id, ?5, ?4
        from run_partitions p
        where p.run_id = ?1 and p.outcome in ('created', 'replaced') and (?3 is null or p.partition in (select value from json_each(?3)))
        on conflict (pipeline, partition) do update set
            content = excluded.content, run_id = excluded.run_id, committed_at = excluded.committed_at,
            definition = excluded.definition, confirmed_by = null, confirmed_at = null",
    confirm_entries: r"
        update catalog set content = p.content, definition = ?4, confirmed_by = ?1, confirmed_at = ?5
        from run_partitions p
        where catalog.pipeline = ?2
            and catalog.partition = p.partition
            and p.run_id = ?1
            and p.outcome = 'unchanged'
            and (?3 is null or p.partition in (select value from json_each(?3)))",
    delete_entries: r"
        delete from catalog
        where pipeline = ?2 and partition in (
            select p.partition from run_partitions p where p.run_id = ?1 and p.outcome = 'cleared' and (?3 is null or p.partition in (select value from json_each(?3)))
        )",
    glances: r"
        select id, state, attempts, sequence, cancel_requested, progress, error, due_at
        from runs
        where id in (select value from json_each(?1))",
    runs: super::whole::RUNS,
    ended_run: r"select pipeline, state, ended_at from runs where id = ?1",
    run_partitions: r"select partition, outcome, file, content, previous, foreign_files, base from run_partitions where run_id = ?1 order by partition",
    list: list!("where true", "r.id"),
    list_of_pipeline: list!("where r.pipeline = ?1", "r.id"),
    list_in_state: list!("where r.state = ?2", "r.id"),
    list_of_partition: list!(
        "join run_partitions named on named.run_id = r.id where named.partition = ?7",
        "named.run_id"
    ),
    list_of_key: list!("where r.principal = ?9 and r.idempotency_key = ?10", "r.id"),
    list_of_principal: list!("where r.principal = ?9", "r.id"),
    list_of_label: list!(
        "join run_labels labelled on labelled.run_id = r.id where labelled.name = ?8 ->> '$[0][0]' and labelled.text = ?8 ->> '$[0][1]'",
        "labelled.run_id"
    ),
    version: r"select version, history_from from tables where pipeline = ?1",
    contents: r"
        select content
        from catalog
        where pipeline = ?1 and (?2 is null or partition >= ?2) and (?3 is null or partition < ?3)",
    page: r"
        select partition, content, run_id, committed_at, definition, confirmed_by, confirmed_at
        from catalog
        where pipeline = ?1
            and (?2 is null or partition >= ?2)
            and (?3 is null or partition < ?3)
            and (?4 is null or partition > ?4)
        order by partition
        limit +?5",
    contents_as_of: r"
        select h.content
        from (
            select partition, max(version) as version
            from history
            where pipeline = ?1 and (?2 is null or partition >= ?2) and (?3 is null or partition < ?3) and version <= ?4
            group by partition
        ) last
        cross join history h on h.pipeline = ?1 and h.partition = last.partition and h.version = last.version
        where h.outcome <> 'cleared'",
    page_as_of: r"
        -- By the partitions in their order, so that nothing is sorted; its twin groups, which is as good there.
        select h.partition, h.content, w.run_id, w.committed_at, h.definition,
            null as confirmed_by, null as confirmed_at
        from history h
        cross join history w on w.pipeline = ?1 and w.partition = h.partition and w.version = (
            select max(written.version)
            from history written
            where written.pipeline = ?1
                and written.partition = h.partition
                and written.version <= h.version
                and written.outcome in ('created', 'replaced')
        )
        where h.pipeline = ?1
            and (?2 is null or h.partition >= ?2)
            and (?3 is null or h.partition < ?3)
            and (?4 is null or h.partition > ?4)
            and h.version = (
                select max(last.version)
                from history last
                where last.pipeline = ?1 and last.partition = h.partition and last.version <= ?6
            )
            and h.outcome <> 'cleared'
        order by h.partition
        limit +?5",
    version_of_run: r"select max(version) as version from history where pipeline = ?1 and run_id = ?2",
    version_at: r"select max(version) as version from history where pipeline = ?1 and committed_at <= ?2",
    entries: r"
        select partition, content, run_id, committed_at, definition, confirmed_by, confirmed_at
        from catalog
        where pipeline = ?1 and partition in (select value from json_each(?2))",
    table_entries: r"
        select partition, content, run_id, committed_at, definition, confirmed_by, confirmed_at
        from catalog
        where pipeline = ?1",
    made_by: r"
        select partition, definition
        from catalog
        where pipeline = ?1 and partition in (select value from json_each(?2))",
    table_definitions: r"
        select d.hash, d.pipeline, d.text
        from definitions d
        where d.pipeline = ?1 and exists (select 1 from catalog c where c.pipeline = ?1 and c.definition = d.hash)
        order by d.hash",
    definitions: r"
        select hash, pipeline, text
        from definitions
        where hash in (select value from json_each(?1))
        order by hash",
    history: r"
        select h.version, h.run_id, r.principal, h.committed_at, h.outcome, h.content, h.definition,
            (select json_group_object(l.name, l.text) from run_labels l where l.run_id = h.run_id) as labels
        from history h
        join runs r on r.id = h.run_id
        where h.pipeline = ?1 and h.partition = ?2 and (?3 is null or h.version < ?3)
        order by h.version desc
        limit +?4",
    leftover_runs: r"
        select id, state, claim_token, decided_token, quarantine
        from runs
        where id in (select value from json_each(?1))",
    queue_depth: r"
        select
            count(*) filter (where state = 'queued') as queued,
            count(*) filter (where state = 'queued' and not_before > ?1) as scheduled,
            count(*) filter (where state = 'running') as running,
            count(*) filter (where state = 'committing') as committing,
            min(due_at) filter (where state = 'queued' and due_at <= ?1) as oldest_due
        from runs
        where state in ('queued', 'running', 'committing')",
    outbox: OUTBOX,
    pipeline_depths: r"
        select
            known.pipeline,
            coalesce(due.runs, 0) as due,
            due.oldest as oldest_due,
            (
                select max(ended_at) from runs where runs.pipeline = known.pipeline and state = 'succeeded'
            ) as last_success
        from (select distinct pipeline from definitions) as known
        left join (
            select pipeline, count(*) as runs, min(due_at) as oldest from runs
            where state = 'queued' and due_at <= ?1
            group by pipeline
        ) as due on due.pipeline = known.pipeline
        order by known.pipeline",
    sums: super::sums::SUMS,
    prune: super::prune::STATEMENTS,
};
