"""A monthly partitioned asset whose partitions Refrain rebuilds, with its totals as metadata.

Try it: REFRAIN_URL=http://127.0.0.1:8080 dagster dev -f refrain_assets.py
"""

import logging

import dagster as dg
import requests

MONTHS = dg.MonthlyPartitionsDefinition(start_date="2024-01", fmt="%Y-%m")


class Refrain(dg.ConfigurableResource):
    """A Refrain service."""

    url: str
    token: str = ""

    def rebuild(self, pipeline: str, partitions: list, key: str, log: logging.Logger) -> dict:
        """Submits a run and waits for its end. Whatever was lost on the way is asked again by the asset's retries: the
        key stays the same. A run that failed is queued again under its key, as a new attempt."""
        body = {"pipeline": pipeline, "partitions": partitions, "if_failed": "retry"}
        run = self._call("POST", "/runs", json=body, headers={"Idempotency-Key": key}, timeout=10)
        while run["state"] not in ("succeeded", "failed", "cancelled"):
            log.info("run %s is %s", run["id"], run["state"])
            run = self._call("GET", f"/runs/{run['id']}", headers={"Prefer": "wait=60"}, timeout=90)
        if run["state"] != "succeeded":
            why = (run["error"] or {}).get("detail", "no reason was given")
            # Refrain has tried as often as the pipeline says.
            raise dg.Failure(f"run {run['id']} {run['state']}: {why}", allow_retries=False)
        return run

    def _with_token(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.token:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request

    def _call(self, method: str, path: str, **options) -> dict:
        answer = requests.request(method, self.url + path, auth=self._with_token, **options)
        if 400 <= answer.status_code < 500:
            raise dg.Failure(f"{answer.status_code}: {answer.text}", allow_retries=False)
        answer.raise_for_status()
        return answer.json()


@dg.asset(
    partitions_def=MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),  # a range of months is one run of Refrain, too
    retry_policy=dg.RetryPolicy(max_retries=3, delay=5, backoff=dg.Backoff.EXPONENTIAL),
)
def zone_hour(context: dg.AssetExecutionContext, refrain: Refrain) -> None:
    """Trips and revenue per pickup zone and hour."""
    first, last = context.partition_key_range
    # A step that is retried has the run id that it had, and a run that is re-executed has the same root. A person who
    # materializes again starts a root of its own.
    key = f"{context.asset_key.to_user_string()}/{first}..{last}/{context.run.root_run_id or context.run_id}"
    run = refrain.rebuild("zone_hour", [{"from": first, "to": last}], key, context.log)
    for partition in run["partitions"]:
        month = partition["partition"].removeprefix("pickup_month=")
        context.add_asset_metadata(
            {
                "refrain_run": run["id"],
                "outcome": partition["outcome"],
                "dagster/row_count": partition["rows"],
                **{name: dg.MetadataValue.text(str(total)) for name, total in partition["totals"].items()},
                "sha256": partition["sha256"],
            },
            partition_key=month,
        )


defs = dg.Definitions(assets=[zone_hour], resources={"refrain": Refrain(url=dg.EnvVar("REFRAIN_URL"))})
