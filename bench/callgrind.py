"""What runs under callgrind: how many instructions it takes, and how often it asks for memory."""

import os
import pathlib
import re
import subprocess
import tempfile

import engine_alone

# What Rust's and C's allocations end in; each counts once, however much it asks for.
ALLOCATIONS = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"}
COUNTED = "parts::counted"
WAIT_SECONDS = 300


def of_parts(program):
    """Of each part that the program (`bench/parts`) has done, its counts."""
    with tempfile.TemporaryDirectory(prefix="refrain-count-") as folder:
        command = [*callgrind(folder), f"--zero-before={COUNTED}", f"--dump-after={COUNTED}", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"{program} under valgrind ended with {done.returncode}:\n{done.stderr[-4000:]}")
        parts = done.stdout.split()
        profiles = [pathlib.Path(folder, f"profile.{number}") for number in range(1, len(parts) + 1)]
        return {part: read(profile.read_text()) for part, profile in zip(parts, profiles, strict=True)}


def of_engine(job):
    """The counts of a whole engine, with one processor: how many threads there are is no part of it."""
    with tempfile.TemporaryDirectory(prefix="refrain-count-") as folder:
        process = subprocess.Popen(
            [*callgrind(folder), os.environ["REFRAIN_BIN"], "engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **engine_alone.LEAN},
            preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
        )
        process.stdin.write(engine_alone.request(job, folder))
        process.stdin.flush()
        last = next((line for line in process.stdout if not line.startswith('{"progress"')), "")
        process.stdin.close()
        process.wait(WAIT_SECONDS)
        if not last.startswith('{"report"'):
            raise RuntimeError(f"the engine gave no report under valgrind: {last[:2000]}")
        return read(pathlib.Path(folder, "profile").read_text())


def callgrind(folder):
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/profile"]


def read(profile):
    """The counts of one profile, in callgrind's format: a name stands with its number where it comes first, and `calls=`
    follows the name of who is called."""
    names = {}
    called = None
    allocations = 0
    for line in profile.splitlines():
        if function := re.match(r"c?fn=(\(\d+\))(?: (.*))?", line):
            number, name = function.groups()
            names[number] = names.get(number) or name
            called = names[number]
        elif calls := re.match(r"calls=(\d+)", line):
            allocations += int(calls[1]) * (called in ALLOCATIONS)
    instructions = int(re.search(r"^summary: (\d+)", profile, re.MULTILINE)[1])
    return {"instructions": instructions, "allocations": allocations}
