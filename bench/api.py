"""The interface on both stores: how soon a run starts, what an idle server takes, and requests as many as wrk can send."""

import dataclasses
import datetime
import math
import os
import statistics
import subprocess
import time
import urllib.request
import uuid

import floor
import jobs
import load
import report
from cluster import NoPostgres
from machine import cpu_seconds, memory_bytes, peak_memory_bytes
from service import Service
from stores import Postgres, Sqlite, long_queue, many_partitions

IDLE_SECONDS = 10
STARTS = 100
QUEUED = 10_000
# Submissions and bare inserts, in turn: so often, by so many connections each.
TURNS = 3
CROWDS = (load.CONNECTIONS, 4 * load.CONNECTIONS)
PARTITIONS = (1_000, 100_000)
SMALLEST = 0.001
# So many that no limit of a caller is met, where the binary has such limits.
MOST = {
    "--max-requests-per-second": "1000000",
    "--max-submissions-per-minute": "100000000",
    "--max-queued-runs": "10000000",
}


def measure(options):
    """Figures by store, and the targets."""
    seconds = 2 if options.quick else 5
    figures, targets = {}, []
    for kind in (Sqlite, Postgres):
        try:
            with kind() as store:
                figures[store.name] = of_store(store, seconds, 20 if options.quick else STARTS)
        except (load.NoGenerator, NoPostgres) as missing:
            print(f"\n{kind.name}: not measured: {missing}")
            continue
        show(kind.name, figures[kind.name])
        targets += judged(kind.name, figures[kind.name])
    return figures, targets


def of_store(store, seconds, starts):
    """The story: idle, runs that start at once, load, then runs that start beside a long queue, and what comes beside it."""
    service = Service()
    for name in ("small", "load", "waits"):
        service.pipeline(jobs.quarter(name, SMALLEST).pipeline())
    for count in PARTITIONS:
        service.pipeline(dataclasses.replace(jobs.days(SMALLEST), name=f"days_{count}").pipeline())
    with service:
        serve(service, store, workers=1)
        figures = idle(service)
        service.succeeds("small", ["2024-02"])
        figures["start_ms"] = starts_of(service, starts)
        for count in PARTITIONS:
            service.succeeds(f"days_{count}", ["2024-02-01"])
            store.sql(service, many_partitions(store, f"days_{count}", count))
        # It counts the sums at its start, in a moment: long before they are asked for.
        serve(service, store, workers=0)
        run = submit(service, "load", "one/key", "2024-01")
        if isinstance(store, Postgres):
            figures["floor"] = floor.measure(store.cluster, run["id"], f"days_{PARTITIONS[-1]}", seconds, load.CONNECTIONS)
        figures["loads"] = loads(service, store, run["id"], seconds)
        figures["peak_mb"] = peak_memory_bytes(service.process.pid) / 1e6
        store.sql(service, "delete from reservations; update runs set state = 'cancelled', ended_at = created_at where state = 'queued'")
        submit(service, "waits", "first", "2024-02")
        store.sql(service, long_queue(store, "waits", QUEUED))
        serve(service, store, workers=1)
        figures["start_queued_ms"] = starts_of(service, starts)
        if isinstance(store, Postgres):
            serve(service, store, workers=0)
            figures["in_turn"] = [beside_inserts(service, store, run["id"], seconds, crowd) for crowd in CROWDS]
    return figures


def serve(service, store, workers):
    """Starts the server anew, without limits that one caller would meet."""
    if service.process:
        service.process.terminate()
        service.process.wait(60)
    known = subprocess.run([os.environ["REFRAIN_BIN"], "serve", "--help"], capture_output=True, text=True).stdout
    limits = [word for flag, most in MOST.items() if flag in known for word in (flag, most)]
    service.flags = ["--workers", str(workers), *limits, *store.flags]
    service.start()


def submit(service, pipeline, key, month):
    status, run = service.call("POST", "/runs", {"pipeline": pipeline, "partitions": [month]}, {"Idempotency-Key": key})
    if status not in (200, 202):
        raise RuntimeError(f"{pipeline}: {status} {run}")
    return run


def idle(service):
    """Memory and CPU of a server that nobody asks, with its worker waiting."""
    pids = [service.process.pid]
    before = cpu_seconds(pids)
    time.sleep(IDLE_SECONDS)
    used = cpu_seconds(pids) - before
    return {"idle_mb": memory_bytes(pids[0]) / 1e6, "idle_cpu_percent": used / IDLE_SECONDS * 100}


def starts_of(service, count):
    """From acceptance to start of one run after another, by the server's clock, sorted."""
    taken = []
    for _ in range(count):
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        _, run = service.call("POST", "/runs?wait=60", {"pipeline": "small", "partitions": ["2024-02"]}, headers)
        if run.get("state") != "succeeded":
            raise RuntimeError(f"a small run did not succeed: {run}")
        created, started = (datetime.datetime.fromisoformat(run[field]) for field in ("created_at", "started_at"))
        taken.append((started - created).total_seconds() * 1000)
    return sorted(taken)


