"""The cron script with the real binary, called as cron would."""

import os
import subprocess

from checks import expect
from world import EXAMPLES, KNOWN, NOTE, World, fails_of_missing_source, lost_answer, same_run_again

SCRIPT = EXAMPLES / "cron" / "refrain-month"


def checks(proxy, sample):
    def month(months, seconds=120, day="2024-04-01"):
        """Calls the script; its exit status and what it printed, or None where it was ended after this time."""
        program = world.folder / "bin" / "refrain"
        if not program.exists():
            program.parent.mkdir()
            program.symlink_to(os.environ["REFRAIN_BIN"])
        env = {"PATH": f"{program.parent}:/usr/bin:/bin", "REFRAIN_URL": proxy.url, "REFRAIN_DAY": day}
        try:
            done = subprocess.run([SCRIPT, "zone_hour", months], env=env, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr

    def crontab():
        lines = (EXAMPLES / "cron" / "crontab").read_text().splitlines()
        commands = [line.split(maxsplit=5)[5] for line in lines if line[:1].isdigit()]
        expect(bool(commands), True, "there are lines")
        expect([c for c in commands if not c.startswith("chronic refrain-month zone_hour")], [], "commands of others")
        return f"{len(commands)} lines call the script"

    def success():
        status, told = month("2024-01")
        expect(status, 0, f"the exit status: {told}")
        world.has("2024-01")
        status, told = month("2024-01")
        expect((status, len(world.runs())), (0, 1), "the exit status and the runs of the second call of the day")
        return f"exit 0, {NOTE}; the second call of the day is a replay"

    def time_out():
        proxy.swallow_next()
        status, told = month("2024-02", seconds=5)
        expect(status, None, f"the first call hears nothing and is ended: {told}")
        status, told = month("2024-02")
        expect(status, 0, f"the exit status: {told}")
        world.has("2024-01", "2024-02")
        return lost_answer(world, proxy.submissions)

    def failure():
        world.take_away("2024-03")
        status, told = month("2024-03")
        expect(status, 1, f"the exit status: {told}")
        run_id = fails_of_missing_source(world, "2024-03", told)
        world.bring_back("2024-03")
        status, told = month("2024-03")
        expect(status, 0, f"the exit status of the next hour: {told}")
        world.has(*KNOWN)
        return f"exit 1, then 0: {same_run_again(world, run_id)}"

    def refused():
        status, told = month("2024-13")
        expect((status, "2024-13" in told), (2, True), f"the exit status and the words: {told}")
        return "exit 2 for a month that there is not"

    def backfill():
        status, told = month("2024-01..2024-03")
        expect((status, len(world.runs())), (0, 1), f"the exit status and the runs: {told}")
        world.has(*KNOWN)
        return f"1 run, {NOTE}"

    def repeated():
        version = world.has(*KNOWN)
        expect(month("2024-01..2024-03")[0], 0, "the exit status on the same day")
        expect(len(world.runs()), 1, "runs on the same day")
        status, told = month("2024-01..2024-03", day="2024-04-02")
        expect((status, told.count("unchanged"), len(world.runs())), (0, 3, 2), f"the next day: {told}")
        expect(world.has(*KNOWN), version, "the table's version")
        return "same day: no new run; next day: 3 unchanged; same version"

    yield "the crontab calls the script", crontab
    with World(sample) as world:
        proxy.leads_to(world)
        yield "success", success
        yield "time-out, then the next call", time_out
        yield "failed, then the next call", failure
        yield "refused", refused
    with World(sample) as world:
        proxy.leads_to(world)
        yield "backfill of three months", backfill
        yield "the backfill repeated", repeated
