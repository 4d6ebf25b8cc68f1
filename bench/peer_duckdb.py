"""The jobs in DuckDB for Python: one query into a table, exact decimals, a file for each partition."""

import pathlib

import duckdb

DB = duckdb.connect()
DB.execute("set preserve_insertion_order = false")


def peak_bytes(of):
    return of("self")


def build(job):
    DB.execute(f"create or replace temp table built as {QUERIES[job['what']](job)}")
    order = {"trips": "zone, pickup_hour", "stars": "repo_id, repo_name"}[job["what"]]
    for (value,) in DB.execute("select distinct part from built").fetchall():
        folder = pathlib.Path(job["out"]) / f"{job['partition']}={value}"
        folder.mkdir(parents=True)
        DB.execute(
            f"copy (select * exclude (part) from built where part = '{value}' order by {order}) "
            f"to '{folder}/part-0.parquet' (format parquet, compression zstd)"
        )


def trips(job):
    grain = {"pickup_month": "%Y-%m", "pickup_day": "%Y-%m-%d"}[job["partition"]]
    return f"""
        select strftime(pickup_hour, '{grain}') as part, zone, pickup_hour, trips, revenue
        from (
            select cast("PULocationID" as integer) as zone,
                date_trunc('hour', cast(tpep_pickup_datetime as timestamp)) as pickup_hour,
                count(*) as trips, sum(cast(total_amount as decimal(18, 2))) as revenue
            from {SCANS[job["format"]](job["sources"])}
            where tpep_pickup_datetime >= timestamp '{job["from"]}' and tpep_pickup_datetime < timestamp '{job["until"]}'
            group by all
        )"""


def stars(job):
    columns = "{id: 'VARCHAR', type: 'VARCHAR', created_at: 'VARCHAR', repo: 'STRUCT(id BIGINT, name VARCHAR)'}"
    return f"""
        select created_at[1:10] as part, repo.id as repo_id, repo.name as repo_name, count(distinct id) as stars
        from read_ndjson({job["sources"]}, columns = {columns})
        where type = 'WatchEvent' and created_at[1:10] = '{job["from"]}'
        group by all"""


def parquet(files):
    """By name and with types that may drift from file to file."""
    return f"read_parquet({files}, union_by_name = true)"


def csv(files):
    types = "{tpep_pickup_datetime: 'TIMESTAMP', PULocationID: 'INTEGER', total_amount: 'DECIMAL(18,2)'}"
    return f"read_csv({files}, header = true, types = {types})"


QUERIES = {"trips": trips, "stars": stars}
SCANS = {"parquet": parquet, "csv": csv}
