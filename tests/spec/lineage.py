"""Holds OpenLineage events, one a line, against the published schemas.

Usage: lineage.py FILE KIND:COUNT...: the file, and how many events of each kind it must have.
"""

import collections
import copy
import functools
import json
import os
import pathlib
import sys
import time
import urllib.request

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
FACET_HOLDERS = ("facets", "inputFacets", "outputFacets")
WITHIN_SECONDS = 30


@functools.cache
def schema_text(url):
    folder = os.environ.get("OPENLINEAGE_SPEC")
    if folder is None:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.read().decode()
    kind = "facets/" if "/facets/" in url else ""
    return (pathlib.Path(folder) / (kind + url.rsplit("/", 1)[1])).read_text()


def retrieve(url):
    schema = json.loads(schema_text(url))
    assert schema["$id"] == url, f"{url} is named, and {schema['$id']} is the published one"
    return Resource.from_contents(schema)


REGISTRY = Registry(retrieve=retrieve)


def errors_of(document, reference):
    validator = Draft202012Validator({"$ref": reference}, registry=REGISTRY, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [f"{reference}: {error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def facets(value):
    """Every facet of an event, by its name."""
    if isinstance(value, list):
        for one in value:
            yield from facets(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name in FACET_HOLDERS:
                yield from one.items()
            else:
                yield from facets(one)


def errors_of_event(event):
    errors = errors_of(event, f"{EVENT}#/$defs/RunEvent") + errors_of(event, EVENT)
    for name, facet in facets(event):
        # A facet's schema says, as one of the properties of what holds it, which name it goes by.
        errors += errors_of(facet, facet["_schemaURL"]) + errors_of({name: facet}, facet["_schemaURL"].split("#")[0])
    return errors


def read(path, expected):
    """The events, once there are as many of each kind as there must be."""
    end = time.monotonic() + WITHIN_SECONDS
    while True:
        events = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        found = collections.Counter(event["eventType"] for event in events)
        if found == expected:
            return events
        assert time.monotonic() < end, f"found {dict(found)}, expected {dict(expected)}"
        time.sleep(0.1)


def spoilt(event):
    """The event in ways that the schemas do not allow: so that it is seen that they are asked."""
    for path, value in [
        (["run", "runId"], "no uuid"),
        (["eventTime"], "yesterday"),
        (["eventType"], "DONE"),
        (["producer"], None),
        (["run", "facets", "nominalTime", "nominalStartTime"], "soon"),
        (["outputs", 0, "facets", "schema", "fields"], {}),
        (["outputs", 0, "outputFacets", "outputStatistics", "rowCount"], "many"),
        (["inputs", 0, "inputFacets", "inputStatistics", "size"], 0.5),
        (["job", "facets", "jobType", "processingType"], 1),
    ]:
        bad = copy.deepcopy(event)
        holder = functools.reduce(lambda value, step: value[step], path[:-1], bad)
        holder[path[-1]] = value
        yield path, bad


def main():
    expected = collections.Counter({kind: int(count) for kind, count in (word.split(":") for word in sys.argv[2:])})
    events = read(sys.argv[1], expected)
    names = collections.Counter()
    for event in events:
        errors = errors_of_event(event)
        assert not errors, "\n".join(errors)
        names.update(name for name, _ in facets(event))
    complete = next(event for event in events if event["eventType"] == "COMPLETE")
    for path, bad in spoilt(complete):
        assert errors_of_event(bad), f"{path} is spoilt, and no schema says so"
    print(f"{len(events)} events hold, with {sum(names.values())} facets: {', '.join(sorted(names))}")


main()