def loads(service, store, run, seconds):
    """Each load by its name."""

    def processes():
        return {"server": [service.process.pid], **store.processes()}

    many = f"/pipelines/days_{PARTITIONS[-1]}/partitions"
    etag = tag(service, many)
    busy, alone = load.CONNECTIONS, 1
    sent = {
        "new submissions": (busy, "new", "load", f"new-{uuid.uuid4()}"),
        "one key, again and again": (busy, "same", "load", "one/key"),
        "status": (busy, "get", f"/runs/{run}"),
        "status, 304": (busy, "get", f"/runs/{run}", tag(service, f"/runs/{run}")),
        "totals of 1,000, page of 100": (busy, "get", f"/pipelines/days_{PARTITIONS[0]}/partitions?limit=100"),
        "totals of 1,000, page of 100, one client": (alone, "get", f"/pipelines/days_{PARTITIONS[0]}/partitions?limit=100"),
        "totals of 100,000, page of 100": (busy, "get", f"{many}?limit=100"),
        "totals of 100,000, page of 100, one client": (alone, "get", f"{many}?limit=100"),
        "totals of 100,000, sum (page of 1), one client": (alone, "get", f"{many}?limit=1"),
        "totals of 100,000, 304": (busy, "get", many, etag),
    }

    def sending(connections, *what):
        return load.send(service.base, seconds, *what, connections=connections, processes=processes)

    return {name: dataclasses.asdict(sending(*what)) for name, what in sent.items()}


def beside_inserts(service, store, run_id, seconds, connections):
    """Submissions in a second and bare inserts in a second, in turn. Nobody stands behind a run of the turn before."""
    turns = []
    for _ in range(TURNS):
        store.cluster.sql("truncate reservations")
        sent = load.send(service.base, seconds, "new", "load", f"new-{uuid.uuid4()}", connections=connections)
        if sent.refused or sent.broken:
            raise RuntimeError(f"{sent.refused} submissions were refused, {sent.broken} broken")
        turns.append([sent.rate, floor.bare_inserts(store.cluster, run_id, seconds, connections)])
    return {"connections": connections, "turns": turns, "ratio": statistics.median(new / bare for new, bare in turns)}


def tag(service, path):
    """The ETag of an answer."""
    with urllib.request.urlopen(service.base + path, timeout=60) as answer:
        return answer.headers["etag"]


def percentile(sorted_values, part):
    return sorted_values[max(0, math.ceil(len(sorted_values) * part) - 1)]


def show(name, figures):
    print(f"\n### {name}: one generator, on the same cores\n")
    rows = []
    for what, of in figures["loads"].items():
        cpu = [f"{cores:.2f}" for cores in of["cpu"].values()]
        wrong = f"{of['refused']} refused, {of['broken']} broken" if of["refused"] or of["broken"] else ""
        rows.append([what, of["connections"], f"{of['rate']:,.0f}/s", told(of["p50_ms"]), told(of["p99_ms"]), " + ".join(cpu), wrong])
    print(report.table(["load", "connections", "rate", "p50", "p99", "cores of server (+ Postgres)", ""], rows))
    if "floor" in figures:
        rows = [[what, f"{rate:,.0f}/s"] for what, rate in figures["floor"].items()]
        print(f"\n{report.table(['pgbench alone, prepared', 'rate'], rows)}")
        rows = [[of["connections"], *(f"{new:,.0f} / {bare:,.0f}" for new, bare in of["turns"]), f"{of['ratio']:.2f}"] for of in figures["in_turn"]]
        turns = [f"turn {n + 1}" for n in range(TURNS)]
        print(f"\nsubmissions / bare inserts (pgbench), a second, in turn\n\n{report.table(['connections', *turns, 'median ratio'], rows)}")
    for what, key in (("idle", "start_ms"), (f"with {QUEUED:,} queued", "start_queued_ms")):
        print(f"\naccept to start, {what}: p50 {percentile(figures[key], 0.5):.1f} ms, p99 {percentile(figures[key], 0.99):.1f} ms")
    print(f"memory of the server: idle {figures['idle_mb']:.0f} MB, at most {figures['peak_mb']:.0f} MB under load")


def told(milliseconds):
    return "none answered" if milliseconds is None else f"{milliseconds:.1f} ms"


def judged(name, figures):
    """The targets: what, found, limit, whether it is met, unit."""

    def most(what, found, limit, unit):
        return f"api, {name}: {what}", "none answered" if found is None else found, limit, found is not None and found <= limit, unit

    def least(what, found, limit, unit):
        return f"api, {name}: {what}, at least", found, limit, found >= limit, unit

    sent = figures["loads"]
    yield most("accept to start, idle, p99", percentile(figures["start_ms"], 0.99), 20, " ms")
    yield most(f"accept to start, {QUEUED:,} queued, p99", percentile(figures["start_queued_ms"], 0.99), 20, " ms")
    for of in figures.get("in_turn", []):
        yield least(f"new submissions against the bare insert, {of['connections']} connections", of["ratio"], 0.6, "")
    yield least("one key, again and again", sent["one key, again and again"]["rate"], 6_000, "/s")
    yield least("status", sent["status"]["rate"], 10_000, "/s")
    yield most("totals of 100,000, first page, p99", sent["totals of 100,000, page of 100, one client"]["p99_ms"], 10, " ms")
    yield most("totals of 100,000, sum, p99", sent["totals of 100,000, sum (page of 1), one client"]["p99_ms"], 10, " ms")
    yield most("idle, memory", figures["idle_mb"], 30, " MB")
    yield most("idle, CPU", figures["idle_cpu_percent"], 0.5, " %")
