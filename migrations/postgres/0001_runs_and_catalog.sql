-- Partition keys are ordered byte by byte (collation "C"), as in Rust and in the SQLite twin of this file.
-- Documents are json, not jsonb: jsonb refuses the \u0000 that a text total may hold.

create table meta (
    singleton boolean primary key default true check (singleton),
    database_id uuid not null,
    warehouse_id uuid
);

insert into meta (database_id) values (gen_random_uuid());

create table definitions (
    hash text primary key,
    pipeline text not null,
    text text not null,
    created_at timestamptz not null
);

create sequence run_sequence;

create table runs (
    id uuid primary key,
    principal text not null,
    idempotency_key text collate "C" not null,
    pipeline text collate "C" not null,
    mode text not null check (mode in ('overwrite', 'full')),
    asked json not null,
    fingerprint text not null,
    accepted_with text not null references definitions (hash),
    definition text not null references definitions (hash),
    state text not null check (state in ('queued', 'running', 'committing', 'succeeded', 'failed', 'cancelled')),
    sequence bigint not null unique,
    due_at timestamptz not null,
    cancel_requested boolean not null default false,
    claim_token uuid,
    lease_until timestamptz,
    decided_token uuid,
    attempts bigint not null default 0 check (attempts >= 0),
    lost_workers bigint not null default 0 check (lost_workers >= 0),
    failures_source bigint not null default 0 check (failures_source >= 0),
    failures_service bigint not null default 0 check (failures_service >= 0),
    failures_compute bigint not null default 0 check (failures_compute >= 0),
    progress json,
    error json,
    rows json,
    sources json not null default '[]',
    warnings json not null default '[]',
    created_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
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
);

create index runs_queued on runs (sequence) where state = 'queued';
create index runs_held on runs (lease_until) where state in ('running', 'committing');
create index runs_active on runs (pipeline, sequence) where state in ('queued', 'running', 'committing');
create index runs_active_full on runs (pipeline, sequence)
    where mode = 'full' and state in ('queued', 'running', 'committing');
create index runs_by_pipeline on runs (pipeline, id);
create index runs_by_state on runs (state, id);

create table run_partitions (
    run_id uuid not null references runs (id),
    partition text collate "C" not null,
    outcome text check (outcome in ('created', 'replaced', 'unchanged', 'cleared', 'empty')),
    file text,
    content json,
    previous json,
    primary key (run_id, partition),
    constraint present_partitions_have_content
        check (outcome is null or (outcome in ('created', 'replaced', 'unchanged')) = (content is not null)),
    constraint content_has_a_file check ((content is null) = (file is null)),
    constraint undecided_partitions_are_blank
        check (outcome is not null or (content is null and previous is null))
);

create index run_partitions_by_partition on run_partitions (partition, run_id);

-- The partitions that runs which have not ended wait for or hold; so a claim need not look at ended runs. A full run has
-- none here: it overlaps everything.
create table reservations (
    pipeline text collate "C" not null,
    partition text collate "C" not null,
    sequence bigint not null,
    run_id uuid not null references runs (id),
    primary key (pipeline, partition, sequence)
);

create index reservations_by_run on reservations (run_id);

create table attempts (
    run_id uuid not null references runs (id),
    number bigint not null check (number > 0),
    worker text not null,
    token uuid not null unique,
    started_at timestamptz not null,
    ended_at timestamptz,
    outcome text check (outcome in ('succeeded', 'failed', 'cancelled', 'lost', 'released', 'staging_lost')),
    error json,
    primary key (run_id, number),
    constraint ended_attempts_have_an_outcome check ((ended_at is null) = (outcome is null))
);

create unique index one_open_attempt_per_run on attempts (run_id) where ended_at is null;

create table tables (
    pipeline text collate "C" primary key,
    version bigint not null check (version > 0)
);

create table catalog (
    pipeline text collate "C" not null references tables (pipeline),
    partition text collate "C" not null,
    content json not null,
    run_id uuid not null references runs (id),
    committed_at timestamptz not null,
    definition text not null references definitions (hash),
    confirmed_by uuid references runs (id),
    confirmed_at timestamptz,
    primary key (pipeline, partition),
    constraint confirmations_have_a_time check ((confirmed_by is null) = (confirmed_at is null))
);

create table history (
    pipeline text collate "C" not null references tables (pipeline),
    partition text collate "C" not null,
    version bigint not null,
    run_id uuid not null references runs (id),
    committed_at timestamptz not null,
    outcome text not null check (outcome in ('created', 'replaced', 'unchanged', 'cleared')),
    content json,
    definition text not null references definitions (hash),
    primary key (pipeline, partition, version),
    constraint only_cleared_partitions_have_no_content check ((outcome = 'cleared') = (content is null))
);
