"""gryphon's runs: the same subscriptions in every engine, which must find the same matches.

*Space* is edges and entries of successor sets; *work* is the places an event visits. Both are
counts, equal on every machine; only the columns in microseconds are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import inf
from time import process_time
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from palio.matching.index import Index
from palio.matching.protocol import Matches
from palio.model import Conjunction, Constraint, Filter
from palio_studies.gryphon_bound import range_visits_at_most, visits_at_most
from palio_studies.gryphon_workload import LOOSEST, MatchingWorkload, held_decay
from palio_studies.study import Point, Row
from palio_studies.tree.tree import Tree

EVENTS: Final = 200
"""Drawn for each run."""

TIMES: Final = 3
"""Matching is timed so often; the least is taken, which other processes disturb least."""

TREES: Final[Mapping[str, Mapping[str, Any]]] = {
    "none": {"collapse": False, "successors": False},
    "a": {"successors": False},
    "a+b": {},
    "a+b+c": {},
}
"""The optimizations of gryphon 4 that a tree has, and its switches; c is in `_tree_of`."""


class Drawn(NamedTuple):
    """What one run is about."""

    workload: MatchingWorkload
    filters: Sequence[Filter]
    events: pa.RecordBatch


Pairs = list[tuple[int, int]]


def drawn_for(point: Point) -> Drawn:
    """The workload of a point: its own decay, or the one that makes `matches` of an event."""
    given = point.parameters
    workload = msgspec.convert(dict(given), MatchingWorkload)
    size, matches = int(given["subscriptions"]), float(given["matches"])
    if matches:
        workload = msgspec.structs.replace(workload, decay=held_decay(workload, matches, size))
    filters = list(workload.filters(size, np.random.default_rng([point.seed, 1])))
    return Drawn(workload, filters, workload.events(EVENTS, np.random.default_rng([point.seed, 2])))


# --- counts ---


def count_places(point: Point) -> list[Row]:
    """Space and work of every tree, and their bounds."""
    drawn = drawn_for(point)
    workload, filters = drawn.workload, drawn.filters
    size = len(filters)
    expected = _pairs(_index_of(filters).match(drawn.events))
    tests = sum(len(each.conjunctions[0].constraints) for each in filters)
    rows: list[Row] = []

    def tell(engine: str, edges: int, successors: int, work: float, seconds: float = 0.0) -> None:
        rows.append(
            {
                "engine": engine,
                "edges": edges,
                "successors": successors,
                "space": edges + successors,
                "work": work,
                "matched": len(expected) / EVENTS,
                "tests": tests / size,
                "add_us": seconds / size * 1e6,
            }
        )

    for name in _trees_for(workload):
        begun = process_time()
        tree = _tree_of(name, drawn, int(point.parameters["factored"]))
        seconds = process_time() - begun
        _agree(point, name, _pairs(tree.match(drawn.events)), expected)
        space = tree.space()
        tell(name, space.edges, space.successors, tree.work.visited / EVENTS, seconds)
    tell("bound", size * workload.attributes, 0, _visits_at_most(workload, size))
    return rows


def _visits_at_most(workload: MatchingWorkload, size: int) -> float:
    if not workload.ranges:
        return visits_at_most(workload.attributes, workload.values, size)
    reach = int(workload.values * LOOSEST)
    tests = workload.values + 2 * reach
    return range_visits_at_most(workload.attributes, tests, reach / workload.values, size)


def count_worst_case(point: Point) -> list[Row]:
    """Every subscription of one value or none: the event of those values visits the whole tree."""
    attributes = int(point.parameters["attributes"])
    names = [f"a{number:02}" for number in range(attributes)]
    filters = [
        Filter.of([Conjunction.of(Constraint.of(name, "=", 0) for name in chosen)])
        for asked in product((False, True), repeat=attributes)
        for chosen in [[name for name, asks in zip(names, asked, strict=True) if asks]]
    ]
    events = pa.record_batch({name: [0] for name in names})
    drawn = Drawn(MatchingWorkload(attributes, 1, 1.0), filters, events)
    rows: list[Row] = []
    for name in ("none", "a", "a+b"):
        tree = _tree_of(name, drawn, 0)
        found = len(tree.match(events).keys)
        if found != len(filters):
            raise AssertionError(f"{name}: {found} of {len(filters)} subscriptions match")
        space = tree.space()
        rows.append(
            {
                "engine": name,
                "subscriptions": len(filters),
                "places": space.nodes + space.leaves,
                "work": float(tree.work.visited),
            }
        )
    return rows


# --- times ---


def time_events(point: Point) -> list[Row]:
    """What an event costs on this machine, in every tree and in the index that brokers use."""
    drawn = drawn_for(point)
    factored = int(point.parameters["factored"])
    index = _index_of(drawn.filters)
    expected = _pairs(index.match(drawn.events))  # compiles all of it
    engines: dict[str, Tree | Index] = {
        name: _tree_of(name, drawn, factored) for name in _trees_for(drawn.workload)
    }
    rows: list[Row] = []
    for name, engine in (engines | {"index": index}).items():
        if isinstance(engine, Tree):
            engine.space()  # finds all successor sets
        shortest = inf
        for _ in range(TIMES):
            begun = process_time()
            found = _pairs(engine.match(drawn.events))
            shortest = min(shortest, process_time() - begun)
            _agree(point, name, found, expected)
        rows.append({"engine": name, "event_us": shortest / EVENTS * 1e6})
    return rows


# --- the engines ---


def _trees_for(workload: MatchingWorkload) -> list[str]:
    """Ranges are not factored: each of their many constants would need trees of its own."""
    return [name for name in TREES if not (workload.ranges and name == "a+b+c")]


def _tree_of(name: str, drawn: Drawn, factored: int) -> Tree:
    names = drawn.workload.names
    index = names[:factored] if name == "a+b+c" else []
    filters = dict(enumerate(drawn.filters))
    return Tree(filters, names, **TREES[name], factored=index)


def _index_of(filters: Sequence[Filter]) -> Index:
    index = Index()
    for key, each in enumerate(filters):
        index.add(key, each)
    return index


def _pairs(matches: Matches) -> Pairs:
    return list(zip(matches.rows.tolist(), matches.keys.tolist(), strict=True))


def _agree(point: Point, engine: str, found: Pairs, expected: Pairs) -> None:
    if found != expected:
        differ = sorted(set(found) ^ set(expected))[:5]
        raise AssertionError(
            f"{engine} and the index disagree at {dict(point.parameters)}, seed {point.seed}, "
            f"for (event, subscription) {differ}"
        )
