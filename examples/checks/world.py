"""The made-up quarter, a Refrain over it, and what must hold of its table whoever asked for it."""

import os
import pathlib
import re
import subprocess

from checks import expect
from service import Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# Rows, trips and revenue by month: those of the README.
KNOWN = {
    "2024-01": (77530, 2964617, "79456198.67"),
    "2024-02": (74376, 3007533, "80073797.21"),
    "2024-03": (89011, 3582607, "97162377.26"),
}
TOTAL = (240917, 9554757, "256692373.14")
NOTE = "totals as known"


def make_sample(folder):
    folder.mkdir()
    print("==> making the sample", flush=True)
    subprocess.run([os.environ["REFRAIN_BIN"], "sample", "--out", folder], check=True, capture_output=True, timeout=300)


class World(Service):
    """A service of its own over the shipped pipelines and links to the sample's files."""

    def __init__(self, sample):
        super().__init__()
        self.sample = sample
        self.data = self.folder / "data"
        self.data.mkdir()
        for file in sample.glob("*.parquet"):
            (self.data / file.name).symlink_to(file)
        for name in ("zone_hour", "zone_hour_by_file"):
            text = (ROOT / "pipelines" / f"{name}.toml").read_text()
            # One attempt at a missing file, so that the run fails at once and not in minutes.
            once = 'source = { attempts = 1 }'
            text, found = re.subn(r"source = \{ attempts = .*\}", once, text)
            self.pipeline(text if found else f"{text}\n[retry]\n{once}\n")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def source(self, month):
        return self.data / f"yellow_tripdata_{month}.parquet"

    def take_away(self, month):
        self.source(month).unlink()

    def bring_back(self, month):
        self.source(month).symlink_to(self.sample / self.source(month).name)

    def runs(self, key_part=""):
        """The runs whose keys hold this text."""
        status, page = self.call("GET", "/runs?limit=1000")
        expect(status, 200, "GET /runs")
        return [run for run in page["runs"] if key_part in run["idempotency_key"]]

    def run_of(self, run_id):
        status, run = self.call("GET", f"/runs/{run_id}")
        expect(status, 200, f"GET /runs/{run_id}")
        return run

    def has(self, *months):
        """The table holds these months with the known totals, and no other; gives its version."""
        listing = self.totals("zone_hour")
        found = {
            p["partition"].removeprefix("pickup_month="): (p["rows"], p["totals"]["trips"], p["totals"]["revenue"])
            for p in listing["partitions"]
        }
        expect(found, {month: KNOWN[month] for month in months}, "rows, trips and revenue by month")
        if set(months) == set(KNOWN):
            total = listing["total"]
            expect((total["rows"], total["totals"]["trips"], total["totals"]["revenue"]), TOTAL, "the total")
        return listing["version"]


def lost_answer(world, submissions, pipeline="zone_hour"):
    """The submission whose answer was lost, and those that repeated it: one run, under one key."""
    lost = next((s for s in submissions if s.swallowed), None)
    expect(lost is not None, True, "an answer was swallowed")
    same = [s for s in submissions if s.key == lost.key]
    expect([s.replayed for s in same[:2]], [False, True], f"Idempotent-Replayed of the submissions under {lost.key}")
    expect({s.run for s in same}, {lost.run}, "the runs in their answers")
    expect([run["id"] for run in world.runs() if run["idempotency_key"] == lost.key], [lost.run], "runs under the key")
    run = world.run_of(lost.run)
    expect((run["state"], len(run["attempts"])), ("succeeded", 1), "the run")
    return f"{len(same)} submissions, 1 run, Idempotent-Replayed"


def same_run_again(world, run_id, attempts=2):
    """A run that failed, and succeeded under its key with one more attempt."""
    run = world.run_of(run_id)
    expect([a["outcome"] for a in run["attempts"]], ["failed"] * (attempts - 1) + ["succeeded"], "the attempts")
    expect(len([r for r in world.runs() if r["idempotency_key"] == run["idempotency_key"]]), 1, "runs under the key")
    return f"same run, attempts: {', '.join(a['outcome'] for a in run['attempts'])}"


def fails_of_missing_source(world, month, told):
    """The last run failed since this month's file is missing, and the tool's own record says so in Refrain's words."""
    run = world.run_of(world.runs()[0]["id"])
    expect((run["state"], run["error"]["type"].rsplit(":", 1)[1]), ("failed", "source-missing"), "the run")
    expect(run["error"]["detail"] in told, True, f"{run['error']['detail']!r} is told: {told[-1500:]}")
    return run["id"]
