"""A job as all contenders are told it: sources to one table with a file for each partition."""

import dataclasses
import datetime

import inputs


@dataclasses.dataclass(frozen=True)
class Job:
    """`start` to `until` is the range of the partitions, half open."""

    name: str
    what: str
    format: str
    sources: tuple
    partition: str
    keys: tuple
    start: str
    until: str
    """Where Refrain finds the sources, as its pipeline says it."""
    path: str
    neighbours: int = 0
    """Whether its totals are published."""
    published: bool = False

    def asked(self, out):
        """What a peer is told."""
        return {
            "what": self.what,
            "format": self.format,
            "sources": list(self.sources),
            "partition": self.partition,
            "from": self.start,
            "until": self.until,
            "out": str(out),
        }

    def pipeline(self):
        """What Refrain is told."""
        return {"trips": trips_pipeline, "stars": stars_pipeline}[self.what](self)


def trips_pipeline(job):
    neighbours = f"neighbours = {job.neighbours}\n" if job.neighbours else ""
    transform = {"pickup_month": "month_of", "pickup_day": "day_of"}[job.partition]
    return f"""name = "{job.name}"
[source]
format = "{job.format}"
path = "{job.path}"
{neighbours}
[source.columns]
tpep_pickup_datetime = "datetime"
PULocationID = "int32"
total_amount = "decimal(18,2)"

[partition]
{job.partition} = {{ {transform} = "tpep_pickup_datetime" }}

[dimensions]
zone = "PULocationID"
pickup_hour = {{ truncate = "tpep_pickup_datetime", to = "hour" }}

[measures]
trips = "count(*)"
revenue = "sum(total_amount)"

[where]
sql = "tpep_pickup_datetime >= '2024-01-01' and tpep_pickup_datetime < '2024-04-01'"
"""


def stars_pipeline(job):
    return f"""name = "{job.name}"
[source]
format = "{job.format}"
path = "{job.path}"

[source.columns]
event_id = {{ type = "string not null", from = "id" }}
event_type = {{ type = "string not null", from = "type" }}
created_at = "datetime(UTC) not null"
repo_id = {{ type = "int64", from = "repo.id" }}
repo_name = {{ type = "string", from = "repo.name" }}

[partition]
{job.partition} = {{ day_of = "created_at" }}

[dimensions]
repo_id = "repo_id"
repo_name = "repo_name"

[measures]
stars = "count(distinct event_id)"

[where]
sql = "event_type = 'WatchEvent'"
"""


QUARTER = ("2024-01-01", "2024-04-01")


def quarter(name, scale, months=tuple(inputs.MONTHS)):
    """The months of the sample, as the shipped example has them; a month's rows are in the files beside its own too."""
    first = datetime.date.fromisoformat(f"{months[0]}-01")
    last = datetime.date.fromisoformat(f"{months[-1]}-01")
    until = (last + datetime.timedelta(days=31)).replace(day=1)
    near = [m for m in inputs.MONTHS if any(abs(int(m[-2:]) - int(of[-2:])) <= 1 for of in months)]
    folder = inputs.sample(scale)
    return Job(
        name=name,
        what="trips",
        format="parquet",
        sources=tuple(f"{folder}/yellow_tripdata_{month}.parquet" for month in near),
        partition="pickup_month",
        keys=tuple(months),
        start=str(first),
        until=str(until),
        path=f"{folder}/yellow_tripdata_%Y-%m.parquet",
        neighbours=1,
        published=scale == 1 and len(months) == len(inputs.MONTHS),
    )


def days(scale):
    """The quarter by days."""
    first = datetime.date(2024, 1, 1)
    keys = tuple(str(first + datetime.timedelta(days=n)) for n in range(91))
    return dataclasses.replace(quarter("days", scale), partition="pickup_day", keys=keys, published=False)


def in_files(scale, count):
    """The quarter where its rows lie in so many files, each of which may have rows of every month."""
    folder = inputs.split(scale, count)
    job = quarter(f"files_{count}", scale)
    path = f"{folder}/*.parquet"
    return dataclasses.replace(job, sources=tuple(inputs.files(folder)), path=path, neighbours=0)


def as_csv(scale):
    folder = inputs.as_csv(scale)
    job = quarter("csv", scale)
    path = f"{folder}/yellow_tripdata_%Y-%m.csv.gz"
    return dataclasses.replace(job, format="csv", sources=tuple(inputs.files(folder)), path=path)


def stars(scale):
    folder = inputs.events(scale)
    return Job(
        name="stars",
        what="stars",
        format="ndjson",
        sources=tuple(inputs.files(folder)),
        partition="event_date",
        keys=(inputs.STARS_DAY,),
        start=inputs.STARS_DAY,
        until=str(datetime.date.fromisoformat(inputs.STARS_DAY) + datetime.timedelta(days=1)),
        path=f"{folder}/%Y-%m-%d-%-H.json.gz",
    )
