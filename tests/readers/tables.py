"""The pipelines of the checks and their sources: real files where they are, else made ones; the seed is fixed."""

import datetime
import json
import math
import random
import shutil
import struct
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20240229
MONTHS = ["2023-01", "2023-02", "2023-03"]


def pipeline(name, path, columns, partition, dimensions, measures):
    """A pipeline file, from lists of `key = value` lines. The bad rows are part of the checks, so all may be bad."""
    return "\n".join(
        [
            f'name = "{name}"', "max_rejected = 1.0",
            "[source]", 'format = "parquet"', f"path = {json.dumps(path)}",
            "[source.columns]", *columns,
            "[partition]", *partition,
            "[dimensions]", *dimensions,
            "[measures]", *measures, "",
        ]
    )  # fmt: skip


def trips(service, data):
    """Green taxis by zone and hour: what the TLC published, whose column types change between files, or made rows."""
    real = data / "nyc-tlc-green"
    for month in MONTHS:
        name = f"green_tripdata_{month}.parquet"
        if (real / name).exists():
            shutil.copy(real / name, service.sources / name)
        else:
            pq.write_table(made_trips(month), service.sources / name)
    return pipeline(
        "trips",
        "sources/green_tripdata_*.parquet",
        [
            'lpep_pickup_datetime = "datetime"', 'PULocationID = "int32"', 'passenger_count = "int64"',
            'trip_distance = "decimal(12,4)"', 'total_amount = "decimal(18,2)"', 'tip_amount = "decimal(9,2)"',
        ],
        ['pickup_month = { month_of = "lpep_pickup_datetime" }'],
        ['zone = "PULocationID"', 'pickup_hour = { truncate = "lpep_pickup_datetime", to = "hour" }'],
        [
            'trips = "count(*)"', 'counted = "count(passenger_count)"', 'passengers = "sum(passenger_count)"',
            'revenue = "sum(total_amount)"', 'tips = "sum(tip_amount)"', 'distance = "sum(trip_distance)"',
            'least = "min(total_amount)"', 'greatest = "max(total_amount)"', 'mean = "avg(total_amount)"',
            'fares = "count(distinct total_amount)"', 'last = "max(lpep_pickup_datetime)"',
        ],
    )  # fmt: skip


TRIPS_SUMS = ["trips", "counted", "passengers", "revenue", "tips", "distance"]


def made_trips(month):
    dice = random.Random(f"{SEED} {month}")
    start = datetime.datetime.fromisoformat(f"{month}-01")
    count = 20_000
    amounts = [dice.randint(-2_000, 9_000) / 100 for _ in range(count)]
    return pa.table(
        {
            "lpep_pickup_datetime": [start + datetime.timedelta(seconds=dice.randrange(28 * 86_400)) for _ in range(count)],
            "PULocationID": pa.array([dice.randint(1, 265) for _ in range(count)], pa.int32()),
            "passenger_count": [dice.choice([None, 1.0, 2.0, 6.0]) for _ in range(count)],
            "trip_distance": [dice.randrange(10_000) / 100 for _ in range(count)],
            "total_amount": amounts,
            "tip_amount": [abs(a) / 8 for a in amounts],
        }
    )


# What file systems, URLs and readers might take for something else.
NAMED = ["a/b", "a:b", "a b", "a%2Fb", "..", "é", "x=y", "100%", "'q'", "tab\t", "../../x", " lead", "a+b", "a%20b", "日本語", "😀",
         "e\u0301", "~", "-", "a.b", "null", "x" * 200]  # fmt: skip
TAGS = NAMED + [f"x{chr(c)}y" for c in range(1, 128)]


def tags(service):
    """Every awkward value and every ASCII character as a partition of its own."""
    table = pa.table({"tag": TAGS, "weight": pa.array(range(1, len(TAGS) + 1), pa.int64())})
    pq.write_table(table, service.sources / "tags.parquet")
    return pipeline(
        "tags", "sources/tags.parquet", ['tag = "string"', 'weight = "int64"'], ['tag = { value_of = "tag" }'],
        ['weight = "weight"'], ['records = "count(*)"', 'total = "sum(weight)"'],
    )  # fmt: skip


KINDS = {"flag": "bool", "number": "int32", "day": "date", "at": "datetime", "price": "decimal(9,2)"}


