"""Tables in Markdown."""

import statistics


def table(heads, rows):
    """A name to the left, figures to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]

    def line(cells):
        padded = [cell.ljust(w) if at == 0 else cell.rjust(w) for at, (cell, w) in enumerate(zip(cells, widths))]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * w) if at == 0 else "-" * (w - 1) + ":" for at, w in enumerate(widths)]
    return "\n".join([line(heads), line(rule), *map(line, rows)])


def seconds(value):
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def of_case(figures, reference):
    """Every name with its median, and how long the reference took as a part of it."""
    rows = []
    for name, all_of_it in figures.seconds.items():
        median = statistics.median(all_of_it)
        peak = figures.peak_bytes.get(name)
        rows.append(
            [
                name,
                len(all_of_it),
                seconds(median),
                seconds(min(all_of_it)),
                seconds(max(all_of_it)),
                f"{figures.median(reference) / median:.2f}",
                f"{peak / 1e6:.0f} MB" if peak else "",
            ]
        )
    heads = ["contender", "rounds", "median", "least", "most", f"{reference} / it", "peak memory"]
    return table(heads, rows)


def of_targets(judged):
    """`judged`: what, found, limit, whether it is met, unit. `found` may be a text."""
    rows = []
    for what, found, limit, met, unit in judged:
        verdict = "" if met is None else "met" if met else "NOT MET"
        rows.append([what, plain(found, unit), "" if limit is None else plain(limit, unit), verdict])
    return table(["target", "found", "limit", ""], rows)


def plain(value, unit):
    if value is None:
        return "not measured"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"
