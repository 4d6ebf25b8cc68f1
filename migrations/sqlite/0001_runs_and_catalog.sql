-- Times are microseconds since 1970-01-01T00:00:00Z, ids are lower-case hyphenated text, documents are JSON text.

create table meta (
    singleton integer primary key default 1 check (singleton = 1),
    database_id text not null,
    warehouse_id text
) strict;

insert into meta (database_id)
select lower(
    substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3) || '-'
    || substr('89AB', 1 + (unicode(substr(h, 17, 1)) % 4), 1) || substr(h, 18, 3) || '-' || substr(h, 21, 12)
)
from (select hex(randomblob(16)) as h);

create table definitions (
    hash text not null primary key,
    pipeline text not null,
    text text not null,
    created_at integer not null
) strict;

create table run_sequence (
    singleton integer primary key default 1 check (singleton = 1),
    last integer not null
) strict;

insert into run_sequence (last) values (0);

create table runs (
    id text not null primary key,
    principal text not null,
    idempotency_key text not null,
    pipeline text not null,
    mode text not null check (mode in ('overwrite', 'full')),
    asked text not null,
    fingerprint text not null,
    accepted_with text not null references definitions (hash),
    definition text not null references definitions (hash),
    state text not null check (state in ('queued', 'running', 'committing', 'succeeded', 'failed', 'cancelled')),
    sequence integer not null unique,
    due_at integer not null,
    cancel_requested integer not null default 0 check (cancel_requested in (0, 1)),
    claim_token text,
    lease_until integer,
    decided_token text,
    attempts integer not null default 0 check (attempts >= 0),
    lost_workers integer not null default 0 check (lost_workers >= 0),
    failures_source integer not null default 0 check (failures_source >= 0),
    failures_service integer not null default 0 check (failures_service >= 0),
    failures_compute integer not null default 0 check (failures_compute >= 0),
    progress text,
    error text,
    rows text,
    sources text not null default '[]',
    warnings text not null default '[]',
    created_at integer not null,
    started_at integer,
    ended_at integer,
    constraint one_run_per_key unique (principal, idempotency_key),
    constraint held_runs_have_a_lease check ((state in ('running', 'committing')) = (lease_until is not null)),
    constraint running_runs_have_a_token check (state <> 'running' or claim_token is not null),
    constraint only_held_runs_have_a_token check (state in ('running', 'committing') or claim_token is null),
    constraint decided_runs_have_their_token check ((state in ('committing', 'succeeded')) = (decided_token is not null)),
    constraint decided_runs_have_a_report check (state not in ('committing', 'succeeded') or rows is not null),
    constraint ended_runs_have_an_end check ((state in ('succeeded', 'failed', 'cancelled')) = (ended_at is not null)),
    constraint tried_runs_have_a_start check ((attempts > 0) = (started_at is not null)),
    constraint held_runs_were_tried check (state not in ('running', 'committing', 'succeeded') or attempts > 0),
    constraint only_running_runs_are_asked_to_stop check (state = 'running' or not cancel_requested)
) strict;

create index runs_queued on runs (sequence) where state = 'queued';
create index runs_held on runs (lease_until) where state in ('running', 'committing');
create index runs_active on runs (pipeline, sequence) where state in ('queued', 'running', 'committing');
create index runs_active_full on runs (pipeline, sequence)
    where mode = 'full' and state in ('queued', 'running', 'committing');
create index runs_by_pipeline on runs (pipeline, id);
create index runs_by_state on runs (state, id);

create table run_partitions (
    run_id text not null references runs (id),
    partition text not null,
    outcome text check (outcome in ('created', 'replaced', 'unchanged', 'cleared', 'empty')),
    file text,
    content text,
    previous text,
    primary key (run_id, partition),
    constraint present_partitions_have_content
        check (outcome is null or (outcome in ('created', 'replaced', 'unchanged')) = (content is not null)),
    constraint content_has_a_file check ((content is null) = (file is null)),
    constraint undecided_partitions_are_blank
        check (outcome is not null or (content is null and previous is null))
) strict;

create index run_partitions_by_partition on run_partitions (partition, run_id);

-- The partitions that runs which have not ended wait for or hold; so a claim need not look at ended runs. A full run has
-- none here: it overlaps everything.
create table reservations (
    pipeline text not null,
    partition text not null,
    sequence integer not null,
    run_id text not null references runs (id),
    primary key (pipeline, partition, sequence)
) strict;

create index reservations_by_run on reservations (run_id);

create table attempts (
    run_id text not null references runs (id),
    number integer not null check (number > 0),
    worker text not null,
    token text not null unique,
    started_at integer not null,
    ended_at integer,
    outcome text check (outcome in ('succeeded', 'failed', 'cancelled', 'lost', 'released', 'staging_lost')),
    error text,
    primary key (run_id, number),
    constraint ended_attempts_have_an_outcome check ((ended_at is null) = (outcome is null))
) strict;

create unique index one_open_attempt_per_run on attempts (run_id) where ended_at is null;

create table tables (
    pipeline text not null primary key,
    version integer not null check (version > 0)
) strict;

create table catalog (
    pipeline text not null references tables (pipeline),
    partition text not null,
    content text not null,
    run_id text not null references runs (id),
    committed_at integer not null,
    definition text not null references definitions (hash),
    confirmed_by text references runs (id),
    confirmed_at integer,
    primary key (pipeline, partition),
    constraint confirmations_have_a_time check ((confirmed_by is null) = (confirmed_at is null))
) strict;

create table history (
    pipeline text not null references tables (pipeline),
    partition text not null,
    version integer not null,
    run_id text not null references runs (id),
    committed_at integer not null,
    outcome text not null check (outcome in ('created', 'replaced', 'unchanged', 'cleared')),
    content text,
    definition text not null references definitions (hash),
    primary key (pipeline, partition, version),
    constraint only_cleared_partitions_have_no_content check ((outcome = 'cleared') = (content is null))
) strict;
