"""Bad files of every kind in the place of good ones: the run fails, says why, and nothing of the table has changed."""

import gzip
import hashlib

from checks import expect
from files import DATA, copy, kept_apart

LONG_LINE_BYTES = 100 << 20

GREEN = """
[source.columns]
at = { type = "datetime", from = "lpep_pickup_datetime" }
zone = { type = "int32", from = "PULocationID" }
total = { type = "decimal(18,2)", from = "total_amount" }
[partition]
month = { month_of = "at" }
[dimensions]
zone = "zone"
[measures]
trips = "count(*)"
revenue = "sum(total)"
"""
EVENTS = """
[source.columns]
at = { type = "datetime(UTC)", from = "created_at" }
kind = { type = "string", from = "type" }
[partition]
hour = { hour_of = "at" }
[dimensions]
kind = "kind"
[measures]
events = "count(*)"
"""
# Each with a good file of the shared data, and a partition of it.
SOURCES = {
    "bad/green.csv": ("csv", GREEN, "nyc-tlc-green-2020-csv/green_tripdata_2020-04.csv.gz", "2020-04"),
    "bad/green.csv.gz": ("csv", GREEN, "nyc-tlc-green-2020-csv/green_tripdata_2020-04.csv.gz", "2020-04"),
    "bad/green.parquet": ("parquet", GREEN, "nyc-tlc-green/green_tripdata_2023-01.parquet", "2023-01"),
    "bad/events.json": ("ndjson", EVENTS, "gharchive/2015-01-01-0.json.gz", "2015-01-01T00"),
    "bad/events.json.gz": ("ndjson", EVENTS, "gharchive/2015-01-01-0.json.gz", "2015-01-01T00"),
}


def name_of(path):
    return path.replace("/", "_").replace(".", "_")


def restore(service, path):
    """Puts the good file in its place."""
    to = service.folder / path
    source = SOURCES[path][2]
    if source.endswith(".gz") and not path.endswith(".gz"):
        to.parent.mkdir(exist_ok=True)
        to.write_bytes(gzip.decompress((DATA / source).read_bytes()))
    else:
        copy(source, to)
    return to.read_bytes()


def pipelines(service):
    for path, (format, columns, _, _) in SOURCES.items():
        restore(service, path)
        # Not a row may be bad, and no second try is made.
        yield (
            f'name = "{name_of(path)}"\nmax_rejected = 0\n[source]\nformat = "{format}"\npath = "{path}"\n{columns}'
            "[retry]\nsource = { attempts = 1 }\n"
        )


def in_line(number, change):
    """Changes that line of a text file, counted from 1."""

    def of(good):
        lines = good.split(b"\n")
        lines[number - 1] = change(lines[number - 1])
        return b"\n".join(lines)

    return of


def as_gzip(change):
    return lambda good: gzip.compress(change(gzip.decompress(good)), 1)


