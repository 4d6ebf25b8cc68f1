"""What Dagster's own instance knows, as JSON: the asset's latest materializations by partition, and its runs, newest first,
with why their steps were tried again or failed. Runs in Dagster's virtual environment."""

import json

import dagster as dg


def errors(instance, run, kind):
    """The errors after which steps of a run were tried again, or failed."""
    events = [entry.dagster_event for entry in instance.all_logs(run.run_id, of_type=kind)]
    return [event.event_specific_data.error.to_string() for event in events]


def shown(instance, run):
    kinds = {"retried": dg.DagsterEventType.STEP_UP_FOR_RETRY, "failed": dg.DagsterEventType.STEP_FAILURE}
    return {"id": run.run_id, "status": run.status.value} | {n: errors(instance, run, kind) for n, kind in kinds.items()}


if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        records = instance.fetch_materializations(dg.AssetKey("zone_hour"), limit=100).records
        latest = {}
        for record in records:  # newest first
            metadata = record.asset_materialization.metadata
            latest.setdefault(record.partition_key, {name: value.value for name, value in metadata.items()})
        runs = [shown(instance, run) for run in instance.get_runs()]
        print(json.dumps({"partitions": latest, "runs": runs}, default=str))
