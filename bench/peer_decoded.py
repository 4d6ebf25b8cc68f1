"""No job, but what none can do without: the columns that must be looked at, decoded by Polars and thrown away. Of a file beside the
months that are wanted that is the time alone, for any row may be of any month."""

import polars as pl

TIME = "tpep_pickup_datetime"
OTHERS = ["PULocationID", "total_amount"]


def peak_bytes(of):
    return of("self")


def build(job):
    for file in job["sources"]:
        month = file.removesuffix(".parquet")[-len("2024-01") :]
        is_wanted = job["from"][:7] <= month < job["until"][:7]
        decoded = pl.read_parquet(file, columns=[TIME, *(OTHERS if is_wanted else [])]).height
        rows = pl.scan_parquet(file).select(pl.len()).collect().item()
        if decoded != rows:
            raise RuntimeError(f"{file}: {decoded} rows were decoded, expected {rows}")
