-- Who is told of a run, settled when it is accepted; null for nobody.
alter table runs add column audience json;

-- What is to be told of runs, written in the transaction in which it happens. Whoever delivers a message has it in hand, under a
-- token, until it is due again.
create table outbox (
    position bigint generated always as identity primary key,
    id uuid not null unique,
    run_id uuid not null references runs (id) on delete cascade,
    kind text not null check (kind in ('webhook', 'lineage')),
    url text,
    host text not null,
    event text not null,
    notice json not null,
    created_at timestamptz not null,
    state text not null default 'pending' check (state in ('pending', 'delivered', 'gave_up')),
    due_at timestamptz not null,
    token uuid,
    tries bigint not null default 0 check (tries >= 0),
    last_status bigint,
    last_error text,
    last_try_at timestamptz,
    constraint webhooks_have_a_url check ((kind = 'webhook') = (url is not null)),
    constraint only_pending_messages_are_in_hand check (state = 'pending' or token is null)
);

create index outbox_due on outbox (due_at) where state = 'pending';
create index outbox_by_run on outbox (run_id, position);
create index outbox_given_up on outbox (kind) where state = 'gave_up';
