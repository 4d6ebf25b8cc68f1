"""Refrain as a contender: a real server on SQLite, over a fresh data folder each time, that is idle when it is asked."""

import datetime
import os
import re
import time
import urllib.request
import uuid

import truth
from machine import MemoryWatch
from service import Service

WAIT_SECONDS = 600
STAGE = re.compile(r'^refrain_stage_seconds_sum\{stage="(\w+)"\} (\S+)$', re.MULTILINE)
# What every engine does: scan, aggregate, sort, encode, write. The end of the engine's process counts as staging, some 3 ms.
EVERYBODYS = ("scanning", "staging")


class Refrain:
    """Gives the time from the request to the answer of a run that has succeeded, that by the server's clock, and what of
    the first is Refrain's own share."""

    rounds = None

    def __init__(self, job, name="refrain"):
        self.job = job
        self.name = name

    def warm_up(self):
        self.measure()

    def measure(self):
        with fresh(self.job) as service:
            seconds, run = build(service, self.job)
            truth.check(self.job, service.warehouse / self.job.name, "refrain")
            own = seconds - sum(stages(service)[stage] for stage in EVERYBODYS)
        return {
            self.name: seconds,
            f"{self.name}, by the server's clock": by_its_clock(run),
            f"{self.name}, its own share": own,
        }

    def peak_bytes(self):
        """Of the server and its engine in a run by itself: who watches takes processor time."""
        with fresh(self.job) as service:
            return self.watched(service)

    def watched(self, service):
        with MemoryWatch(service.process.pid) as watch:
            build(service, self.job)
        return watch.bytes

    def close(self):
        pass


class Repeated(Refrain):
    """The same request under another key, over sources that have not changed; it may write no file."""

    def measure(self):
        with fresh(self.job) as service:
            first, _ = build(service, self.job)
            before = files_of(service, self.job)
            seconds, run = build(service, self.job)
            outcomes = {p["outcome"] for p in run["partitions"]}
            if outcomes != {"unchanged"} or files_of(service, self.job) != before:
                raise truth.WrongTotals(f"{self.job.name}: run again, it wrote: {outcomes}")
            truth.check(self.job, service.warehouse / self.job.name, "refrain")
        return {"refrain, first build": first, self.name: seconds}

    def watched(self, service):
        build(service, self.job)
        return super().watched(service)


def fresh(job):
    service = Service()
    service.flags = ["--max-wait-seconds", str(WAIT_SECONDS), "--request-timeout-seconds", str(WAIT_SECONDS)]
    service.pipeline(job.pipeline())
    service.start()
    return service


def build(service, job):
    """Seconds until the answer, and the run."""
    body = {"pipeline": job.name, "partitions": list(job.keys)}
    started = time.perf_counter()
    status, run = service.call("POST", f"/runs?wait={WAIT_SECONDS}", body, {"Idempotency-Key": str(uuid.uuid4())})
    while status in (200, 202) and run["state"] in ("queued", "running", "committing"):
        status, run = service.call("GET", f"/runs/{run['id']}?wait={WAIT_SECONDS}")
    seconds = time.perf_counter() - started
    if run.get("state") != "succeeded":
        raise RuntimeError(f"{job.name}: the run did not succeed: {status} {str(run)[:2000]}")
    return seconds, run


def by_its_clock(run):
    started, ended = (datetime.datetime.fromisoformat(run[field]) for field in ("started_at", "ended_at"))
    return (ended - started).total_seconds()


def stages(service):
    """Seconds that the stages of all attempts so far have taken, by the server's own clock."""
    with urllib.request.urlopen(f"{service.base}/metrics", timeout=60) as answer:
        return {stage: float(seconds) for stage, seconds in STAGE.findall(answer.read().decode())}


def files_of(service, job):
    """What shows whether a file was written."""
    files = sorted((service.warehouse / job.name).rglob("*.parquet"))
    return [(str(file), file.stat().st_ino, file.stat().st_mtime_ns) for file in files]


def version():
    stat = os.stat(os.environ["REFRAIN_BIN"])
    when = datetime.datetime.fromtimestamp(stat.st_mtime, datetime.UTC)
    return f"{stat.st_size / 1e6:.0f} MB, built {when:%Y-%m-%d %H:%M} UTC"
