"""Rebuilds last month's taxi tables with Refrain: one mapped task per pipeline, each one run of Refrain.

Copy this file into the DAGs folder and make an HTTP connection `refrain`, e.g.
AIRFLOW_CONN_REFRAIN='{"conn_type": "http", "schema": "http", "host": "refrain.internal", "port": 8080}'.
"""

import json
from datetime import datetime, timedelta

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.http.triggers.http import HttpResponseSerializer, HttpTrigger
from airflow.sdk import DAG, CronDataIntervalTimetable, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

# What a retry, a cleared task and a repeated backfill have in common. `again` makes a new key, on purpose.
KEY = (
    "{{ ti.dag_id }}/{{ ti.task_id }}/{{ ti.map_index }}/"
    "{{ dag_run.logical_date.isoformat() if dag_run.logical_date else run_id }}"
    "{{ '/' ~ (params.again | urlencode) if params.again }}"
)
MONTH = "{{ data_interval_start.strftime('%Y-%m') }}"


class RefrainRun(HttpOperator):
    """Submits a run, and waits for its end in the triggerer, where it takes no worker slot.

    No part of it can do harm twice: a submission carries its key, and waiting changes nothing.
    """

    def __init__(self, *, pipeline: str, partitions: list, http_conn_id: str = "refrain", **kwargs):
        # A failed run is queued again under its key, as a new attempt: that is what clearing a failed task means.
        body = {"pipeline": pipeline, "partitions": partitions, "if_failed": "retry"}
        super().__init__(
            http_conn_id=http_conn_id,
            method="POST",
            endpoint="runs",
            headers={"Content-Type": "application/json", "Idempotency-Key": KEY},
            data=json.dumps(body),
            extra_options={"timeout": 10},  # a submission is answered at once, whatever the run takes
            **kwargs,
        )

    def execute(self, context):
        return self.settle(json.loads(super().execute(context)))

    def waited(self, context, event):
        if event["status"] != "success":
            raise AirflowException(f"waiting was cut off: {event['message']}")
        return self.settle(HttpResponseSerializer.deserialize(event["response"]).json())

    def settle(self, run: dict):
        """Waits on, fails, or gives the totals by partition to XCom."""
        self.log.info("run %s of %s is %s", run["id"], run["pipeline"], run["state"])
        if run["state"] == "succeeded":
            return {p["partition"]: {"outcome": p["outcome"], "totals": p["totals"]} for p in run["partitions"]}
        if run["state"] in ("failed", "cancelled"):
            # Refrain has tried as often as the pipeline says, so Airflow's retries are for lost answers only.
            why = (run["error"] or {}).get("detail", "no reason was given")
            raise AirflowFailException(f"run {run['id']} {run['state']}: {why}")
        self.defer(
            trigger=HttpTrigger(
                http_conn_id=self.http_conn_id, method="GET", endpoint=f"runs/{run['id']}", headers={"Prefer": "wait=60"}
            ),
            method_name="waited",
        )


with DAG(
    "taxi_tables",
    schedule=CronDataIntervalTimetable("@monthly", timezone="UTC"),
    start_date=datetime(2024, 1, 1),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=15)},
    params={"again": Param("", type="string", description="rebuild although it was built before: any text, e.g. why")},
):
    RefrainRun.partial(task_id="rebuild", partitions=[MONTH]).expand(pipeline=["zone_hour", "zone_hour_by_file"])
