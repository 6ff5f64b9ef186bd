"""The matching engine against its bars and against what people would use instead.

    python -m benchmarks.matching                    small sizes, about two minutes
    python -m benchmarks.matching --full             up to a million filters
    python -m benchmarks.matching --full --docs docs/measured    and renew its matching.md
    python -m benchmarks.matching --read docs/measured/matching.json    the tables of a run that was

Prints tables and JSON. Batches are 4,096 events; "times" compares with vectors of bits by hand in
numpy, in the same run and in turns. Every figure says whether it is CPU time or wall time.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from benchmarks import matching_bars as bars
from benchmarks.matching_results import Bar, Results, Throughput, markdown, plot, rewrite, text
from benchmarks.workloads import WORKLOADS, tell, workload
from palio.matching import warming

TIMES: Final = {
    ("podc10", 100_000): 50.0,
    ("mixed", 100_000): 40.0,
    ("podc10", 1_000_000): 80.0,
    ("mixed", 1_000_000): 12.0,
}
"""Bar 1: how many times the rate of numpy by hand."""

SINGLE_US: Final = {("podc10", 100_000): 40.0, ("mixed", 100_000): 80.0}
"""Bar 2: the median of one event."""

EXPONENT: Final = 0.75
"""Bar 5: of the cost of a single event in the number of filters."""


class Size(NamedTuple):
    """How much a run does."""

    sizes: dict[str, tuple[int, ...]]
    others: tuple[str, ...]
    standing: int
    """Filters of the bars on routing, threads and churn."""
    bulk: int
    """Filters of the bars on building and files."""
    shapes: int
    churn_s: float


QUICK: Final = Size(
    {
        "podc10": (1_000, 10_000, 100_000),
        "podc1000": (10_000,),
        "mixed": (1_000, 10_000, 100_000),
        "strings": (10_000,),
        "dnf": (10_000,),
        "sparse": (10_000,),
    },
    ("podc10", "mixed"),
    100_000,
    100_000,
    500,
    3.0,
)
FULL: Final = Size(
    {
        "podc10": (1_000, 10_000, 100_000, 1_000_000),
        "podc1000": (1_000, 10_000, 100_000, 1_000_000),
        "mixed": (1_000, 10_000, 100_000, 1_000_000),
        "strings": (1_000, 10_000, 100_000),
        "dnf": (1_000, 10_000, 100_000),
        "sparse": (1_000, 10_000, 100_000),
    },
    tuple(WORKLOADS),
    100_000,
    1_000_000,
    2_000,
    5.0,
)


def run(name: str, size: Size) -> Results:
    """Everything, telling on stderr what is being measured."""
    results = Results(name, _machine(), os.getloadavg()[0])
    warming.warm()
    for each, sizes in size.sizes.items():
        for filters in sizes:
            tell(f"{each}, {filters:,} filters")
            load = workload(each, filters)
            found = bars.throughput(load, bars.index_of(load))
            results.throughput.append(found)
            results.bars += _bars_of(found)
    for each in size.others:
        tell(f"other engines, {each}")
        results.others += bars.against_others(workload(each, 1_000), results.left_out)
    results.bars.append(_growth(results.throughput))
    tell("two threads, routing, churn")
    load = workload("mixed", size.standing)
    results.bars.append(bars.threads(load, bars.index_of(load)))
    results.bars.append(bars.route(load))
    churned, facts = bars.churn(load, size.churn_s)
    results.bars += churned
    results.facts |= facts
    tell("from columns, files")
    filed, facts = bars.files(workload("podc10", size.bulk))
    results.bars += filed
    results.facts |= facts
    tell("from text")
    read, facts = bars.from_text(workload("strings", size.bulk))
    results.bars.append(read)
    results.facts |= facts | bars.shapes_cost(size.shapes)
    results.left_out += [
        f"bar 1, {each} with {filters:,} filters: only with --full"
        for each, filters in TIMES
        if filters not in size.sizes[each]
    ]
    return results


def _bars_of(found: Throughput) -> list[Bar]:
    key = (found.workload, found.filters)
    what = f"{found.workload}, {found.filters:,} filters"
    bars_: list[Bar] = []
    if key in TIMES and found.times is not None:
        name = f"{what}: batches against numpy by hand"
        bars_.append(Bar(1, name, TIMES[key], found.times, "times", "CPU", at_least=True))
    if key in SINGLE_US:
        target = SINGLE_US[key]
        bars_.append(Bar(2, f"{what}: one event, p50", target, found.single_us, "us", "wall"))
        name = f"{what}: one event as a dict, p50"
        bars_.append(Bar(2, name, target, found.single_dict_us, "us", "wall"))
    return bars_


def _growth(found: list[Throughput]) -> Bar:
    """The exponent of a single event's cost against the number of filters, podc10."""
    points = [each for each in found if each.workload == "podc10"]
    logs = [math.log(each.filters) for each in points]
    slope = float(np.polyfit(logs, [math.log(each.single_us) for each in points], 1)[0])
    span = f"{points[0].filters:,} to {points[-1].filters:,}"
    return Bar(5, f"podc10, exponent of one event's cost, {span}", EXPONENT, slope, "", "wall")


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes (the default)")
    size.add_argument("--full", action="store_true", help="up to a million filters")
    size.add_argument("--read", type=Path, help="no run: the JSON of one that was")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print JSON only")
    shown.add_argument("--markdown", action="store_true", help="print the tables of the docs")
    parser.add_argument("--output", type=Path, help="write the JSON to a file as well")
    parser.add_argument("--plot", type=Path, help="draw throughput against filters")
    parser.add_argument("--docs", type=Path, help="renew matching.md, .json and .png in a folder")
    given = parser.parse_args()
    if given.read:
        results = msgspec.json.decode(given.read.read_bytes(), type=Results)
    else:
        results = run("full", FULL) if given.full else run("quick", QUICK)
    document = msgspec.json.encode(results)
    outputs, plots = [given.output], [given.plot]
    if given.docs:
        rewrite(results, given.docs / "matching.md")
        outputs.append(given.docs / "matching.json")
        plots.append(given.docs / "images" / "matching.png")
    for path in filter(None, outputs):
        path.write_bytes(msgspec.json.format(document, indent=1) + b"\n")
    for path in filter(None, plots):
        plot(results, path)
    if given.markdown:
        print(markdown(results))
        return
    if not given.json:
        print(text(results))
    print(document.decode())


if __name__ == "__main__":
    main()
