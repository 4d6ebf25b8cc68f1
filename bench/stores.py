"""The two stores as the load finds them: how a server is told of them, and rows put in past it."""

import contextlib
import sqlite3

from cluster import Cluster


class Sqlite:
    name = "SQLite"
    flags = []
    random_id = (
        "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2))"
        " || '-' || hex(randomblob(6)))"
    )
    day_of = "date('1750-01-01', '+' || n.i || ' days')"
    far = "due_at + 1000000000000"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def processes(self):
        return {}

    def sql(self, service, statements):
        """Beside the server, whose file it is."""
        with contextlib.closing(sqlite3.connect(service.folder / "refrain-data" / "refrain.db", timeout=30)) as connection:
            connection.executescript(f"begin; {statements}; commit;")


class Postgres:
    name = "Postgres"
    random_id = "gen_random_uuid()"
    day_of = "(date '1750-01-01' + n.i)::text"
    far = "due_at + interval '10 days'"

    def __enter__(self):
        self.cluster = Cluster().__enter__()
        self.flags = ["--database-url", self.cluster.url]
        return self

    def __exit__(self, *reason):
        self.cluster.__exit__(*reason)

    def processes(self):
        return {"postgres": self.cluster.processes()}

    def sql(self, service, statements):
        """Cleared up after at once: else what is measured next has the autovacuum and the checkpoint of it beside it."""
        self.cluster.sql(f"begin; {statements}; commit")
        self.cluster.sql("vacuum analyze")
        self.cluster.sql("checkpoint")


def many_partitions(store, pipeline, count):
    """Copies the only entry of the catalog of a pipeline by days until there are so many; the next server sums them up."""
    return f"""
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {count - 1})
        insert into catalog (pipeline, partition, content, run_id, committed_at, definition)
        select c.pipeline, 'pickup_day=' || {store.day_of}, c.content, c.run_id, c.committed_at, c.definition
        from n cross join (select * from catalog where pipeline = '{pipeline}' limit 1) c;
        delete from sums where pipeline = '{pipeline}'"""


def long_queue(store, pipeline, count):
    """Makes the only queued run of a pipeline wait for long, and so many more for its partition behind it."""
    return f"""
        update runs set due_at = {store.far} where pipeline = '{pipeline}' and state = 'queued';
        insert into runs (
            id, principal, idempotency_key, pipeline, mode, asked, fingerprint, accepted_with, definition, state, sequence,
            due_at, created_at
        )
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {count - 1})
        select {store.random_id}, r.principal, 'waits-' || n.i, r.pipeline, r.mode, r.asked, r.fingerprint, r.accepted_with,
            r.definition, r.state, 1000000 + n.i, r.created_at, r.created_at
        from n cross join (select * from runs where pipeline = '{pipeline}' and state = 'queued' limit 1) r;
        insert into run_partitions (run_id, partition)
        select r.id, one.partition from runs r cross join (select partition from reservations where pipeline = '{pipeline}' limit 1) one
        where r.pipeline = '{pipeline}' and r.sequence > 1000000;
        insert into reservations (pipeline, partition, sequence, run_id)
        select r.pipeline, p.partition, r.sequence, r.id from runs r join run_partitions p on p.run_id = r.id
        where r.pipeline = '{pipeline}' and r.sequence > 1000000"""
