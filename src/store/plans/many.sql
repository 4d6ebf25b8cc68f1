-- Many runs and many entries of the catalog, in the SQL that both databases read. `numbers` has a row for each run: its
-- number, id, time, state and a document. The last of them wait, a few are held, one in ten of those that wait has no
-- number yet.

insert into definitions (hash, pipeline, text, created_at)
select 'definition-' || n, 'pipeline-' || (n % 20), 'name = "zone_hour"
description = "Trips and revenue per pickup zone and hour"

[source]
format = "parquet"
path = "data/yellow_tripdata_%Y-%m.parquet"
neighbours = 1

[source.columns]
tpep_pickup_datetime = "datetime"
PULocationID = "int32"
total_amount = "decimal(18,2)"

[partition]
pickup_month = { month_of = "tpep_pickup_datetime" }

[dimensions]
zone = "PULocationID"
pickup_hour = { truncate = "tpep_pickup_datetime", to = "hour" }

[measures]
trips = "count(*)"
revenue = "sum(total_amount)"
', at
from numbers where n % 2 = 0 or n < 1000;

insert into runs (
    id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence, due_at,
    claim_token, lease_until, decided_token, attempts, rows, created_at, started_at, ended_at, priority
)
select id, 'principal-' || (n % 7), 'key-' || n, 'pipeline-' || (n % 20), case when n % 1001 = 0 then 'full' else 'overwrite' end,
    document, 'fingerprint', 'definition-' || (n / 100000 * 20 + n % 20), 'definition-' || (n / 100000 * 20 + n % 20), state,
    case when state = 'queued' and n % 10 = 0 then -n else n end, at,
    case when state in ('running', 'committing') then id end,
    case when state in ('running', 'committing') then at end,
    case when state in ('committing', 'succeeded') then id end,
    case when state = 'queued' then 0 else 1 end,
    case when state in ('committing', 'succeeded') then document end, at,
    case when state <> 'queued' then at end,
    case when state in ('succeeded', 'failed', 'cancelled') then at end,
    case when state = 'queued' then n % 3 else 0 end
from numbers;

insert into run_partitions (run_id, partition, outcome, file, content)
select id, 'at=' || (n / 20),
    case when state = 'succeeded' then 'replaced' end,
    case when state = 'succeeded' then 'part-0.parquet' end,
    case when state = 'succeeded' then document end
from numbers;

insert into reservations (pipeline, partition, sequence, run_id)
select r.pipeline, p.partition, r.sequence, r.id
from runs r join run_partitions p on p.run_id = r.id
where r.state in ('queued', 'running', 'committing') and r.mode = 'overwrite' and r.sequence > 0;

-- Postgres's triggers are off.
update runs set behind = (select ahead.sequence from ahead where ahead.id = runs.id) where state = 'queued' and sequence > 0;

insert into attempts (run_id, number, worker, token, started_at, ended_at, outcome)
select id, 1, 'worker-' || (n % 5), id, at,
    case when state in ('succeeded', 'failed', 'cancelled') then at end,
    case when state in ('succeeded', 'failed', 'cancelled') then state end
from numbers
where state <> 'queued';

insert into run_labels (run_id, name, text) select id, 'team', 'team-' || (n % 500) from numbers;

insert into tables (pipeline, version) select 'pipeline-' || (n % 20), (select max(n) from numbers) from numbers where n <= 20;

insert into catalog (pipeline, partition, content, run_id, committed_at, definition)
select 'pipeline-' || (n % 20), 'at=' || (n / 20), document, id, at, 'definition-' || (n / 100000 * 20 + n % 20) from numbers;

insert into history (pipeline, partition, version, run_id, committed_at, outcome, content, definition)
select 'pipeline-' || (n % 20), 'at=' || (n / 400), n, id, at, 'replaced', document, 'definition-' || (n / 100000 * 20 + n % 20) from numbers;

-- One principal has a backlog.
insert into outbox (id, run_id, kind, url, host, event, notice, created_at, state, due_at, principal)
select id, id, 'webhook', 'https://hooks.example.org/' || n, 'hooks.example.org', 'run.succeeded', document, at,
    case when n % 7 = 1 or n % 1000 = 0 then 'pending' when n % 1000 = 1 then 'gave_up' else 'delivered' end, at, 'principal-' || (n % 7)
from numbers;
