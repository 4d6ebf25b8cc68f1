"""What a run asks of the kernel, as strace tells it: what it makes durable, and how much of its sources it reads."""

import contextlib
import pathlib
import re
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "readers"))

from service import Service  # noqa: E402

WAIT_SECONDS = 30
SYNCS = ("fsync", "fdatasync")
READS = ("read", "pread64", "readv", "preadv", "preadv2")
# As `-ttt -y` writes them: process, time, call, the path of the first argument, the rest.
CALL = re.compile(r"^(\d+) +(\d+\.\d+) (\w+)\((?:\d+<(.*?)>)?(.*)$")
RESUMED = re.compile(r"^(\d+) +\d+\.\d+ <\.\.\. \w+ resumed>(.*)$")


def of_runs(job):
    """The counts of a first build, and of the same over sources that have not changed."""
    with tempfile.TemporaryDirectory(prefix="refrain-count-") as folder, traced(job, folder) as service:
        spans = {"first_build": timed(service, job, "created"), "unchanged": timed(service, job, "unchanged")}
        service.__exit__()
        calls = list(read(finished(pathlib.Path(folder, "trace"), service.process.pid)))
    return {name: counts(calls, span, job) for name, span in spans.items()}


@contextlib.contextmanager
def traced(job, folder):
    with Service() as service:
        # The service stays our own child, which can be ended.
        follow = ["strace", "-D", "-f", "--seccomp-bpf", "-y", "-ttt", "-s", "0", "-o", f"{folder}/trace"]
        service.wrapper = [*follow, "-e", f"trace=madvise,{','.join(SYNCS + READS)}"]
        service.pipeline(job.pipeline())
        service.start()
        yield service


def timed(service, job, outcome):
    """When a run of all partitions, which must come out so, began and ended."""
    started = time.time()
    run = service.succeeds(job.name, list(job.keys))
    ended = time.time()
    if found := {partition["outcome"] for partition in run["partitions"]} - {outcome}:
        raise RuntimeError(f"{job.name}: partitions came out as {found}, expected {outcome}")
    return started, ended


def finished(trace, server):
    """The trace, once the server's end is in it."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        text = trace.read_text(errors="replace")
        if re.search(rf"^{server} +[\d.]+ \+\+\+ ", text, re.MULTILINE):
            return text
        time.sleep(0.05)
    raise RuntimeError(f"strace did not tell of the server's end in {WAIT_SECONDS} s: {text[-2000:]}")


def read(trace):
    """Each call: its time, its name, the path of its file, the rest of its arguments, and what it gave."""
    begun = {}
    for line in trace.splitlines():
        if call := CALL.match(line):
            process, at, name, path, rest = call.groups()
            begun[process] = (float(at), name, path or "", rest)
        elif resumed := RESUMED.match(line):
            process, rest = resumed.groups()
        else:
            continue
        given = re.search(r"= (-?\d+)", rest)
        if given and process in begun:
            yield *begun.pop(process), int(given[1])


def counts(calls, span, job):
    started, ended = span
    within = [call for call in calls if started <= call[0] <= ended]
    synced = [path for _, name, path, _, _ in within if name in SYNCS and "/warehouse" in path]
    # A file without a name is the warehouse's own check, which comes at its own times.
    synced = [path for path in synced if "/#" not in path]
    files = [path for path in synced if pathlib.Path(path).suffix]
    asked_for = (re.search(r"(\d+), MADV_WILLNEED", rest) for _, name, _, rest, _ in within if name == "madvise")
    mapped = sum(int(asked[1]) for asked in asked_for if asked)
    sources = {str(pathlib.Path(source).resolve()) for source in job.sources}
    copied = sum(given for _, name, path, _, given in within if name in READS and path in sources)
    return {"file_syncs": len(files), "folder_syncs": len(synced) - len(files), "source_bytes": mapped + copied}
