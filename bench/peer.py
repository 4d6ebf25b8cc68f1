"""A peer's process: `peer.py ENGINE` does each job of its standard input, one JSON line, and tells how long it took and
the most memory that it has had. Imports are done before the first."""

import importlib
import json
import sys
import time

from machine import peak_memory_bytes


def main(engine):
    peer = importlib.import_module(f"peer_{engine}")
    for line in sys.stdin:
        job = json.loads(line)
        started = time.perf_counter()
        peer.build(job)
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, "peak_bytes": peer.peak_bytes(peak_memory_bytes)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
