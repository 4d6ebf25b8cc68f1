"""The Prefect flow in processes of its own, over Prefect's ephemeral server, whose database stays between them."""

from checks import expect
from processes import finished, home_of, leave
from world import EXAMPLES, KNOWN, NOTE, World, fails_of_missing_source, lost_answer, same_run_again

FLOW = EXAMPLES / "prefect" / "refrain_flow.py"
SECONDS = 240


def checks(proxy, sample):
    home, env = home_of("prefect")
    env |= {
        "REFRAIN_URL": proxy.url,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_COLORS": "false",
        "DO_NOT_TRACK": "1",
    }

    def prefect(*command):
        return finished(command, env, home, SECONDS)

    def flow(*months):
        return prefect("python", FLOW, *months)

    def success():
        status, told = flow("2024-01")
        expect(status, 0, f"the exit status: {told}")
        world.has("2024-01")
        return f"{NOTE}, {proxy.waits} waits"

    def time_out():
        proxy.swallow_next()
        status, told = flow("2024-02")
        expect(status, 0, f"the exit status: {told}")
        expect("ReadTimeout" in told, True, f"the client timed out: {told}")
        world.has("2024-01", "2024-02")
        return f"task retried: {lost_answer(world, proxy.submissions)}"

    def failure():
        world.take_away("2024-03")
        status, told = flow("2024-03")
        expect(status != 0, True, f"the flow run fails: {told}")
        run_id = fails_of_missing_source(world, "2024-03", told)
        expect(len(world.run_of(run_id)["attempts"]), 1, "attempts, since a failed run is not retried by the task")
        world.bring_back("2024-03")
        flow_run = world.run_of(run_id)["idempotency_key"].rsplit("/", 1)[1]
        status, told = prefect("prefect", "flow-run", "retry", flow_run, "--entrypoint", f"{FLOW}:taxi_tables")
        expect(status, 0, f"the exit status of the retry: {told}")
        world.has(*KNOWN)
        return f"flow-run retry: {same_run_again(world, run_id)}"

    def backfill():
        status, told = flow("2024-01", "2024-03")
        expect((status, len(world.runs())), (0, 1), f"the exit status and the runs: {told}")
        world.has(*KNOWN)
        return f"1 run, {NOTE}"

    def repeated():
        version = world.has(*KNOWN)
        status, told = flow("2024-01", "2024-03")
        expect((status, len(world.runs())), (0, 2), f"the exit status and the runs: {told}")
        outcomes = [p["outcome"] for p in world.run_of(world.runs()[0]["id"])["partitions"]]
        expect(outcomes, ["unchanged"] * 3, "the outcomes")
        expect(world.has(*KNOWN), version, "the table's version")
        return "a run of its own: 3 unchanged, same version"

    try:
        with World(sample) as world:
            proxy.leads_to(world)
            yield "success", success
            yield "time-out, then the task's retry", time_out
            yield "failed, then flow-run retry", failure
        with World(sample) as world:
            proxy.leads_to(world)
            yield "backfill of three months", backfill
            yield "the backfill repeated", repeated
    finally:
        leave(home)
