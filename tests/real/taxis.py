"""Months of green-taxi trips: the same month in several encodings is the same bytes."""

from checks import expect
from files import by_partition, changed, copy, expected, read_all, shipped

APRIL = "green_tripdata_2020-04"
JANUARY = "green_tripdata_2024-01.parquet"


def pipelines(service):
    data = service.folder / "data"
    for ending in ("csv.gz", "parquet"):
        copy(f"nyc-tlc-green-2020-csv/{APRIL}.{ending}", data / f"{APRIL}.{ending}")
    copy(f"nyc-tlc-green/{JANUARY}", data / "published" / JANUARY)
    copy(f"nyc-tlc-green-resaved/{JANUARY}", data / "resaved" / JANUARY)
    green = shipped("green_zone_hour")
    csv, path = 'format = "csv"', 'path = "data/green_tripdata_%Y-%m.csv"'
    yield changed(green, (path, path.replace(".csv", ".csv.gz")))

    def of_parquet(name, folder, *changes):
        return changed(
            green,
            ('name = "green_zone_hour"', f'name = "{name}"'),
            (csv, 'format = "parquet"'),
            (path, f'path = "{folder}/green_tripdata_%Y-%m.parquet"'),
            ("[source.csv]", ""),
            ("empty_tail = true", ""),
            *changes,
        )

    text_dates = ('from = "lpep_pickup_datetime" }', 'from = "lpep_pickup_datetime", format = "%Y-%m-%d %H:%M:%S" }')
    yield of_parquet("green_text_dates", "data", text_dates)
    yield of_parquet("green_published", "data/published")
    yield of_parquet("green_resaved", "data/resaved")


def checks(service):
    def month(pipeline, month, file):
        run = service.succeeds(pipeline, [month])
        lines = [line for line in expected("green_file_by_actual_pickup_month.csv") if line["file"] == file]
        want = {line["actual_pickup_month"]: line for line in lines}
        own = want.pop(month)
        entry = by_partition(service, pipeline)[f"pickup_month={month}"]
        expect(
            (entry["source_rows"], entry["totals"]["trips"], entry["totals"]["revenue"], entry["rows"]),
            (int(own["trips"]), int(own["trips"]), own["revenue"], int(own["zone_hourts_buckets"])),
            f"{file}: trips, revenue and buckets of {month}",
        )
        strays = {f"pickup_month={month}": int(line["trips"]) for month, line in want.items()}
        expect(run["rows"]["out_of_scope_by_partition"], strays, f"{file}: strays")
        expect(read_all(run), int(own["trips"]) + sum(strays.values()), f"{file}: rows")
        return entry["sha256"]

    def twins(month_of, *ways):
        digests = {pipeline: month(pipeline, month_of, file) for pipeline, file in ways}
        expect(len(set(digests.values())), 1, f"{digests}: digests")
        totals = by_partition(service, ways[0][0])[f"pickup_month={month_of}"]["totals"]
        return f"{totals['trips']:,} trips, {totals['revenue']}, sha256 {digests[ways[0][0]][:12]}… from both"

    yield "green 2020-04: csv.gz and Parquet with text dates", lambda: twins(
        "2020-04",
        ("green_zone_hour", f"nyc-tlc-green-2020-csv/{APRIL}.csv.gz"),
        ("green_text_dates", f"nyc-tlc-green-2020-csv/{APRIL}.csv.gz"),
    )
    yield "green 2024-01: as published and as resaved by pandas", lambda: twins(
        "2024-01", ("green_published", f"nyc-tlc-green/{JANUARY}"), ("green_resaved", f"nyc-tlc-green-resaved/{JANUARY}")
    )
