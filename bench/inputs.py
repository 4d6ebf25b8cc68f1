"""The sources: the sample, and what is made of it once and kept in the cache."""

import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess

import duckdb
import polars as pl

CACHE = pathlib.Path(os.environ["REFRAIN_BENCH_CACHE"])
MONTHS = ["2024-01", "2024-02", "2024-03"]
HOURS = 24
EVENTS_PER_HOUR = 20_000
STARS_DAY = "2015-01-01"


def once(name, make):
    """The folder of that name in the cache: made whole or not at all."""
    folder = CACHE / name
    if not folder.exists():
        print(f"==> making {folder}")
        unfinished = CACHE / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(folder)
    return folder


def files(folder):
    return sorted(str(file) for file in folder.iterdir() if file.name != "sample.json")


def sample(scale):
    def make(folder):
        command = [os.environ["REFRAIN_BIN"], "sample", "--out", str(folder), "--scale", f"{scale:g}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    return once(f"sample-{scale:g}", make)


def split(scale, count):
    """The rows of the sample, in their order, in so many files of the same size."""

    def make(folder):
        whole = pl.concat([pl.read_parquet(file) for file in files(sample(scale))])
        size = -(-whole.height // count)
        for number in range(count):
            whole.slice(number * size, size).write_parquet(folder / f"part-{number:04}.parquet", compression="snappy")

    return once(f"split-{scale:g}-{count}", make)


def as_csv(scale):
    """The sample as csv.gz: all columns, a file for each month."""

    def make(folder):
        for file in files(sample(scale)):
            to = folder / f"{pathlib.Path(file).stem}.csv.gz"
            with duckdb.connect() as db:
                db.execute(f"copy (from '{file}') to '{to}' (format csv, header true, compression gzip)")

    return once(f"csv-{scale:g}", make)


def events(scale):
    """A day of hourly files shaped like GH Archive's: one event in ten is a star, one star in a hundred is told twice."""
    per_hour = max(10, int(EVENTS_PER_HOUR * scale))

    def make(folder):
        draw = random.Random(20150101)
        for hour in range(HOURS):
            with gzip.open(folder / f"{STARS_DAY}-{hour}.json.gz", "wt", compresslevel=6) as file:
                for number in range(per_hour):
                    line = json.dumps(event(draw, hour, hour * per_hour + number), separators=(",", ":"))
                    file.write(f"{line}\n")
                    if '"WatchEvent"' in line and number % 100 == 0:
                        file.write(f"{line}\n")

    return once(f"events-{scale:g}", make)


def event(draw, hour, number):
    """Most of an event is what nobody asks for."""
    repo = int(draw.paretovariate(0.6)) % 200_000
    digest = f"{draw.getrandbits(160):040x}"
    actor = {"id": draw.randrange(9_000_000), "login": digest[:12], "url": f"https://api.github.com/users/{digest[:12]}"}
    star = draw.randrange(10) == 0
    commit = {"sha": digest, "message": f"Change {digest[:8]} of the \"parser\"\n\nand its tests", "distinct": True}
    return {
        "id": str(2_489_368_070 + number),
        "type": "WatchEvent" if star else "PushEvent",
        "actor": actor,
        "repo": {"id": repo, "name": f"owner-{repo % 5000}/repo-{repo}", "url": f"https://api.github.com/repos/{repo}"},
        "payload": {"action": "started"} if star else {"push_id": number, "size": 3, "commits": [commit] * 3},
        "public": True,
        "created_at": f"{STARS_DAY}T{hour:02}:{number % 3600 // 60:02}:{number % 60:02}Z",
    }
