"""What Dagster's own instance knows: the asset's latest materializations by partition, and its runs, as JSON. Runs in
Dagster's virtual environment."""

import json

import dagster as dg

if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        records = instance.fetch_materializations(dg.AssetKey("zone_hour"), limit=100).records
        latest = {}
        for record in records:  # newest first
            metadata = record.asset_materialization.metadata
            latest.setdefault(record.partition_key, {name: value.value for name, value in metadata.items()})
        runs = [{"id": r.run_id, "status": r.status.value} for r in instance.get_runs()]
        print(json.dumps({"partitions": latest, "runs": runs}, default=str))
