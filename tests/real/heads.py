"""The first 1,024 bytes of old csv files, one for each era of their headers; the last line of each is cut short."""

import csv
from decimal import ROUND_HALF_UP, Decimal

from checks import expect
from files import DATA, kept_apart, read_all

FOLDER = DATA / "nyc-tlc-old-heads"
FILES = sorted(file.name for file in FOLDER.glob("*.csv"))

AT = {
    "cab": ["tpep_pickup_datetime", "lpep_pickup_datetime", "pickup_datetime", "Trip_Pickup_DateTime"],
    "for_hire": ["pickup_datetime", "Pickup_DateTime", "Pickup_date"],
}
TOTAL = ["total_amount", "Total_amount", "Total_Amt"]


def name_of(file, way):
    return f"{way}_{file.removesuffix('.head1024.csv').replace('-', '_')}"


def pipeline(file, way, kind, max_rejected="0.01", empty_tail="true"):
    total = f'total = {{ type = "decimal(18,2)", from = {TOTAL} }}\n' if kind == "cab" else ""
    revenue = 'revenue = "sum(total)"\n' if kind == "cab" else ""
    return (
        f'name = "{name_of(file, way)}"\nmax_rejected = {max_rejected}\n[source]\nformat = "csv"\npath = "{FOLDER / file}"\n'
        f'[source.csv]\nempty_tail = {empty_tail}\n[source.columns]\nat = {{ type = "datetime", from = {AT[kind]} }}\n{total}'
        f'[partition]\nmonth = {{ month_of = "at" }}\n[measures]\ntrips = "count(*)"\n{revenue}'
    )


def kind_of(file):
    return "for_hire" if file.startswith("fhv") else "cab"


def pipelines(_):
    for file in FILES:
        yield pipeline(file, "lenient", kind_of(file), max_rejected="0.5")
        yield pipeline(file, "strict", kind_of(file))
        if kind_of(file) == "for_hire":
            yield pipeline(file, "as_cab", "cab", max_rejected="0.5")
    yield pipeline(MORE_FIELDS, "no_tail", "cab", empty_tail="false")


MORE_FIELDS = "yellow_tripdata_2016-07.head1024.csv"


def read_by_python(file):
    """Whole rows, their total, and the number of the last line, where it is cut."""
    with open(FOLDER / file, newline="") as text:
        lines = text.read().splitlines()
    header = [name.strip() for name in next(csv.reader([lines[0]]))]
    records = [(at, next(csv.reader([line]))) for at, line in enumerate(lines[1:], 2) if line]
    width = len(records[0][1])
    whole = [(at, record) for at, record in records if len(record) == width and not any(record[len(header) :])]
    cut = [at for at, record in records if (at, record) not in whole]
    total = None
    if kind_of(file) == "cab":
        place = next(place for place, name in enumerate(header) if name in TOTAL)
        cents = (Decimal(record[place]).quantize(Decimal("0.01"), ROUND_HALF_UP) for _, record in whole)
        total = sum(cents, Decimal(0))
    return len(records), len(whole), total, cut


def checks(service):
    def read(file):
        records, whole, total, cut = read_by_python(file)
        run = service.succeeds(name_of(file, "lenient"))
        totals = service.totals(name_of(file, "lenient"))["total"]["totals"]
        want = (records, whole, whole, None if total is None else str(total))
        expect((read_all(run), run["rows"]["in_scope"], totals["trips"], totals.get("revenue")), want, "rows, trips, revenue")
        told = " ".join(warning["detail"] for warning in run["warnings"])
        for line in cut:
            expect(f"{file}: line {line}: " in told, True, f"line {line} in {told!r}")
        lines = (FOLDER / file).read_text().splitlines()
        apart = [(row["source_line"], row["source_text"]) for row in kept_apart(service, run)]
        expect(apart, [(line, lines[line - 1]) for line in cut], "the lines kept apart")
        strict = service.run(name_of(file, "strict"))
        expect(strict["state"], "failed" if cut else "succeeded", "the state under the usual limit")
        for line in cut:
            expect(f"{file}: line {line}: " in strict["error"]["detail"], True, f"line {line} in {strict['error']['detail']!r}")
        return f"{whole} trips, {total or 'no'} revenue" + "".join(f", line {line} rejected" for line in cut)

    def refused(pipeline, *parts):
        run = service.run(pipeline)
        expect(run["state"], "failed", "the state")
        detail = run["error"]["detail"]
        for part in parts:
            expect(part in detail, True, f"{part!r} in {detail!r}")
        return detail.replace(f"{FOLDER}/", "")

    for file in FILES:
        yield f"old head {file}", lambda f=file: read(f)
    for file in FILES:
        if kind_of(file) == "for_hire" and not file.startswith("fhvhv"):
            yield f"old head {file} as a cab's", lambda f=file: refused(name_of(f, "as_cab"), f"{f}: line 1: column ")
    # It has a column of the cab's name for the pickup, but no total.
    hv = "fhvhv_tripdata_2019-02.head1024.csv"
    yield f"old head {hv} as a cab's", lambda: refused(name_of(hv, "as_cab"), f"{hv}: line 1: column total")
    yield "old head with more fields than names, where none are allowed", lambda: refused(
        name_of(MORE_FIELDS, "no_tail"), f"{MORE_FIELDS}: line 2: has 19 fields, the header has 17"
    )
