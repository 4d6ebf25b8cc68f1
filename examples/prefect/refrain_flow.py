"""Rebuilds months of taxi tables with Refrain: last month's when it is scheduled, or the range that it is given.

Try it: REFRAIN_URL=http://127.0.0.1:8080 python refrain_flow.py 2024-01 2024-03
"""

import os
import sys
from datetime import timedelta

import httpx
from prefect import flow, get_run_logger, task
from prefect.runtime import flow_run

REFRAIN_URL = os.environ.get("REFRAIN_URL", "http://127.0.0.1:8080")


class RunFailed(Exception):
    """The run failed, or was refused: what another try does not change."""


def may_pass(task, task_run, state) -> bool:
    """Only what was lost on the way is tried again: Refrain has tried a run as often as its pipeline says."""
    try:
        state.result()
    except RunFailed:
        return False
    except Exception:
        return True
    return False


def with_token(request: httpx.Request) -> httpx.Request:
    if token := os.environ.get("REFRAIN_TOKEN"):
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def call(method: str, path: str, **options) -> dict:
    answer = httpx.request(method, REFRAIN_URL + path, auth=with_token, **options)
    if answer.is_client_error:
        raise RunFailed(f"{answer.status_code}: {answer.text}")
    answer.raise_for_status()
    return answer.json()


@task(retries=3, retry_delay_seconds=[5, 30, 120], retry_condition_fn=may_pass, task_run_name="{pipeline}")
def rebuild(pipeline: str, partitions: list, key: str) -> dict:
    """Submits a run, waits for its end, and gives the totals by partition."""
    # A failed run is queued again under its key, as a new attempt: that is what retrying a failed flow run means.
    body = {"pipeline": pipeline, "partitions": partitions, "if_failed": "retry"}
    run = call("POST", "/runs", json=body, headers={"Idempotency-Key": key}, timeout=10)
    while run["state"] not in ("succeeded", "failed", "cancelled"):
        get_run_logger().info("run %s is %s", run["id"], run["state"])
        run = call("GET", f"/runs/{run['id']}", headers={"Prefer": "wait=60"}, timeout=90)
    if run["state"] != "succeeded":
        why = (run["error"] or {}).get("detail", "no reason was given")
        raise RunFailed(f"run {run['id']} {run['state']}: {why}")
    return {p["partition"]: {"outcome": p["outcome"], "totals": p["totals"]} for p in run["partitions"]}


@flow
def taxi_tables(first: str | None = None, last: str | None = None, pipelines: tuple[str, ...] = ("zone_hour",)) -> dict:
    # The month before the one it was scheduled for (in UTC), not before today: a late retry means the same month.
    month = (flow_run.scheduled_start_time.replace(day=1) - timedelta(days=1)).strftime("%Y-%m")
    first, last = first or month, last or first or month
    # A flow run keeps its id when its tasks or itself are retried; one that is started again is another, on purpose.
    keys = {pipeline: f"taxi_tables/{pipeline}/{first}..{last}/{flow_run.id}" for pipeline in pipelines}
    asked = {p: rebuild.submit(p, [{"from": first, "to": last}], key) for p, key in keys.items()}
    return {pipeline: answer.result() for pipeline, answer in asked.items()}


if __name__ == "__main__":
    taxi_tables(*sys.argv[1:])
