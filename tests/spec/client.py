"""What somebody does with a client that was made of openapi.yaml: submit, wait, read, be refused."""

import os
import sys

from refrain_client import AuthenticatedClient
from refrain_client.api.pipelines import get_partition, list_partitions
from refrain_client.api.runs import cancel_run, get_run, list_runs, submit_run
from refrain_client.models import CancelRequest, ProblemDetails, Run, SubmitRequest
from refrain_client.models.range_asked import RangeAsked

KEY = "client/quarter"
MONTHS = [f"pickup_month=2024-0{month}" for month in (1, 2, 3)]


def expect(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


def main(url):
    client = AuthenticatedClient(base_url=url, token=os.environ["REFRAIN_TOKEN"], raise_on_unexpected_status=True)
    body = SubmitRequest(pipeline="zone_hour", partitions=RangeAsked(from_="2024-01", to="2024-03"))
    accepted = submit_run.sync_detailed(client=client, body=body, idempotency_key=KEY)
    expect((accepted.status_code, type(accepted.parsed)), (202, Run), "the submission")
    run = accepted.parsed
    while run.ended_at is None:
        run = get_run.sync(run.id, client=client, wait=10)
    expect((run.state, [p.partition for p in run.partitions]), ("succeeded", MONTHS), "the run")
    expect(run.rows.read, run.rows.in_scope + run.rows.out_of_scope + run.rows.filtered + run.rows.rejected, "the books")

    again = submit_run.sync_detailed(client=client, body=body, idempotency_key=KEY)
    expect((again.status_code, again.headers["idempotent-replayed"], again.parsed.id), (200, "true", run.id), "the repetition")
    other = submit_run.sync(client=client, body=SubmitRequest(pipeline="zone_hour", partitions=["2024-01"]), idempotency_key=KEY)
    expect((type(other), other.type_), (ProblemDetails, "urn:refrain:problem:idempotency-key-reused"), "another request")
    plan = submit_run.sync_detailed(client=client, body=body, idempotency_key="client/plan", dry_run=True)
    expect((plan.status_code, plan.parsed.dry_run), (200, True), "the plan")
    refused = cancel_run.sync(run.id, client=client, body=CancelRequest())
    expect((type(refused), refused.status), (ProblemDetails, 409), "the cancellation of what has ended")

    listed = list_partitions.sync("zone_hour", client=client)
    expect([entry.partition for entry in listed.partitions], MONTHS, "the listing")
    trips = sum(entry.totals["trips"] for entry in listed.partitions)
    expect(listed.total.totals["trips"], trips, "the total")
    partition = get_partition.sync("zone_hour", MONTHS[1], client=client)
    expect((partition.partition, partition.history[0].run_id), (MONTHS[1], run.id), "the partition")
    expect([summary.id for summary in list_runs.sync(client=client).runs], [run.id], "the runs")
    print(f"submitted, waited and read by the client: {trips} trips in {len(MONTHS)} months")


main(sys.argv[1])
