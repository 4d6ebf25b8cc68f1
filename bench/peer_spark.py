"""The job in Spark, all cores of this machine: dynamic partition overwrite, exact decimals, a file for each partition."""

import os

from pyspark.sql import SparkSession, functions as f

SCRATCH = os.environ["REFRAIN_BENCH_SCRATCH"]
os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=f"{SCRATCH}/spark")
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count()),
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.warehouse.dir": f"{SCRATCH}/spark-warehouse",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def session():
    builder = SparkSession.builder.master("local[*]").appName("refrain-bench")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


SPARK = session()


def peak_bytes(of):
    """Of the process of Java, which does the work, and of this one."""
    return of("self") + of(SPARK._jvm.ProcessHandle.current().pid())


def build(job):
    at = f.col("tpep_pickup_datetime").cast("timestamp_ntz")
    needed = SPARK.read.parquet(*job["sources"]).select(
        f.date_trunc("hour", at).cast("timestamp_ntz").alias("pickup_hour"),
        f.col("PULocationID").cast("int").alias("zone"),
        f.col("total_amount").cast("decimal(18,2)").alias("total_amount"),
        at.alias("at"),
    )
    grouped = (
        needed.where(f"at >= timestamp_ntz '{job['from']}' and at < timestamp_ntz '{job['until']}'")
        .groupBy("zone", "pickup_hour")
        .agg(f.count("*").alias("trips"), f.sum("total_amount").alias("revenue"))
        .withColumn("pickup_month", f.date_format("pickup_hour", "yyyy-MM"))
    )
    placed = grouped.repartition("pickup_month").sortWithinPartitions("pickup_month", "zone", "pickup_hour")
    placed.write.mode("overwrite").partitionBy("pickup_month").parquet(job["out"])
