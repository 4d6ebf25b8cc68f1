"""Runs the cases and prints what they give. `run` beside this file sets it up."""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import sys
import time

import api
import inputs
import machine
import peers
import refrain
import report
import truth
from cases import FROM_START_ROUNDS, Figures, all_cases

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROUNDS = 5
QUICK_ROUNDS = 2
QUICK_SCALE = 0.1


def arguments():
    parser = argparse.ArgumentParser(prog="bench/run", add_help=False)
    parser.add_argument("cases", nargs="*", choices=[[], *"abcdefgh", "api"], metavar="CASE")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--no-spark", dest="spark", action="store_false")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    options.from_start_rounds = min(options.rounds, FROM_START_ROUNDS)
    return options


def measure(case, rounds):
    """The contenders in turn, round by round."""
    contenders = case.contenders()
    try:
        for contender in contenders:
            contender.warm_up()
        seconds = {}
        for number in range(rounds):
            for contender in contenders:
                if number < (contender.rounds or rounds):
                    for name, taken in contender.measure().items():
                        seconds.setdefault(name, []).append(taken)
        return Figures(seconds, {c.name: c.peak_bytes() for c in contenders})
    finally:
        for contender in contenders:
            contender.close()


def judged(case, figures):
    for target in case.targets:
        found = target.of(figures)
        met = None if found is None or target.limit is None else found <= target.limit
        yield f"{case.key}: {target.what}", found, target.limit, met, target.unit


def main():
    options = arguments()
    told = machine.described()
    told |= {"refrain": f"{refrain.version()}; sources at {machine.commit(ROOT)}", "peers": peers.versions()}
    told["java"] = machine.output("sh", "-c", "java -version 2>&1 | head -1") if options.spark else "not asked"
    told["sample"] = f"scale {options.scale:g}, {options.rounds} rounds"
    for name, text in told.items():
        print(f"{name:12} {text}")
    inputs.CACHE.mkdir(parents=True, exist_ok=True)

    targets, figures = [], {}
    started = time.monotonic()
    for case in all_cases(options):
        if options.cases and case.key[0] not in options.cases:
            continue
        print(f"\n## {case.key}: {case.title}\n")
        figures[case.key] = measure(case, options.rounds)
        reference = next(name for name in ("refrain", "refrain, unchanged") if name in figures[case.key].seconds)
        print(report.of_case(figures[case.key], reference))
        targets += judged(case, figures[case.key])
    interface = None
    if not options.cases or "api" in options.cases:
        print("\n## api: the interface under load")
        interface, of_interface = api.measure(options)
        targets += of_interface
    print(f"\n## Targets\n\n{report.of_targets(targets)}")
    print(f"\nload after {os.getloadavg()[0]:.2f}; it took {(time.monotonic() - started) / 60:.0f} minutes")
    print("Refrain syncs each file and folder to the disk before it answers; of the peers that is not asked.")
    if options.json:
        cases = {key: dataclasses.asdict(figure) for key, figure in figures.items()}
        whole = {"machine": told, "cases": cases, "api": interface, "targets": targets}
        options.json.write_text(json.dumps(whole, indent=1))


if __name__ == "__main__":
    # So that what was started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except truth.WrongTotals as wrong:
        sys.exit(f"bench: wrong totals: {wrong}")
