"""Refrain's engine without its service: its environment, and a job for its standard input."""

import json
import os

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
