"""What Postgres alone gives for the statements that requests come down to, by pgbench."""

# The bare insert: a row of `runs` with its indexes and constraints, on the disk; no key is looked up, no partition is named or reserved.
INSERT = """
insert into runs (
    id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence, due_at,
    created_at, priority
) values (
    gen_random_uuid(), 'pgbench', gen_random_uuid()::text, '{pipeline}', 'overwrite', '{asked}', '{fingerprint}', '{definition}',
    '{definition}', 'queued', nextval('run_sequence'), clock_timestamp(), clock_timestamp(), 0
);
"""

# As few statements as can make a submission of a month: the key is looked up, its pipeline shared, the run queued. The key that is looked up is made
# once: a function of chance in the condition would be called for every row.
SUBMISSION = """
\\set month random(1, 100000)
begin;
select id from runs where principal = 'pgbench' and idempotency_key = (select gen_random_uuid()::text);
select pg_advisory_xact_lock_shared(hashtextextended('refrain/{pipeline}', 0));
with accepted as (
    insert into runs (
        id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
        due_at, created_at, priority
    ) values (
        gen_random_uuid(), 'pgbench', gen_random_uuid()::text, '{pipeline}', 'overwrite', '{asked}', '{fingerprint}',
        '{definition}', '{definition}', 'queued', nextval('run_sequence'), clock_timestamp(), clock_timestamp(), 0
    )
    returning id, sequence
), scope as (
    insert into run_partitions (run_id, partition) select id, 'pickup_month=' || :month from accepted
)
insert into reservations (pipeline, partition, sequence, run_id)
select '{pipeline}', 'pickup_month=' || :month, sequence, id from accepted;
commit;
"""

SAME_KEY = """
select r.id, r.asked, r.fingerprint, d.hash, d.pipeline, d.text
from runs r join definitions d on d.hash = r.accepted_with
where r.principal = '{principal}' and r.idempotency_key = '{key}';
"""

STATUS = """
select id, principal, idempotency_key, pipeline, mode, asked, state, definition, sequence, cancel_requested, progress, error, rows,
    sources, warnings, quarantine, created_at, started_at, ended_at, due_at
from runs
where id = '{id}';
select partition, outcome, file, content, previous, foreign_files, base from run_partitions where run_id = '{id}';
select number, worker, started_at, ended_at, outcome, error from attempts where run_id = '{id}' order by number;
"""

PAGE = """
select partition, content, run_id, committed_at, definition, confirmed_by, confirmed_at
from catalog
where pipeline = '{many}'
order by partition
limit 101;
"""

SCRIPTS = {"insert": INSERT, "submission": SUBMISSION, "same key": SAME_KEY, "status": STATUS, "page": PAGE}


def measure(cluster, run_id, many, seconds, clients):
    """Transactions in a second of each script, over a run that is there."""
    told = {**said_of(cluster, run_id), "many": many}
    return {name: rate_of(cluster, script.format(**told), seconds, clients) for name, script in SCRIPTS.items()}


def bare_inserts(cluster, run_id, seconds, clients):
    """Bare inserts in a second, like the one of a run that is there."""
    return rate_of(cluster, INSERT.format(**said_of(cluster, run_id)), seconds, clients)


def rate_of(cluster, script, seconds, clients):
    # What a script has put in is known to those after it, whose plans would else be those for next to nothing.
    cluster.sql("analyze")
    return cluster.pgbench(script, seconds, clients)


def said_of(cluster, run_id):
    columns = "principal, idempotency_key, pipeline, asked, fingerprint, definition"
    found = cluster.sql(f"select {columns} from runs where id = '{run_id}'").split("|")
    principal, key, pipeline, asked, fingerprint, definition = found
    told = {"principal": principal, "key": key, "pipeline": pipeline, "asked": asked, "fingerprint": fingerprint}
    return told | {"definition": definition, "id": run_id}
