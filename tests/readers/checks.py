"""Checks by name: each is made, whatever became of the one before, and told in a line."""

import time
import traceback


def expect(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: found {found!r}, expected {expected!r}")


def all_of(checks, words):
    """Makes those whose name holds one of the words, or all. What a check returns is told with it. Gives the exit status."""
    passed = failed = 0
    for name, check in checks:
        if words and not any(word in name for word in words):
            continue
        started = time.monotonic()
        try:
            note = check()
            passed += 1
            print(f"ok      {name}{f' ({note})' if note else ''}, {time.monotonic() - started:.1f} s")
        except AssertionError as e:
            failed += 1
            print(f"FAILED  {name}: {str(e)[:2000]}")
        except Exception:
            failed += 1
            print(f"FAILED  {name}: {traceback.format_exc()[-3000:]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0