def kinds(service):
    """A source of every type whose values can be partitions; one pipeline for each."""
    values = {
        "flag": pa.array([True, False, True], pa.bool_()),
        "number": pa.array([-5, 0, 2_147_483_647], pa.int32()),
        "day": pa.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]),
        "at": pa.array([datetime.datetime(2024, 2, 29, 23, 59, 59, 120_000), datetime.datetime(2024, 1, 1),
                        datetime.datetime(1970, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")),
        "price": pa.array([Decimal("-0.05"), Decimal("1234567.80"), Decimal("0.00")], pa.decimal128(9, 2)),
        "weight": pa.array([1, 2, 3], pa.int64()),
    }  # fmt: skip
    pq.write_table(pa.table(values), service.sources / "kinds.parquet")
    return [
        pipeline(
            f"by_{name}", "sources/kinds.parquet", [f'{name} = "{kind}"', 'weight = "int64"'],
            [f'{name} = {{ value_of = "{name}" }}'], ['weight = "weight"'], ['records = "count(*)"', 'total = "sum(weight)"'],
        )
        for name, kind in KINDS.items()
    ]  # fmt: skip


def events(service):
    """Two levels, a day and an hour of the day."""
    start = datetime.datetime(2015, 1, 1, 7, 30)
    at = [start + datetime.timedelta(minutes=37 * i) for i in range(200)]
    table = pa.table({"at": pa.array(at, pa.timestamp("us")), "cents": pa.array(range(200), pa.int64())})
    pq.write_table(table, service.sources / "events.parquet")
    return pipeline(
        "events", "sources/events.parquet", ['at = "datetime"', 'cents = "int64"'],
        ['event_date = { day_of = "at" }', 'hour = { hour_of_day = "at" }'],
        ['minute = { truncate = "at", to = "minute" }'], ['records = "count(*)"', 'total = "sum(cents)"'],
    )  # fmt: skip


# Contract type -> Arrow type and values; each is a column of the output, with nulls.
TYPES = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-32768, 32767]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 65535]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "float32": (pa.float32(), [0.1, math.inf, -1.5e-45, math.nan]),
    "float64": (pa.float64(), [0.1, -math.inf, 5e-324, math.nan]),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
    "decimal(18,2)": (pa.decimal128(18, 2), [Decimal("-9999999999999999.99"), Decimal("0.01")]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")]),
    "string": (pa.string(), ["", "é", "a\0b", "long " * 50]),
    "date": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "datetime": (pa.timestamp("us"), [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(2024, 3, 10, 2, 30)]),
    "datetime(America/New_York)": (
        pa.timestamp("us", "UTC"), [datetime.datetime(2024, 3, 10, 7, 30, tzinfo=datetime.timezone.utc)],
    ),
}  # fmt: skip
TYPE_COLUMNS = {f"c{at}": kind for at, kind in enumerate(TYPES)}


