"""Two hours of GH Archive through the shipped pipelines, as they are, from disk and by HTTP."""

import gzip
import json
from collections import Counter

from checks import expect
from files import DATA, by_partition, changed, copy, expected, read_all, rows, shipped
from web import FlakyFiles

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
    service.archive = FlakyFiles(service.folder / "data")
    service.flags += ["--source-hosts", service.archive.host]
    for name in ("github_events_by_type", "github_stars"):
        yield shipped(name)
        yield changed(
            shipped(name),
            (f'name = "{name}"', f'name = "{by_http(name)}"'),
            ('path = "data/', f'path = "http://{service.archive.host}/'),
            ("[source]", "[retry]\nsource = { attempts = 4, delay_seconds = 1 }\n[source]"),
        )


def by_http(name):
    return f"{name}_by_http"


def checks(service):
    def fetched(pipeline, partitions):
        """Through a server that is unavailable twice: the third attempt has the very bytes that came from disk."""
        service.archive.refuse(f"{DAY}-0.json.gz", 2)
        run = service.succeeds(by_http(pipeline), partitions)
        outcomes = [attempt["outcome"] for attempt in run["attempts"]]
        expect(outcomes, ["failed", "failed", "succeeded"], "attempts")
        for attempt in run["attempts"][:2]:
            expect("503" in attempt["error"]["detail"], True, attempt["error"]["detail"])
        sizes = {source["path"]: source["bytes"] for source in run["sources"]}
        want = {f"http://{service.archive.host}/{path.name}": path.stat().st_size for path in service.archive.sent}
        expect(sizes, want, "files and their sizes")
        by_disk = by_partition(service, pipeline)
        for entry in run["partitions"]:
            expect(entry["sha256"], by_disk[entry["partition"]]["sha256"], f"{entry['partition']}: bytes as from disk")
        events = sum(entry["source_rows"] for entry in run["partitions"])
        return f"503 twice, then {len(sizes)} files, {events:,} events, the same bytes as from disk"

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

    hours = [f"event_date={DAY}/hour={hour:02}" for hour in REAL_HOURS]
    yield "GH Archive: counts by type", by_type
    yield "GH Archive: stars per repository", stars
    yield "GH Archive by HTTP: counts by type", lambda: fetched("github_events_by_type", hours)
    yield "GH Archive by HTTP: stars per repository", lambda: fetched("github_stars", [DAY])
