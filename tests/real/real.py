"""Real files through the real binary. `run` beside this file sets it up."""

import sys

import bad
import github
import heads
import spark
import taxis
from checks import all_of
from service import Service

PARTS = [taxis, github, spark, heads, bad]


def main(words):
    with Service() as service:
        for part in PARTS:
            for text in part.pipelines(service):
                service.pipeline(text)
        service.start()
        return all_of((check for part in PARTS for check in part.checks(service)), words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
