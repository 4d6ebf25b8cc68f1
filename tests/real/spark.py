"""Folders that Spark wrote, read as sources with all that lies in them."""

from checks import expect
from files import DATA, by_partition, expected, read_all


def pipeline(name, folder, format, columns, keys, measure):
    """Its partition columns are those of the folders, as text."""
    folders = "".join(f'{key} = {{ type = "string", folder = "{of}" }}\n' for key, of in keys.items())
    partition = "".join(f'{key} = {{ value_of = "{key}" }}\n' for key in keys)
    return (
        f'name = "{name}"\n[source]\nformat = "{format}"\npath = "{DATA / folder}/**/*"\n[source.columns]\n{columns}{folders}'
        f'[partition]\n{partition}[measures]\nrows = "count(*)"\n{measure}'
    )


TAXIS = 'total = { type = "decimal(18,2)", from = "total_amount" }\n'
DELTA = {
    "data-reader-escaped-chars": ["_2"],
    "delta-0.8.0-partitioned": ["year", "month", "day"],
    "deltatbl-special-chars-in-partition-column": ["c2"],
}


def pipelines(_):
    months = {"trip_year": "trip_year", "trip_month": "trip_month"}
    yield pipeline("spark_csv", "spark-hive-layout/green-taxi-csv-by-month", "csv", TAXIS, months, 'total = "sum(total)"\n')
    months = {"_pickup_year": "_pickup_year", "_pickup_month": "_pickup_month"}
    yield pipeline(
        "spark_underscore", "spark-hive-layout/underscore-partition-names", "csv", TAXIS, months, 'total = "sum(total)"\n'
    )
    cats = {"cat": "cat", "catnum": "catnum"}
    yield pipeline(
        "spark_split", "spark-hive-layout/fastparquet-split", "parquet", 'num = "int64"\n', cats, 'sum_num = "sum(num)"\n'
    )
    days = 'id = "int64"\nday = { type = "date", from = "Date" }\n'
    dates = pipeline("spark_dates", "spark-hive-layout/spark-date-empty-rg.parq", "parquet", days, {}, 'ids = "sum(id)"\n')
    yield dates.replace("[partition]\n", '[partition]\nday = { day_of = "day" }\n')
    for at, (table, keys) in enumerate(DELTA.items()):
        yield pipeline(f"delta_{at}", f"delta/{table}", "parquet", "", dict(zip(keys, keys)), "")


def checks(service):
    def csv(pipeline, folder):
        run = service.succeeds(pipeline)
        want = {
            line["partition"]: (int(line["rows"]), line["sum_total_amount"])
            for line in expected("spark_csv_partitions.csv")
            if line["table"] == f"spark-hive-layout/{folder}"
        }
        found = {key: (entry["source_rows"], entry["totals"]["total"]) for key, entry in by_partition(service, pipeline).items()}
        expect(found, want, "rows and totals of each partition")
        expect(read_all(run), sum(rows for rows, _ in want.values()), "rows")
        return f"{len(want)} partitions, {read_all(run):,} rows, {service.totals(pipeline)['total']['totals']['total']}"

    yield "Spark's csv by year and month", lambda: csv("spark_csv", "green-taxi-csv-by-month")
    yield "Spark's folders that begin with an underscore", lambda: csv("spark_underscore", "underscore-partition-names")

    want = {
        f"cat={line['cat']}/catnum={line['catnum']}": (int(line["rows"]), int(line["sum_num"]))
        for line in expected("spark_split_partitions.csv")
    }

    def found():
        entries = by_partition(service, "spark_split").items()
        return {key: (entry["source_rows"], entry["totals"]["sum_num"]) for key, entry in entries}

    def fred():
        fred = {key: totals for key, totals in want.items() if key.startswith("cat=fred/")}
        run = service.succeeds("spark_split", [{"cat": "fred", "catnum": key[-1]} for key in fred])
        expect(found(), fred, "cat=fred alone")
        others = sum(rows for key, (rows, _) in want.items() if key not in fred)
        expect(read_all(run) - run["rows"]["in_scope"], others, "rows of cat=freda")
        before = by_partition(service, "spark_split")
        service.succeeds("spark_split", [key for key in want if key not in fred])
        expect(found(), want, "both")
        after = by_partition(service, "spark_split")
        expect({key: after[key] for key in before}, before, "cat=fred is as it was")
        run = service.succeeds("spark_split")
        expect({entry["outcome"] for entry in run["partitions"]}, {"unchanged"}, "outcomes when all is made at once")
        return f"{len(want)} partitions, {read_all(run):,} rows"

    yield "Spark's cat=fred and cat=freda, beside _metadata", fred

    def dates():
        run = service.succeeds("spark_dates")
        entries = by_partition(service, "spark_dates").items()
        found = {key: (entry["source_rows"], entry["totals"]["ids"]) for key, entry in entries}
        expect(found, {"day=2020-01-01": (1, 1), "day=2020-01-02": (1, 2)}, "rows and sums")
        expect((len(run["sources"]), read_all(run)), (3, 2), "files and rows")

    yield "Spark's file without a row group", dates

    def delta(at, table):
        run = service.succeeds(f"delta_{at}")
        line = next(line for line in expected("delta_tables.csv") if line["table"] == table)
        root = DATA / "delta" / table
        folders = {str(file.parent.relative_to(root)) for file in root.rglob("*.parquet")}
        # Delta leaves characters as they are that Hive escapes, and the other way round; the values are the same.
        expect(len(by_partition(service, f"delta_{at}")), len(folders), "partitions")
        want = (int(line["rows_if_globbed"]), int(line["parquet_files_in_directory"]))
        expect((read_all(run), len(run["sources"])), want, "rows and files")
        return ", ".join(sorted(by_partition(service, f"delta_{at}"))[:2])

    for at, table in enumerate(DELTA):
        yield f"files of the Delta table {table}", lambda a=at, t=table: delta(a, t)
