"""What a run asks of the kernel, as strace tells it: what it makes durable and when, and how much of its sources it reads."""

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
# Calls that make a name, and the place of the new one among the paths in their arguments.
MAKES = {"mkdir": 0, "mkdirat": 0, "rename": 1, "renameat": 1, "renameat2": 1, "link": 1, "linkat": 1, "openat": 0}
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
        service.wrapper = [*follow, "-e", f"trace=madvise,fadvise64,{','.join((*SYNCS, *READS, *MAKES))}"]
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
    announced = [rest for _, name, path, rest, _ in within if name == "fadvise64" and path in sources and "WILLNEED" in rest]
    mapped += sum(int(re.match(r", \d+, (\d+),", rest)[1]) for rest in announced)
    copied = sum(given for _, name, path, _, given in within if name in READS and path in sources)
    return {
        "file_syncs": len(files),
        "folder_syncs": len(synced) - len(files),
        "lost_by_a_power_cut": len(lost_when_decided(within)) + len(lost_when_finished(within)),
        "source_bytes": mapped + copied,
    }


def lost_when_decided(calls):
    """What is staged and would not outlast a power cut right after the decision: the last transaction before anything is made
    in a table. Where nothing is, nothing is needed."""
    moved = next((at for at, call in enumerate(calls) if (made := name_made(call)) and is_of_table(made)), None)
    return set() if moved is None else lost(calls[: last_transaction(calls[:moved]) + 1], is_staged)


def lost_when_finished(calls):
    """What is in a table and would not outlast a power cut right after the run's last transaction, the one that ends it."""
    return lost(calls[: last_transaction(calls) + 1], is_of_table)


def last_transaction(calls):
    return max(at for at, (_, name, path, _, _) in enumerate(calls) if name in SYNCS and path.endswith("-wal"))


def lost(calls, is_meant):
    """The names that no sync of their folder has followed, and the files that were opened to be written and not synced since."""
    names, files = set(), set()
    for call in calls:
        _, name, path, _, _ = call
        if name in SYNCS:
            files.discard(path)
            names = {made for made in names if str(pathlib.Path(made).parent) != path}
        elif made := name_made(call):
            names.add(made)
            if name == "openat":
                files.add(made)
    return {made for made in names | files if is_meant(made)}


def name_made(call):
    """The path that a call has made anew; none of one that makes none, or has failed."""
    _, name, path, rest, given = call
    if name not in MAKES or given < 0 or (name == "openat" and "O_CREAT" not in rest):
        return None
    paths = re.findall(r'"([^"]*)"', rest)
    return paths[MAKES[name]]


def is_staged(path):
    """Whether it is an attempt's, or on the way to it."""
    return "/warehouse/.staging" in path and not pathlib.Path(path).name.startswith("probe-")


def is_of_table(path):
    return re.search(r"/warehouse/[a-z]", path) is not None
