"""Runs each example against a live Refrain and prints a table of what was seen. `check` in the folder above sets it up."""

import importlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

from proxy import Proxy
from world import make_sample


def tried(check):
    """Whether it held, what it says in a line, and in full."""
    try:
        note = check()
        return True, note, note
    except AssertionError as e:
        return False, str(e).splitlines()[0], str(e)
    except Exception as e:
        return False, f"{type(e).__name__}: {e}".splitlines()[0], traceback.format_exc()


def main(tools):
    rows = []
    sample = pathlib.Path(tempfile.mkdtemp(prefix="refrain-sample-")) / "data"
    try:
        make_sample(sample)
        for tool in tools:
            print(f"==> {tool}", flush=True)
            part = importlib.import_module(f"with_{tool}")
            with Proxy() as proxy:
                checks = part.checks(proxy, sample)
                try:
                    for name, check in checks:
                        started = time.monotonic()
                        held, line, told = tried(check)
                        seconds = time.monotonic() - started
                        rows.append((tool, name, held, line, seconds))
                        print(f"{'ok' if held else 'FAILED'}  {name}, {seconds:.1f} s", flush=True)
                        if not held:
                            print(told[-6000:], flush=True)
                except Exception as e:
                    traceback.print_exc()
                    rows.append((tool, "the tool starts and ends", False, f"{type(e).__name__}: {e}".splitlines()[0], 0.0))
                finally:
                    checks.close()
    finally:
        if os.environ.get("KEEP"):
            print(f"kept: {sample}")
        else:
            shutil.rmtree(sample.parent, ignore_errors=True)
    print_table(rows)
    failed = sum(not held for _, _, held, _, _ in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed or not rows else 0


def print_table(rows):
    tools, names = max(len(r[0]) for r in rows), max(len(r[1]) for r in rows)
    print()
    for tool, name, held, note, seconds in rows:
        print(f"{tool:{tools}}  {name:{names}}  {'ok' if held else 'FAILED':6}  {seconds:5.1f} s  {note[:120]}")


if __name__ == "__main__":
    # So that whatever was started is ended, also when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