def types(service):
    """Every type of the contract as an output column: as a dimension, or as a minimum where floats may be none."""
    count = 2_000
    columns = {"id": pa.array(range(count), pa.int64()), "part": pa.array([i % 2 for i in range(count)], pa.int32())}
    for name, kind in TYPE_COLUMNS.items():
        arrow, values = TYPES[kind]
        cycle = [*values, None]
        columns[name] = pa.array([cycle[i // 2 % len(cycle)] for i in range(count)], arrow)
    pq.write_table(pa.table(columns), service.sources / "types.parquet")
    floats = [name for name, kind in TYPE_COLUMNS.items() if kind.startswith("float")]
    return pipeline(
        "types", "sources/types.parquet",
        ['id = "int64"', 'part = "int32"', *(f'{name} = "{kind}"' for name, kind in TYPE_COLUMNS.items())],
        ['part = { value_of = "part" }'],
        ['id = "id"', *(f'{name} = "{name}"' for name in TYPE_COLUMNS if name not in floats)],
        [f'{name} = "min({name})"' for name in floats],
    )  # fmt: skip


# Output column of a csv table -> DuckDB type, Polars type, Arrow type and values.
WRITTEN = {
    "id": ("bigint", pl.Int64, pa.int64(), None),
    "note": ("varchar", pl.String, pa.string(), ["", None, "a,b", '"', '""', "two\nlines", "\r\n", " x ", "é", "null", "'"]),
    "flag": ("boolean", pl.Boolean, pa.bool_(), [True, False, None]),
    "size": ("double", pl.Float64, pa.float64(), [0.1, -1e300, 5e-324, 1e16, 0.0, None]),
    "price": ("decimal(18,2)", pl.Decimal(18, 2), pa.decimal128(18, 2), [Decimal("-0.05"), Decimal("1234567.80"), None]),
    "day": ("date", pl.Date, pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]),
    "at": ("timestamp", pl.Datetime("us"), pa.timestamp("us"),
           [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(2024, 3, 10, 2, 30), None]),
}  # fmt: skip
COMPRESSIONS = {"none": "csv", "gzip": "csv.gz", "zstd": "csv.zst"}


def written(service):
    """Rows as csv, once with each compression."""
    count = 500
    columns = {"id": pa.array(range(count), pa.int64()), "part": pa.array([i % 2 for i in range(count)], pa.int32())}
    for name, (_, _, arrow, values) in WRITTEN.items():
        if values:
            columns[name] = pa.array([values[i % len(values)] for i in range(count)], arrow)
    pq.write_table(pa.table(columns), service.sources / "written.parquet")
    contract = {"id": "int64", "note": "string", "flag": "bool", "size": "float64", "price": "decimal(18,2)", "day": "date", "at": "datetime"}
    kept = [f'{name} = "{name}"' for name in WRITTEN]
    return [
        "\n".join(
            [
                f'name = "written_{compression}"', 'sort_by = ["id"]',
                "[source]", 'format = "parquet"', 'path = "sources/written.parquet"',
                "[source.columns]", 'part = "int32"', *(f'{name} = "{kind}"' for name, kind in contract.items()),
                "[partition]", 'part = { value_of = "part" }', "[columns]", *kept,
                "[table]", 'format = "csv"', f'compression = "{compression}"', "",
            ]
        )
        for compression in COMPRESSIONS
    ]  # fmt: skip


def doubles():
    """Ties, texts that lie, both ends of the range, and what is no number; then random ones of every size."""
    dice = random.Random(SEED)
    nasty = [1.145, 0.125, -0.125, 1e16, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.005, -0.005, 2.675, 1.005, 1e15, -1e15,
             1e-300, 5e-324, 1.7976931348623157e308, 9999999999999998.0, -9999999999999998.0, 9999999999999.995, 999999999999.995,
             0.004999999999999999, 0.0049999999999999999, 0.1 + 0.2, 4503599627370497.5, 9007199254740993.0, 2**53 + 2.0, 1e22, 1e23]  # fmt: skip
    ties = [sign * (n + 0.5) / 100 for n in [*range(2_000), *(dice.randrange(10**13) for _ in range(8_000))] for sign in (1, -1)]
    near = [math.nextafter(x, to) for x in ties[::3] for to in (-math.inf, math.inf)]
    cents = [dice.randrange(-(10**14), 10**14) / 100 for _ in range(20_000)]
    sizes = [dice.choice([1, -1]) * dice.random() * 10 ** dice.uniform(-6, 17) for _ in range(100_000)]
    eighths = [dice.randrange(-(10**15), 10**15) / 8 for _ in range(20_000)]
    bits = [struct.unpack("<d", dice.randbytes(8))[0] for _ in range(20_000)]
    return [*nasty, None, *ties, *near, *cents, *sizes, *eighths, *bits]


# Source column, type, and what becomes of 1.145, 0.125, -0.125, 1e16 and NaN. The float nearest to 1.145 is below it.
CASTS = [
    ("double", "decimal(18,2)", ["1.15", "0.13", "-0.13", "None", "None"]),
    ("single", "decimal(18,2)", ["1.14", "0.13", "-0.13", "None", "None"]),
    ("double", "decimal(9,4)", ["1.1450", "0.1250", "-0.1250", "None", "None"]),
    ("double", "decimal(38,10)", ["1.1450000000", "0.1250000000", "-0.1250000000", "10000000000000000.0000000000", "None"]),
]


def numbers(service):
    """One row for each double, as a double and as a float; a pipeline for each cast, since a bad value costs its row."""
    values = doubles()
    single = [None if x is None else x if abs(x) < 3e38 or not math.isfinite(x) else math.copysign(math.inf, x) for x in values]
    table = {
        "id": pa.array(range(len(values)), pa.int64()),
        "part": pa.array([0] * len(values), pa.int32()),
        "double": pa.array(values, pa.float64()),
        "single": pa.array(single, pa.float64()).cast(pa.float32(), safe=False),
    }
    pq.write_table(pa.table(table), service.sources / "numbers.parquet")
    return [
        pipeline(
            f"numbers_{at}", "sources/numbers.parquet", ['id = "int64"', 'part = "int32"', f'{column} = "{to}"'],
            ['part = { value_of = "part" }'], ['id = "id"'], [f'value = "max({column})"'],
        )
        for at, (column, to, _) in enumerate(CASTS)
    ]  # fmt: skip
