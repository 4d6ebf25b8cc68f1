"""wrk: found, or fetched without installing it, and run."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import time

import inputs
from machine import cpu_seconds

SCRIPT = pathlib.Path(__file__).with_name("api.lua")
CONNECTIONS = 16
PACKAGES = ["wrk", "libluajit-5.1-2", "libluajit-5.1-common"]


class NoGenerator(Exception):
    pass


def generator():
    """wrk and the environment that it needs: that of PATH, or Debian's package unpacked in the cache."""
    if found := shutil.which("wrk"):
        return found, dict(os.environ)
    if not shutil.which("apt-get"):
        raise NoGenerator("there is no wrk here; put one on PATH")
    folder = inputs.once("wrk", unpack)
    libraries = ":".join(str(p) for p in folder.glob("usr/lib/*-linux-gnu"))
    return str(folder / "usr/bin/wrk"), {**os.environ, "LD_LIBRARY_PATH": libraries}


def unpack(folder):
    fetched = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True)
    if fetched.returncode != 0:
        raise NoGenerator(f"wrk could not be fetched; install it (Debian: apt-get install wrk): {fetched.stderr[-500:]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)


@dataclasses.dataclass
class Load:
    """What a load has come to, with the CPU that servers had meanwhile, in cores. No times where nothing was answered."""

    connections: int
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    refused: int
    broken: int
    cpu: dict


def send(base, seconds, *what, connections=CONNECTIONS, processes=dict):
    """Sends requests for so long. `processes` gives, by name, the ids of processes whose CPU is told."""
    wrk, environment = generator()
    before = {name: cpu_seconds(pids) for name, pids in processes().items()}
    started = time.monotonic()
    command = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(SCRIPT), base, "--", *what]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    elapsed = time.monotonic() - started
    if ran.returncode != 0:
        raise RuntimeError(f"wrk failed: {ran.stdout[-500:]} {ran.stderr[-500:]}")
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    after = {name: cpu_seconds(pids) for name, pids in processes().items()}
    answered = told["requests"] > 0
    return Load(
        connections=connections,
        rate=told["requests"] / told["seconds"],
        p50_ms=told["p50_ms"] if answered else None,
        p99_ms=told["p99_ms"] if answered else None,
        refused=told["refused"],
        broken=told["broken"],
        cpu={name: (after[name] - before[name]) / elapsed for name in before},
    )
