"""DuckDB, Polars and Spark as readers of a Hive dataset: each is given a table's folder and nothing else."""

import datetime
import decimal
import os

import duckdb
import polars as pl
import pyspark
from pyspark.sql import SparkSession


class DuckDB:
    """`read_parquet` with hive_partitioning; partition values as text, or of the types that it sees in them."""

    def __init__(self, infers):
        self.infers = infers
        self.name = f"DuckDB, values {'inferred' if infers else 'as text'}"

    def _scan(self, folder):
        return (
            f"read_parquet('{folder}/**/*.parquet', hive_partitioning = true, "
            f"hive_types_autocast = {str(self.infers).lower()})"
        )

    def totals(self, folder, keys, sums):
        keys = ", ".join(f'"{k}"' for k in keys)
        sums = "".join(f', sum("{s}")::varchar' for s in sums)
        with duckdb.connect() as db:
            return db.sql(f"select {keys}, count(*)::varchar{sums} from {self._scan(folder)} group by {keys}").fetchall()

    def rows(self, folder, columns):
        names = ", ".join(f'"{c}"' for c in columns)
        with duckdb.connect() as db:
            return db.sql(f"select {names} from {self._scan(folder)}").pl()


class Polars:
    """`scan_parquet` of the bare folder."""

    def __init__(self, infers):
        self.infers = infers
        self.name = f"Polars, values {'inferred' if infers else 'as text'}"

    def _scan(self, folder, keys):
        schema = None if self.infers else dict.fromkeys(keys, pl.String)
        return pl.scan_parquet(folder, hive_partitioning=True, hive_schema=schema)

    def totals(self, folder, keys, sums):
        sums = [pl.col(s).sum().cast(pl.String) for s in sums]
        grouped = self._scan(folder, keys).group_by(keys).agg(pl.len().cast(pl.String).alias("rows of the table"), *sums)
        return grouped.collect().rows()

    def rows(self, folder, columns):
        return self._scan(folder, []).select(columns).collect()


class Spark:
    """`spark.read.parquet` of the bare folder."""

    session = None

    def __init__(self, infers):
        self.infers = infers
        self.name = f"Spark, values {'inferred' if infers else 'as text'}"

    @classmethod
    def start(cls, scratch):
        """One small local session for all; casts give null and not an error, as they did before Spark 4."""
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{scratch}/spark-warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=f"{scratch}/spark")
        builder = SparkSession.builder.master("local[2]").appName("refrain-readers")
        for key, value in settings.items():
            builder = builder.config(key, value)
        cls.session = builder.getOrCreate()
        cls.session.sparkContext.setLogLevel("ERROR")

    @classmethod
    def stop(cls):
        if cls.session:
            cls.session.stop()

    def _read(self, folder):
        self.session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", str(self.infers).lower())
        return self.session.read.parquet(str(folder))

    def totals(self, folder, keys, sums):
        quoted = [f"`{k}`" for k in keys]
        sums = [f"cast(sum(`{s}`) as string)" for s in sums]
        self._read(folder).createOrReplaceTempView("t")
        query = f"select {', '.join([*quoted, 'cast(count(*) as string)', *sums])} from t group by {', '.join(quoted)}"
        return [tuple(row) for row in self.session.sql(query).collect()]

    def rows(self, folder, columns):
        return pl.from_arrow(self._read(folder).select([f"`{c}`" for c in columns]).toArrow())

    @classmethod
    def write_partitioned(cls, source, keys, folder):
        """The names of the folders that Spark makes of a file's columns."""
        frame = cls.session.read.parquet(str(source))
        frame.select(*keys, frame[keys[0]].alias("kept")).distinct().write.partitionBy(*keys).parquet(str(folder))
        return {str(p.parent.relative_to(folder)) for p in folder.rglob("*.parquet")}

    @classmethod
    def cast(cls, source, column, to):
        """Spark's cast of a file's column, and the text from which it is made, by row id."""
        text = f"cast(cast({column} as double) as string) as text"
        return pl.from_arrow(cls.session.read.parquet(str(source)).selectExpr("id", f"cast({column} as {to}) as cast", text).toArrow())

    @classmethod
    def java(cls):
        """The version of its Java."""
        return cls.session._jvm.System.getProperty("java.version")


def csv_by_duckdb(path, columns):
    """What is in quotes is no null."""
    types = {name: kind[0] for name, kind in columns.items()}
    options = "header = true, allow_quoted_nulls = false, hive_partitioning = false"
    with duckdb.connect() as db:
        return db.sql(f"select * from read_csv('{path}', columns = {types}, {options})").pl()


def csv_by_polars(path, columns):
    return pl.read_csv(path, schema={name: kind[1] for name, kind in columns.items()}, try_parse_dates=True)


CSV_READERS = {"DuckDB": csv_by_duckdb, "Polars": csv_by_polars}
READERS = [kind(infers) for kind in (DuckDB, Polars, Spark) for infers in (False, True)]
VERSIONS = f"DuckDB {duckdb.__version__}, Polars {pl.__version__}, Spark {pyspark.__version__}"


def plain(value):
    """A value in a form that is equal where readers mean the same: numbers whatever their width, times as instants."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
        return value
    return decimal.Decimal(value)


def means(text, value):
    """Whether what a reader gave for a partition value is what the text in the API means."""
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, (int, float, decimal.Decimal)):
        return decimal.Decimal(text) == decimal.Decimal(str(value))
    if isinstance(value, datetime.datetime) and value.microsecond:
        return text == str(value).rstrip("0")
    return text == str(value)
