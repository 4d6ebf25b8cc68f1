"""Where the real files are, what is expected of them, and what Refrain made."""

import csv
import hashlib
import os
import pathlib
import shutil

import polars as pl

from checks import expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ["REAL_DATA"])


def expected(name):
    """The lines of an expected table, each as a dict of texts."""
    with open(DATA / "expected" / name, newline="") as file:
        return list(csv.DictReader(file))


def shipped(name):
    return (ROOT / "pipelines" / f"{name}.toml").read_text()


def changed(text, *changes):
    """A pipeline's text with these changes, each of which must be one."""
    for before, after in changes:
        if text.count(before) != 1:
            raise ValueError(f"{before!r} is {text.count(before)} times in\n{text}")
        text = text.replace(before, after)
    return text


def copy(source, to):
    """A copy that may be changed, whatever the mode of the original."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DATA / source, to)


def rows(service, pipeline, partition):
    """What a partition's file holds."""
    return pl.read_parquet(service.warehouse / pipeline / partition / "part-0.parquet", hive_partitioning=False)


def by_partition(service, pipeline):
    """What the API lists, by key; the table has these folders and no other."""
    listing = service.totals(pipeline)
    expect(listing["total"]["partitions"], len(listing["partitions"]), f"{pipeline}: the listing is whole")
    listed = {entry["partition"]: entry for entry in listing["partitions"]}
    table = service.warehouse / pipeline
    folders = {str(file.parent.relative_to(table)) for file in table.rglob("*.parquet")}
    expect(folders, set(listed), f"{pipeline}: folders and listing")
    return listed


def read_all(run):
    """The rows that were read, all of which were judged."""
    books = run["rows"]
    judged = books["in_scope"] + books["out_of_scope"] + books["filtered"] + books["rejected"]
    expect(books["read"], judged, "the books balance")
    return books["read"]


def kept_apart(service, run):
    """The rows that a run has kept apart, as dicts; of all of them, and as its record says."""
    record = run["quarantine"]
    if record is None:
        return []
    file = service.warehouse / record["path"]
    expect(hashlib.sha256(file.read_bytes()).hexdigest(), record["sha256"], "the digest of the rows kept apart")
    rows = pl.read_parquet(file).to_dicts()
    expect((len(rows), record["of"], record["capped"]), (record["rows"], record["rows"], False), "the rows kept apart")
    return rows
