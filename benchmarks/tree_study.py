"""The matching tree's study (gryphon 4): space and work against the number of subscriptions.

    python -m benchmarks.tree_study [--heavy] [--values V] [--json]
        [--plot docs/measured/images/tree.png]

Workload podc is the paper's, with the numbers it lost filled in: 30 attributes of 10 values,
attribute i (from 0) tested with probability 0.98 * 0.85**i, values Zipf, events uniform. Measured
are the tree alone, with chains of `*` collapsed (a), with successor sets too (a+b), and with the
most popular attributes factored out as well (a+b+c). *Space* is edges plus entries of successor
sets, *work* is places visited an event; both are counts and so the same on every machine. The
baseline is to try each subscription, on the smallest set. The second table is for ranges, which the
paper left for later: workload mixed, 20 attributes of 1000 values, 3 to 5 of them tested, 40% <=,
40% >=, 20% =.

Seeds are fixed. All trees of a set must give the same matches, those of the reference where it
runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.workloads import Workload, mixed, podc
from palio.language.parsing import parse_filter
from palio.matching.reference import Reference
from palio.matching.tree.bound import exponent, visits_at_most
from palio.matching.tree.tree import Tree
from palio.model import Filter

SIZES: Final = (500, 1_000, 2_000, 4_000, 8_000)
HEAVY_SIZES: Final = (*SIZES, 16_000, 32_000, 64_000)
EVENTS: Final = 400
ATTRIBUTES: Final = 30
VALUES: Final = 10
FACTORED: Final = 2

LEVELS: Final[dict[str, dict[str, Any]]] = {
    "none": {"collapse": False, "successors": False},
    "a": {"successors": False},
    "a+b": {},
    "a+b+c": {"factored": FACTORED},
}


BASELINE: Final = "each"
"""The reference, which tries each subscription."""


class Point(msgspec.Struct, frozen=True):
    """One tree: how large it is, and what an event costs in it."""

    workload: str
    level: str
    subscriptions: int
    edges: int
    successors: int
    visited: float
    matches: float
    add_us: float
    event_us: float

    @property
    def space(self) -> int:
        return self.edges + self.successors


def measure(
    workload: str, level: str, filters: Sequence[Filter], events: pa.RecordBatch
) -> tuple[Point, list[tuple[int, int]]]:
    """One point of the study, and the pairs of event and subscription that it finds."""
    schema = events.schema.names
    engine: Tree | Reference = Reference()
    if level != BASELINE:
        switches = dict(LEVELS[level])
        switches["factored"] = schema[: switches.get("factored", 0)]
        engine = Tree(schema, **switches)
    start = time.process_time()
    for key, filter in enumerate(filters):
        engine.add(key, filter)
    added = time.process_time() - start
    edges = successors = 0
    if isinstance(engine, Tree):
        space = engine.space()
        edges, successors = space.edges, space.successors
    start = time.process_time()
    matches = engine.match(events)
    matched = time.process_time() - start
    visited = engine.work.visited if isinstance(engine, Tree) else len(filters) * EVENTS
    point = Point(
        workload=workload,
        level=level,
        subscriptions=len(filters),
        edges=edges,
        successors=successors,
        visited=visited / EVENTS,
        matches=len(matches.keys) / EVENTS,
        add_us=round(added / len(filters) * 1e6, 1),
        event_us=round(matched / EVENTS * 1e6, 1),
    )
    return point, list(zip(matches.rows.tolist(), matches.keys.tolist(), strict=True))


def study(given: Workload, levels: Sequence[str], sizes: Sequence[int]) -> list[Point]:
    """All points of one workload; matches that differ end the program."""
    filters = [parse_filter(text) for text in given.texts()]
    events = given.events.slice(0, EVENTS)
    points = []
    for size in sizes:
        expected = None
        for level in (BASELINE, *levels) if size == sizes[0] else levels:
            point, pairs = measure(given.name, level, filters[:size], events)
            if expected is not None and pairs != expected:
                sys.exit(f"{given.name}, {size} subscriptions, {level}: other matches than before")
            expected = pairs
            points.append(point)
    return points


def fitted(points: Sequence[Point], what: str) -> float:
    """The exponent e of c * N**e that fits best."""
    sizes = np.log([point.subscriptions for point in points])
    return float(np.polyfit(sizes, np.log([getattr(point, what) for point in points]), 1)[0])


def at(points: Sequence[Point], level: str) -> list[Point]:
    return [point for point in points if point.level == level]


def print_table(points: Sequence[Point], values: int | None) -> None:
    """Space and work of one workload, the exponents fitted; with `values`, beside the bound."""
    levels = list(dict.fromkeys(point.level for point in points if point.level != BASELINE))
    heads = "".join(f" {level:>9}" for level in levels)
    bounds = f" {'at most':>9} {'(KN)^(1-l)':>11}" if values else ""
    print(f"\n{points[0].workload}: space (left) and places visited an event (right)")
    print(f"{'N':>8} |{heads} |{heads}{bounds} | matches")
    for size in sorted({point.subscriptions for point in points}):
        row = {point.level: point for point in points if point.subscriptions == size}
        space = "".join(f" {row[level].space:>9,}" for level in levels)
        visited = "".join(f" {row[level].visited:>9,.1f}" for level in levels)
        if values:
            visited += f" {visits_at_most(ATTRIBUTES, values, size):>9,.0f}"
            visited += f" {(ATTRIBUTES * size) ** exponent(ATTRIBUTES, values):>11,.0f}"
        print(f"{size:>8,} |{space} |{visited} | {row[levels[0]].matches:>7,.2f}")
    space = "".join(f" {fitted(at(points, level), 'space'):>9.2f}" for level in levels)
    visited = "".join(f" {fitted(at(points, level), 'visited'):>9.2f}" for level in levels)
    if values:
        visited += f" {_bound_exponent(points, values):>9.2f} {exponent(ATTRIBUTES, values):>11.2f}"
    print(f"{'exponent':>8} |{space} |{visited} |")
    largest = points[-1].subscriptions
    for point in points:
        if point.level == BASELINE or point.subscriptions == largest:
            print(
                f"{point.level:>8} at {point.subscriptions:,}: {point.add_us:,.0f} us an addition, "
                f"{point.event_us:,.0f} us an event"
            )


def _bound_exponent(points: Sequence[Point], values: int) -> float:
    sizes = [point.subscriptions for point in at(points, "none")]
    bounds = [visits_at_most(ATTRIBUTES, values, size) for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(bounds), 1)[0])


def plot(points: Sequence[Point], values: int, path: Path) -> None:
    """Space and work against N, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    colours = dict(zip(LEVELS, ("#9a9a9a", "#0072b2", "#d55e00", "#009e73"), strict=True))
    for level in LEVELS:
        line = at(points, level)
        sizes = [point.subscriptions for point in line]
        style = {"color": colours[level], "marker": "o", "markersize": 3.5, "label": level}
        left.plot(sizes, [point.space for point in line], **style)
        right.plot(sizes, [point.visited for point in line], **style)
    sizes = [point.subscriptions for point in at(points, "none")]
    right.plot(sizes, sizes, color="black", linewidth=0.8, linestyle=":", label="try each")
    most = [visits_at_most(ATTRIBUTES, values, size) for size in sizes]
    right.plot(sizes, most, color="black", linewidth=0.8, linestyle="--", label="bound")
    left.set(title="space", ylabel="edges + successor-set entries")
    right.set(title="work", ylabel="places visited an event")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="subscriptions")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, which="major")
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8, ncols=2, loc=(0.4, 0.38))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="The matching tree's study.")
    parser.add_argument("--heavy", action="store_true", help="up to 64,000 subscriptions: minutes")
    parser.add_argument("--values", type=int, default=VALUES, help="values of an attribute")
    parser.add_argument("--plot", type=Path, help="write the figure to this file")
    parser.add_argument("--json", action="store_true", help="print only JSON")
    options = parser.parse_args()
    sizes = HEAVY_SIZES if options.heavy else SIZES
    points = study(podc(sizes[-1], options.values), list(LEVELS), sizes)
    ranged = study(mixed(sizes[-2]), ["a", "a+b"], sizes[:-1])
    if not options.json:
        print_table(points, options.values)
        print_table(ranged, None)
        print()
    print(json.dumps(msgspec.to_builtins([*points, *ranged])))
    if options.plot is not None:
        plot(points, options.values, options.plot)


if __name__ == "__main__":
    main()
