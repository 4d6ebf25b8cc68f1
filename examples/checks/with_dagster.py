"""The Dagster asset by Dagster's command line, over an instance of its own."""

import json

from checks import expect
from processes import finished, home_of, leave
from world import EXAMPLES, KNOWN, NOTE, World, fails_of_missing_source, lost_answer, same_run_again

ASSETS = EXAMPLES / "dagster" / "refrain_assets.py"
SECONDS = 240


def checks(proxy, sample):
    home, env = home_of("dagster")
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    env |= {"REFRAIN_URL": proxy.url, "DAGSTER_HOME": str(home)}

    def dagster(*command):
        return finished(command, env, home, SECONDS)

    def materialize(*partitions):
        return dagster("dagster", "asset", "materialize", "-f", ASSETS, "--select", "zone_hour", *partitions)

    def shown():
        status, told = dagster("python", EXAMPLES / "checks" / "dagster_shows.py")
        expect(status, 0, f"the exit status: {told}")
        return json.loads(told.splitlines()[-1])

    def metadata_is_known(*months):
        """Each month's latest materialization shows its totals, and the sha256 that the API has."""
        partitions = shown()["partitions"]
        sums = {p["partition"].removeprefix("pickup_month="): p["sha256"] for p in world.totals("zone_hour")["partitions"]}
        for month in months:
            found = tuple(partitions[month][name] for name in ("dagster/row_count", "trips", "revenue", "sha256"))
            rows, trips, revenue = KNOWN[month]
            expect(found, (rows, str(trips), revenue, sums[month]), f"the metadata of {month}")

    def success():
        status, told = materialize("--partition", "2024-01")
        expect(status, 0, f"the exit status: {told}")
        world.has("2024-01")
        metadata_is_known("2024-01")
        return f"{NOTE}, in the asset's metadata too"

    def time_out():
        proxy.swallow_next()
        status, told = materialize("--partition", "2024-02")
        expect(status, 0, f"the exit status: {told}")
        # Asked of the instance, since the command's output has been seen without this line.
        retried = shown()["runs"][0]["retried"]
        expect(["Read timed out" in error for error in retried], [True], f"the client timed out, once: {retried}")
        world.has("2024-01", "2024-02")
        return f"step retried: {lost_answer(world, proxy.submissions)}"

    def failure():
        world.take_away("2024-03")
        status, told = materialize("--partition", "2024-03")
        expect(status, 1, f"the exit status: {told}")
        failed = shown()["runs"][0]
        run_id = fails_of_missing_source(world, "2024-03", "\n".join(failed["failed"]))
        expect(len(world.run_of(run_id)["attempts"]), 1, "attempts, since a failed run is not retried by the step")
        world.bring_back("2024-03")
        expect(failed["status"], "FAILURE", "the status of Dagster's run")
        status, told = dagster("python", EXAMPLES / "checks" / "dagster_runs.py", ASSETS, failed["id"])
        expect(status, 0, f"the exit status of the re-execution: {told}")
        world.has(*KNOWN)
        metadata_is_known("2024-03")
        return f"re-executed: {same_run_again(world, run_id)}"

    def again():
        version = world.has(*KNOWN)
        status, told = materialize("--partition", "2024-03")
        expect((status, len(world.runs())), (0, 4), f"the exit status and the runs: {told}")
        expect(world.has(*KNOWN), version, "the table's version")
        return "a run of its own: unchanged, same version"

    def backfill():
        status, told = materialize("--partition-range", "2024-01...2024-03")
        expect((status, len(world.runs())), (0, 1), f"the exit status and the runs: {told}")
        world.has(*KNOWN)
        metadata_is_known(*KNOWN)
        return f"1 run for the range, {NOTE}, in the metadata too"

    def repeated():
        version = world.has(*KNOWN)
        status, told = materialize("--partition-range", "2024-01...2024-03")
        expect((status, len(world.runs())), (0, 2), f"the exit status and the runs: {told}")
        expect([p["outcome"] for p in world.run_of(world.runs()[0]["id"])["partitions"]], ["unchanged"] * 3, "the outcomes")
        expect(world.has(*KNOWN), version, "the table's version")
        return "a run of its own: 3 unchanged, same version"

    try:
        with World(sample) as world:
            proxy.leads_to(world)
            yield "success", success
            yield "time-out, then the step's retry", time_out
            yield "failed, then re-executed", failure
            yield "materialized again on purpose", again
        with World(sample) as world:
            proxy.leads_to(world)
            yield "backfill of three months", backfill
            yield "the backfill repeated", repeated
    finally:
        leave(home)