def half(good):
    return good[: len(good) // 2]


def damaged(good):
    middle = len(good) // 2
    return good[:middle] + bytes(64) + good[middle + 64 :]


def comma_in(line):
    return line.replace(b",", b";")


NUL = in_line(1000, lambda line: line[:12] + b"\0" + line[12:])
NO_UTF8 = in_line(1000, lambda line: line[:12] + b"\xff\xfe" + line[12:])
LONG = in_line(1000, lambda line: line + b"x" * LONG_LINE_BYTES)

# The file, what is wrong with it, how it comes about, and what the message must say beside the file's name.
CASES = [
    ("bad/green.csv", "empty", lambda _: b"", ["is empty"]),
    ("bad/green.csv", "wrong delimiter", lambda good: good.replace(b",", b";"), ["line 1: ", "the header has"]),
    ("bad/green.csv", "wrong delimiter from line 1000 on", in_line(1000, comma_in), ["line 1000: ", "field"]),
    ("bad/green.csv", "no header", lambda good: good[good.index(b"\n") + 1 :], ["line 1: ", "the header has"]),
    ("bad/green.csv", "NUL byte", NUL, ["line 1000: ", "NUL"]),
    ("bad/green.csv", "invalid UTF-8", NO_UTF8, ["line 1000: ", "UTF-8"]),
    ("bad/green.csv", "100 MB on one line", LONG, ["line 1000: ", "bytes"]),
    ("bad/green.csv", "cut in a line", lambda good: good[: good.rindex(b",")], ["line 35613: ", "fields"]),
    ("bad/green.csv", "binary", lambda good: gzip.compress(good), ["line 1: "]),
    ("bad/green.csv.gz", "empty", lambda _: b"", ["is empty"]),
    ("bad/green.csv.gz", "empty inside", lambda _: gzip.compress(b""), ["is empty"]),
    ("bad/green.csv.gz", "cut", half, ["cannot be read beyond"]),
    ("bad/green.csv.gz", "damaged", damaged, ["cannot be read beyond"]),
    ("bad/green.csv.gz", "not compressed", gzip.decompress, ["cannot be read"]),
    ("bad/green.csv.gz", "100 MB on one line", as_gzip(LONG), ["line 1000: ", "bytes"]),
    ("bad/green.parquet", "empty", lambda _: b"", ["expected a Parquet file"]),
    ("bad/green.parquet", "cut", half, ["expected a Parquet file"]),
    ("bad/green.parquet", "its end alone", lambda good: good[-1000:], ["Parquet"]),
    ("bad/green.parquet", "text", lambda _: b"a,b\n1,2\n", ["expected a Parquet file"]),
    ("bad/events.json", "empty", lambda _: b"", ["is empty"]),
    ("bad/events.json", "NUL byte", NUL, ["line 1000: "]),
    ("bad/events.json", "invalid UTF-8", NO_UTF8, ["line 1000: ", "UTF-8"]),
    ("bad/events.json", "100 MB on one line", LONG, ["line 1000: ", "bytes"]),
    ("bad/events.json", "cut in a line", lambda good: good[:-20], ["line 7702: "]),
    ("bad/events.json", "csv", lambda _: b"a,b\n1,2\n", ["line 1: "]),
    ("bad/events.json.gz", "cut", half, ["cannot be read beyond"]),
]


def looked_at(service, path):
    """The table's files, and what the API says of it."""
    table = service.warehouse / name_of(path)
    files = {
        str(file.relative_to(table)): (file.stat().st_ino, file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in table.rglob("*")
        if file.is_file()
    }
    key = service.totals(name_of(path))["partitions"][0]["partition"]
    return files, service.totals(name_of(path)), service.call("GET", f"/pipelines/{name_of(path)}/partitions/{key}")


def checks(service):
    def bad(path, change, parts):
        pipeline, partition = name_of(path), SOURCES[path][3]
        good = restore(service, path)
        service.succeeds(pipeline, [partition])
        before = looked_at(service, path)
        expect((len(before[0]), before[1]["total"]["partitions"]), (1, 1), "files and partitions")
        (service.folder / path).write_bytes(change(good))
        run = service.run(pipeline, [partition])
        expect(run["state"], "failed", f"the state with the bad file, whose rows are {run['rows']}")
        detail = run["error"]["detail"]
        for part in [path, *parts]:
            expect(part in detail, True, f"{part!r} in {detail!r}")
        expect(len(detail) < 2000, True, f"{len(detail)} characters are few")
        expect(looked_at(service, path), before, "the table after the failure")
        kind = run["error"]["type"].rsplit(":", 1)[-1]
        apart = kept_apart(service, run)
        expect(len(apart) > 0, kind == "too-many-rejected", f"{len(apart)} rows were kept apart")
        for row in apart[:1]:
            expect(f"{path}: line {row['source_line']}: " in detail, True, f"the line of {row} in {detail!r}")
        restore(service, path)
        again = service.succeeds(pipeline, [partition])
        expect([entry["outcome"] for entry in again["partitions"]], ["unchanged"], "the outcome with the good file")
        return f"{kind}: {detail}"

    for path, what, change, parts in CASES:
        yield f"bad {path.removeprefix('bad/')}, {what}", lambda p=path, c=change, s=parts: bad(p, c, s)
