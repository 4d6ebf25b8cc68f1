"""The jobs in Polars for Python: a lazy scan of the needed columns, streaming, exact decimals, a file for each partition."""

import pathlib

import polars as pl

MONEY = pl.Decimal(18, 2)
# From here on a scan of each file costs more than it brings: these are taken to be of one schema.
MANY_FILES = 20


def peak_bytes(of):
    return of("self")


def build(job):
    frame = {"trips": trips, "stars": stars}[job["what"]](job).collect(engine="streaming")
    for (value, *_), part in frame.partition_by("part", as_dict=True, include_key=False).items():
        folder = pathlib.Path(job["out"]) / f"{job['partition']}={value}"
        folder.mkdir(parents=True)
        part.write_parquet(folder / "part-0.parquet", compression="zstd")


def trips(job):
    grain = {"pickup_month": "%Y-%m", "pickup_day": "%Y-%m-%d"}[job["partition"]]
    at = pl.col("tpep_pickup_datetime")
    return (
        SCANS[job["format"]](job["sources"])
        .filter((at >= pl.lit(job["from"]).str.to_datetime()) & (at < pl.lit(job["until"]).str.to_datetime()))
        .group_by(pl.col("PULocationID").alias("zone"), at.dt.truncate("1h").alias("pickup_hour"))
        .agg(pl.len().alias("trips"), pl.col("total_amount").sum().alias("revenue"))
        .with_columns(pl.col("pickup_hour").dt.strftime(grain).alias("part"))
        .sort("part", "zone", "pickup_hour")
    )


def stars(job):
    schema = {"id": pl.String, "type": pl.String, "created_at": pl.String}
    schema["repo"] = pl.Struct({"id": pl.Int64, "name": pl.String})
    return (
        pl.scan_ndjson(job["sources"], schema=schema)
        .filter(pl.col("type") == "WatchEvent", pl.col("created_at").str.head(10) == job["from"])
        .group_by(
            pl.col("created_at").str.head(10).alias("part"),
            pl.col("repo").struct.field("id").alias("repo_id"),
            pl.col("repo").struct.field("name").alias("repo_name"),
        )
        .agg(pl.col("id").n_unique().alias("stars"))
        .sort("part", "repo_id", "repo_name")
    )


def needed(frame):
    return frame.select(
        pl.col("tpep_pickup_datetime").cast(pl.Datetime("us")),
        pl.col("PULocationID").cast(pl.Int32),
        pl.col("total_amount").cast(MONEY),
    )


def parquet(files):
    """File by file, since files of one table drift in type."""
    if len(files) > MANY_FILES:
        return needed(pl.scan_parquet(files))
    return pl.concat([needed(pl.scan_parquet(file)) for file in files])


def csv(files):
    types = {"tpep_pickup_datetime": pl.Datetime("us"), "PULocationID": pl.Int32, "total_amount": MONEY}
    return needed(pl.concat([pl.scan_csv(file, schema_overrides=types) for file in files]))


SCANS = {"parquet": parquet, "csv": csv}
