"""The peers as contenders: processes that do the same jobs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import truth

SCRIPT = pathlib.Path(__file__).with_name("peer.py")
# Java tells much on standard error when it starts; it is shown where the process fails.
LAST_WORDS = 3000


class Process:
    """A peer's process, in a folder of its own, which goes with it."""

    def __init__(self, engine):
        self.engine = engine
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"refrain-bench-{engine}-"))
        self.errors = open(self.folder / "errors", "w+")
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=self.folder,
            env={**os.environ, "REFRAIN_BENCH_SCRATCH": str(self.folder)},
        )

    def build(self, job):
        """Does a job into an empty folder, and checks it; gives what the process says of it."""
        out = self.folder / "table"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        self.process.stdin.write(json.dumps(job.asked(out)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            raise RuntimeError(f"{self.engine} failed: {self.errors.read()[-LAST_WORDS:]}")
        self.check = lambda: truth.check(job, out, self.engine)
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Peer:
    """A process that stays: its imports and its first jobs are not counted."""

    WARM_UPS = {"polars": 1, "duckdb": 1, "spark": 2, "decoded": 1}

    rounds = None

    def __init__(self, engine, job):
        self.name = engine
        self.job = job
        self.process = Process(engine)

    def warm_up(self):
        for _ in range(self.WARM_UPS[self.name]):
            self.measure()

    def measure(self):
        told = self.process.build(self.job)
        self.process.check()
        return {self.name: told["seconds"]}

    def peak_bytes(self):
        """Of a fresh process that does the job once."""
        process = Process(self.name)
        try:
            return process.build(self.job)["peak_bytes"]
        finally:
            process.close()

    def close(self):
        self.process.close()


class Decoded(Peer):
    """What it takes to decode the columns alone: a limit, and no contender. It counts the rows itself."""

    def __init__(self, job):
        super().__init__("decoded", job)

    def measure(self):
        return {self.name: self.process.build(self.job)["seconds"]}


class FromStart:
    """A new process each time, counted from its start to its end, as an orchestrator's task would be."""

    def __init__(self, engine, job, rounds):
        self.engine = engine
        self.name = f"{engine}, from start"
        self.job = job
        self.rounds = rounds

    def warm_up(self):
        pass

    def measure(self):
        started = time.perf_counter()
        process = Process(self.engine)
        try:
            process.build(self.job)
            process.process.stdin.close()
            process.process.wait(60)
            seconds = time.perf_counter() - started
            process.check()
        finally:
            process.close()
        return {self.name: seconds}

    def peak_bytes(self):
        return None

    def close(self):
        pass


def versions():
    """The peers' versions, as they are pinned."""
    pinned = SCRIPT.with_name("requirements.txt").read_text().split()
    return ", ".join(line.replace("==", " ") for line in pinned)
