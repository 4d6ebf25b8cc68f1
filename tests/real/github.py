"""Two hours of GH Archive through the shipped pipelines, as they are."""

import gzip
import json
from collections import Counter

from checks import expect
from files import DATA, by_partition, copy, expected, read_all, rows, shipped

DAY = "2015-01-01"
REAL_HOURS = (0, 1)


def pipelines(service):
    for hour in REAL_HOURS:
        copy(f"gharchive/{DAY}-{hour}.json.gz", service.folder / "data" / f"{DAY}-{hour}.json.gz")
    # A day needs all of its hours: the others have one push each, of a real line.
    with gzip.open(DATA / "gharchive" / f"{DAY}-0.json.gz") as lines:
        push = next(event for event in map(json.loads, lines) if event["type"] == "PushEvent")
    for hour in set(range(24)) - set(REAL_HOURS):
        push["created_at"] = f"{DAY}T{hour:02}:00:00Z"
        with gzip.open(service.folder / "data" / f"{DAY}-{hour}.json.gz", "wt") as file:
            file.write(json.dumps(push) + "\n")
    yield shipped("github_events_by_type")
    yield shipped("github_stars")


def checks(service):
    def by_type():
        run = service.succeeds("github_events_by_type")
        listed = by_partition(service, "github_events_by_type")
        expect(len(listed), 24, "hours")
        compared = 0
        for hour in REAL_HOURS:
            key = f"event_date={DAY}/hour={hour:02}"
            lines = [line for line in expected("gharchive_type_counts.csv") if line["hour_utc"] == f"{DAY}T{hour:02}"]
            want = {line["type"]: int(line["events"]) for line in lines}
            found = rows(service, "github_events_by_type", key)
            expect(dict(found.iter_rows()), want, key)
            expect(listed[key]["totals"]["events"], sum(want.values()), f"{key}: total")
            compared += len(want)
        events = sum(int(line["events"]) for line in expected("gharchive_type_counts.csv"))
        expect(read_all(run), events + 22, "rows read")
        return f"{compared} counts of {events:,} events"

    def stars():
        run = service.succeeds("github_stars", [DAY])
        want = Counter()
        for line in expected("gharchive_stars_per_repo.csv"):
            want[int(line["repo_id"]), line["repo_name"]] += int(line["stars"])
        found = {(repo, name): stars for repo, name, stars in rows(service, "github_stars", f"event_date={DAY}").iter_rows()}
        expect(found, dict(want), "stars per repository")
        expect(run["rows"]["in_scope"], want.total(), "stars in all")
        expect(len(run["sources"]), 24, "files")
        read_all(run)
        return f"{want.total():,} stars of {len(want):,} repositories, most {max(want.values())}"

    yield "GH Archive: counts by type", by_type
    yield "GH Archive: stars per repository", stars
