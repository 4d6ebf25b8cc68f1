"""The cases: what is measured, by whom, and what Refrain is to reach."""

import dataclasses
import statistics
from collections.abc import Callable

import inputs
import jobs
from peers import Decoded, FromStart, Peer
from refrain import Refrain, Repeated

FROM_START_ROUNDS = 3
# So small that a run of it is all but nothing beside what a run takes anyway.
SMALLEST = 0.001


@dataclasses.dataclass(frozen=True)
class Target:
    """At most `limit`, of what is worked out of the figures; a limit of none is told without a judgement."""

    what: str
    limit: float | None
    of: Callable
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class Case:
    key: str
    title: str
    contenders: Callable
    targets: tuple = ()


@dataclasses.dataclass
class Figures:
    """What a case has given: seconds by name, and the most memory by contender."""

    seconds: dict
    peak_bytes: dict

    def median(self, name):
        return statistics.median(self.seconds[name])

    def ratio(self, name, to):
        return self.median(name) / self.median(to) if to in self.seconds else None


def ratio(name, to):
    return lambda figures: figures.ratio(name, to)


def own_share(figures):
    """In milliseconds: of each run all but its stages of scanning and staging."""
    return figures.median("refrain, its own share") * 1000


def megabytes(name):
    return lambda figures: figures.peak_bytes[name] / 1e6


def all_cases(options):
    """In their order; each makes its sources only when it is asked for its contenders."""
    scale = options.scale
    three = [Refrain, lambda job: Peer("polars", job), lambda job: Peer("duckdb", job)]

    def by_three(job):
        return lambda: [contender(job()) for contender in three]

    def first_build():
        job = jobs.quarter("quarter", scale)
        smallest = Refrain(jobs.quarter("smallest", SMALLEST), "refrain, 9,500 rows")
        spark = [Peer("spark", job), FromStart("spark", job, options.from_start_rounds)] if options.spark else []
        return [*(contender(job) for contender in three), *spark, Decoded(job), smallest]

    yield Case(
        "a",
        "the quarter, three partitions, first build",
        first_build,
        (
            Target("against Polars", 0.65, ratio("refrain", "polars")),
            Target("against DuckDB", 0.60, ratio("refrain", "duckdb")),
            Target("against warm Spark", 0.08, ratio("refrain", "spark")),
            Target("against Spark from start", 0.02, ratio("refrain", "spark, from start")),
            Target("against decoding the columns alone", None, ratio("refrain", "decoded")),
            Target("Refrain's own share: all but scanning and staging", 60, own_share, " ms"),
            Target("all of a run of 9,500 rows", 60, lambda f: f.median("refrain, 9,500 rows") * 1000, " ms"),
            Target("peak memory, server and engine", 250, megabytes("refrain"), " MB"),
            Target("peak memory against Polars", 1.0, lambda f: f.peak_bytes["refrain"] / f.peak_bytes["polars"]),
        ),
    )
    yield Case(
        "b",
        "the quarter, run again unchanged",
        lambda: [Repeated(jobs.quarter("quarter", scale), "refrain, unchanged")],
        (Target("against the first build", 1.0, ratio("refrain, unchanged", "refrain, first build")),),
    )
    yield Case(
        "c",
        "one month of three",
        lambda: [
            Refrain(jobs.quarter("quarter", scale), "refrain, the quarter"),
            *by_three(lambda: jobs.quarter("month", scale, ("2024-02",)))(),
            Decoded(jobs.quarter("month", scale, ("2024-02",))),
        ],
        (
            Target("against the quarter", 0.45, ratio("refrain", "refrain, the quarter")),
            Target("against decoding the columns alone", None, ratio("refrain", "decoded")),
        ),
    )
    yield Case(
        "d",
        "the quarter as 91 daily partitions in one run",
        lambda: [Refrain(jobs.quarter("quarter", scale), "refrain, three partitions"), *by_three(lambda: jobs.days(scale))()],
        (Target("against three partitions", 1.3, ratio("refrain", "refrain, three partitions")),),
    )
    yield Case(
        "e",
        "ten times the rows",
        lambda: [
            Refrain(jobs.quarter("quarter", scale), "refrain, once the rows"),
            *by_three(lambda: jobs.quarter("tenfold", scale * 10))(),
        ],
        (
            Target("time against once the rows", 10.5, ratio("refrain", "refrain, once the rows")),
            Target(
                "peak memory against once the rows",
                1.3,
                lambda f: f.peak_bytes["refrain"] / f.peak_bytes["refrain, once the rows"],
            ),
        ),
    )
    for count in (1, 10, 100, 1000):
        yield Case(f"f{count}", f"the quarter's rows in {count:,} files", by_three(lambda n=count: jobs.in_files(scale, n)))
    yield Case("g", f"{inputs.HOURS} hourly files like GH Archive's (ndjson.gz)", by_three(lambda: jobs.stars(scale)))
    yield Case("h", "the quarter as csv.gz", by_three(lambda: jobs.as_csv(scale)))
