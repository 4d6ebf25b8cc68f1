"""What other engines make of Refrain's tables. `run` beside this file sets it up."""

import math
import pathlib
import sys
import urllib.parse
from decimal import Decimal

import polars as pl

import tables
from checks import all_of, expect
from engines import CSV_READERS, READERS, VERSIONS, Spark, means, plain
from service import Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHOWN = 5


def values_of(key):
    """The values of a canonical key, one text for each partition column."""
    return tuple(urllib.parse.unquote(level.split("=", 1)[1]) for level in key.split("/"))


def same_totals(reader, service, pipeline, keys, sums):
    """Each partition, its values, rows and sums, and no other."""
    listing = service.totals(pipeline)
    entries = listing["partitions"]
    expect(listing["total"]["partitions"], len(entries), "the listing is whole")
    found = reader.totals(service.warehouse / pipeline, keys, sums)
    left = dict(enumerate(found))
    for entry in entries:
        texts = values_of(entry["partition"])
        at = next((at for at, row in left.items() if all(map(means, texts, row))), None)
        if at is None:
            raise AssertionError(f"{entry['partition']}: not read; left are {list(left.values())[:SHOWN]}")
        row = left.pop(at)
        if not reader.infers:
            expect(row[: len(keys)], texts, entry["partition"])
        expected = (str(entry["rows"]), *(str(entry["totals"][s]) for s in sums))
        expect(row[len(keys) :], expected, entry["partition"])
    expect(list(left.values())[:SHOWN], [], "partitions that the API does not list")


def folders(service, pipeline):
    table = service.warehouse / pipeline
    return {str(p.parent.relative_to(table)) for p in table.rglob("*.parquet")}


def as_spark_names_them(service, pipeline, source, keys):
    written = Spark.write_partitioned(service.sources / source, keys, service.folder / f"by-spark-{pipeline}")
    found = folders(service, pipeline)
    expect(sorted(found - written), sorted(written - found), "folders of Refrain alone, and of Spark alone")


def same_rows(service, pipeline, columns, order):
    """Row by row, all readers against the first."""
    first = None
    for reader in READERS:
        if reader.infers:
            frame = reader.rows(service.warehouse / pipeline, columns).sort(order, nulls_last=True)
            rows = [tuple(map(plain, row)) for row in frame.iter_rows()]
            first = first or (reader.name, rows)
            expect(len(rows), len(first[1]), f"rows of {reader.name}")
            for found, expected in zip(rows, first[1]):
                expect(found, expected, f"{reader.name} against {first[0]}")


def types_survive(service):
    """What the readers give is what went in."""
    columns = ["id", *tables.TYPE_COLUMNS]
    written = pl.read_parquet(service.sources / "types.parquet", columns=columns).sort("id")
    read = READERS[0].rows(service.warehouse / "types", columns).sort("id")
    for found, expected in zip(read.iter_rows(), written.iter_rows(), strict=True):
        expect(tuple(map(plain, found)), tuple(map(plain, expected)), "a row of types")


def csv_reads_back(service, compression, read):
    """A csv table, read with the types of its columns, is what went in."""
    table = service.warehouse / f"written_{compression}"
    files = sorted(table.rglob(f"part-0.{tables.COMPRESSIONS[compression]}"))
    expect(len(files), 2, "files")
    given = pl.read_parquet(service.sources / "written.parquet", columns=list(tables.WRITTEN)).sort("id")
    read = pl.concat([read(file, tables.WRITTEN) for file in files]).sort("id")
    for found, expected in zip(read.iter_rows(), given.iter_rows(), strict=True):
        expect(tuple(map(plain, found)), tuple(map(plain, expected)), "a row")


def shortest(text, value):
    """Whether Java's text of a double is the shortest one. Before Java 19 some are not (JDK-4511638)."""
    if value is None or not math.isfinite(value):
        return True
    return Decimal(text) == Decimal(repr(value))


