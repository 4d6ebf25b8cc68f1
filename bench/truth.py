"""What a job must come to, and whether a table does: rows, counts and exact cents of every partition."""

import functools
import pathlib

import duckdb
import polars as pl

# The sample at scale 1, as the lesson on idempotent jobs that it is made after has it: groups, trips, cents.
PUBLISHED = {
    "2024-01": (77_530, 2_964_617, 7_945_619_867),
    "2024-02": (74_376, 3_007_533, 8_007_379_721),
    "2024-03": (89_011, 3_582_607, 9_716_237_726),
}


class WrongTotals(Exception):
    pass


@functools.cache
def of(job):
    """What both DuckDB and Polars make of the sources, by sums of whole cents, which no contender uses."""
    by_duckdb = {"trips": trips_by_duckdb, "stars": stars_by_duckdb}[job.what](job)
    by_polars = {"trips": trips_by_polars, "stars": stars_by_polars}[job.what](job)
    same(by_duckdb, by_polars, f"{job.name}: the sources, by DuckDB and by Polars")
    if job.published:
        same(by_duckdb, PUBLISHED, f"{job.name}: the sources against what is published")
    return by_duckdb


def check(job, table, writer):
    """Reads a table by an engine that did not write it, and holds it against the truth."""
    read = by_polars if writer == "duckdb" else by_duckdb
    same(read(job, pathlib.Path(table)), of(job), f"{job.name}: the table of {writer}")


def same(found, expected, what):
    if found != expected:
        wrong = {key: (found.get(key), expected.get(key)) for key in found.keys() | expected.keys()}
        wrong = {key: pair for key, pair in sorted(wrong.items()) if pair[0] != pair[1]}
        raise WrongTotals(f"{what}: partitions with what was found and what was expected: {dict(list(wrong.items())[:5])}")


def length_of(job):
    """How many characters of a time are its partition's value."""
    return len(job.keys[0])


def trips_by_duckdb(job):
    with duckdb.connect() as db:
        rows = db.execute(
            f"""
            select part, count(*), sum(trips)::bigint, sum(cents)::bigint
            from (
                select strftime(hour, '%Y-%m-%d')[1:{length_of(job)}] as part, zone, count(*) as trips, sum(cents) as cents
                from (
                    select date_trunc('hour', tpep_pickup_datetime) as hour, PULocationID as zone,
                        round(total_amount::double * 100)::bigint as cents
                    from {duckdb_scan(job)}
                    where tpep_pickup_datetime >= '{job.start}' and tpep_pickup_datetime < '{job.until}'
                )
                group by hour, zone
            )
            group by part
            """
        ).fetchall()
    return {part: tuple(rest) for part, *rest in rows}


def duckdb_scan(job):
    return f"read_{job.format}({list(job.sources)})"


def trips_by_polars(job):
    scan = {"parquet": pl.scan_parquet, "csv": functools.partial(pl.scan_csv, try_parse_dates=True)}[job.format]
    at = pl.col("tpep_pickup_datetime")
    rows = (
        scan(list(job.sources))
        .select(at, "PULocationID", (pl.col("total_amount").cast(pl.Float64) * 100).round().cast(pl.Int64).alias("cents"))
        .filter((at >= pl.lit(job.start).str.to_datetime()) & (at < pl.lit(job.until).str.to_datetime()))
        .group_by(at.dt.truncate("1h").alias("hour"), "PULocationID")
        .agg(pl.len().alias("trips"), pl.col("cents").sum())
        .group_by(pl.col("hour").dt.strftime("%Y-%m-%d").str.head(length_of(job)).alias("part"))
        .agg(pl.len().alias("groups"), pl.col("trips").sum(), pl.col("cents").sum())
        .collect(engine="streaming")
        .rows()
    )
    return {part: tuple(rest) for part, *rest in rows}


def stars_by_duckdb(job):
    with duckdb.connect() as db:
        rows = db.execute(
            f"""
            select made[1:10] as day, count(distinct (repo, name)), count(distinct event), 0
            from (
                select json ->> '$.created_at' as made, json ->> '$.repo.id' as repo, json ->> '$.repo.name' as name,
                    json ->> '$.id' as event, json ->> '$.type' as type
                from read_ndjson_objects({list(job.sources)})
            )
            where type = 'WatchEvent' and made[1:10] = '{job.start}'
            group by day
            """
        ).fetchall()
    return {part: tuple(rest) for part, *rest in rows}


def stars_by_polars(job):
    schema = {"id": pl.String, "type": pl.String, "created_at": pl.String}
    schema["repo"] = pl.Struct({"id": pl.Int64, "name": pl.String})
    events = pl.concat([pl.read_ndjson(file, schema=schema) for file in job.sources])
    day = pl.col("created_at").str.head(10)
    events = events.filter(pl.col("type") == "WatchEvent", day == job.start)
    return {job.start: (events["repo"].n_unique(), events["id"].n_unique(), 0)}


def by_duckdb(job, table):
    measures = {"trips": "sum(trips)::bigint, (sum(revenue) * 100)::bigint", "stars": "sum(stars)::bigint, 0"}[job.what]
    with duckdb.connect() as db:
        scan = f"read_parquet('{table}/**/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
        rows = db.execute(f"select {job.partition}, count(*), {measures} from {scan} group by all").fetchall()
    return {part: tuple(rest) for part, *rest in rows}


def by_polars(job, table):
    frame = pl.scan_parquet(table, hive_partitioning=True, hive_schema={job.partition: pl.String})
    measures = {
        "trips": [pl.sum("trips").cast(pl.Int64), (pl.sum("revenue") * 100).cast(pl.Int64)],
        "stars": [pl.sum("stars").cast(pl.Int64), pl.lit(0).alias("cents")],
    }[job.what]
    grouped = frame.group_by(job.partition).agg(pl.len().alias("groups"), *measures)
    return {part: tuple(rest) for part, *rest in grouped.collect().rows()}
