"""Dagster's re-execution of a run from its failure, for which its command line has no word. Runs in Dagster's virtual
environment: dagster_runs.py FILE RUN_ID."""

import sys

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableRepository

if __name__ == "__main__":
    file, failed = sys.argv[1:]
    with dg.DagsterInstance.get() as instance:
        job = ReconstructableRepository.for_file(file, "defs").get_reconstructable_job("__ASSET_JOB")
        run = instance.get_run_by_id(failed)
        options = dg.ReexecutionOptions.from_failure(failed, instance)
        assets = list(run.asset_selection)
        done = dg.execute_job(job, instance, tags=run.tags, asset_selection=assets, reexecution_options=options)
        sys.exit(0 if done.success else 1)
