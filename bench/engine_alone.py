"""Refrain's engine without its service: the same job on its standard input, and when it says that it has come how far.

So Refrain's own share of a run is told: all of it but what lies between the first word of scanning and the report, which
is scan, aggregate, sort, encode and writing."""

import json
import os
import subprocess
import tempfile
import time

# As the service starts it.
LEAN = {
    "POLARS_ROW_GROUP_PREFETCH_SIZE": "1",
    "POLARS_DEFAULT_DISTRIBUTOR_BUFFER_SIZE": "1",
    "POLARS_DEFAULT_LINEARIZER_BUFFER_SIZE": "1",
    "POLARS_HOT_TABLE_SIZE": "65536",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "67108864",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "67108864",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def request(job, folder):
    os.makedirs(f"{folder}/staging")
    asked = {
        "definition": job.pipeline(),
        "scope": {"partitions": [f"{job.partition}={key}" for key in job.keys]},
        "source_root": "/",
        "staging": f"{folder}/staging",
        "checkpoints": f"{folder}/checkpoints",
        "slice_source_bytes": 512 << 20,
        "read_bytes": None,
        "sort_bytes": 256 << 20,
        "web": {"hosts": [], "max_bytes": 1 << 30, "timeout_seconds": 30},
        "bases": [],
    }
    return json.dumps({"job": asked, "memory_mb": None}) + "\n"


class EngineAlone:
    """Gives the seconds that the engine takes, and those of them before it scans."""

    name = "engine alone"
    rounds = None

    def __init__(self, job):
        self.job = job

    def warm_up(self):
        self.measure()

    def measure(self):
        with tempfile.TemporaryDirectory(prefix="refrain-bench-engine-") as folder:
            asked = request(self.job, folder)
            started = time.perf_counter()
            process = subprocess.Popen(
                [os.environ["REFRAIN_BIN"], "engine"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **LEAN},
            )
            process.stdin.write(asked)
            process.stdin.flush()
            scanning = None
            for line in process.stdout:
                now = time.perf_counter() - started
                message = json.loads(line)
                if "report" in message:
                    process.stdin.close()
                    process.wait(60)
                    return {"engine alone": now, "engine alone, scan to report": now - scanning}
                if scanning is None and message.get("progress", {}).get("stage") == "scanning":
                    scanning = now
            raise RuntimeError(f"the engine alone gave no report: {line[:2000]}")

    def peak_bytes(self):
        return None

    def close(self):
        pass