def as_spark_casts(service, pipeline, run, column, to, named):
    """Value by value; a null of Spark's that was none in the source is a row that Refrain rejected."""
    source = service.sources / "numbers.parquet"
    given = pl.read_parquet(source, columns=["id", column]).sort("id").with_columns(pl.col(column).cast(pl.Float64))
    ours = pl.read_parquet(service.warehouse / pipeline / "part=0" / "part-0.parquet", columns=["id", "value"])
    joined = given.join(Spark.cast(source, column, to), on="id").join(ours.with_columns(here=True), on="id", how="left")
    joined = joined.select("id", column, "cast", "value", "text", pl.col("here").is_not_null()).sort("id")
    expect(joined.height, given.height, "rows")
    expect([str(v) for v in joined["value"][:5]], named, "the values named first")

    kept = pl.col("cast").is_not_null() | pl.col(column).is_null()
    wrong = joined.filter((pl.col("here") != kept) | pl.col("cast").ne_missing(pl.col("value"))).rows()
    by_java = [row for row in wrong if not shortest(row[4], row[1])]
    wrong = [row for row in wrong if shortest(row[4], row[1])]
    expect(wrong[:SHOWN], [], f"{len(wrong)} of {joined.height} rows (id, double, Spark, Refrain, Java's text, kept)")
    expect(len(by_java) < joined.height / 100, True, f"{len(by_java)} doubles whose text in Java is not the shortest are few")
    rejected = joined.filter(~pl.col("here")).height
    expect(run["rows"]["rejected"], rejected, "rejected rows in the run's report")
    longer = f", {len(by_java)} left out whose text in Java {Spark.java()} is not the shortest" if by_java else ""
    return f"{joined.height:,} values, {rejected:,} rejected{longer}"


def checks(service, runs):
    """Each check's name and what it does."""

    def totals(pipeline, keys, sums, what):
        for reader in READERS:
            yield f"{what}: totals and partition values, {reader.name}", lambda r=reader: same_totals(
                r, service, pipeline, keys, sums
            )

    yield from totals("trips", ["pickup_month"], tables.TRIPS_SUMS, "trips by month")
    trips = ["zone", "pickup_hour", "pickup_month", *tables.TRIPS_SUMS, "least", "greatest", "mean", "fares", "last"]
    yield "trips by month: rows", lambda: same_rows(service, "trips", trips, ["zone", "pickup_hour"])
    yield from totals("tags", ["tag"], ["records", "total"], "awkward values")
    yield "awkward values: folder names", lambda: as_spark_names_them(service, "tags", "tags.parquet", ["tag"])
    yield from totals("events", ["event_date", "hour"], ["records", "total"], "day and hour, beside _SUCCESS")
    yield "day and hour: _SUCCESS", lambda: expect((service.warehouse / "events" / "_SUCCESS").exists(), True, "_SUCCESS")
    for kind, of_type in tables.KINDS.items():
        yield from totals(f"by_{kind}", [kind], ["records", "total"], f"{of_type} values")
        yield f"{of_type} values: folder names", lambda k=kind: as_spark_names_them(service, f"by_{k}", "kinds.parquet", [k])
    yield "every type: rows", lambda: same_rows(service, "types", ["id", *tables.TYPE_COLUMNS], ["id"])
    yield "every type: what went in", lambda: types_survive(service)
    for compression in tables.COMPRESSIONS:
        for name, read in CSV_READERS.items():
            yield f"csv, compression {compression}: what went in, {name}", lambda c=compression, r=read: csv_reads_back(
                service, c, r
            )
    for at, cast in enumerate(tables.CASTS):
        yield f"{cast[0]} as {cast[1]}: as Spark's cast", lambda p=f"numbers_{at}", c=cast: as_spark_casts(
            service, p, runs[p], *c
        )


def main(words):
    data = ROOT.parent / "shared" / "data"
    print(f"==> {VERSIONS}; trips are {'real' if (data / 'nyc-tlc-green').exists() else 'made'}")
    with Service() as service:
        texts = [tables.trips(service, data), tables.tags(service), tables.events(service), tables.types(service)]
        for text in [*texts, *tables.kinds(service), *tables.numbers(service), *tables.written(service)]:
            service.pipeline(text)
        service.start()
        runs = {p.stem: service.succeeds(p.stem) for p in sorted((service.folder / "pipelines").iterdir())}
        Spark.start(service.folder)
        try:
            return all_of(checks(service, runs), words)
        finally:
            Spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
