"""Every routing algorithm in one scenario, and every matching on the same filters.

In the scenario of `palio simulate` clients subscribe, change a parameter and publish, on a tree of
15 brokers and on a graph of 15 with cycles. Messages, filters and virtual time do not depend on the
matching, which is checked; processor time does. A matching by itself has filters added, events
matched, and a filter changed before each of more events, as parametric subscriptions do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import Any, Final, NamedTuple

import numpy as np

from palio.matching import warming
from palio.model.filters import Conjunction, Constraint, Filter
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio.routing.parameters import lift
from palio.server.limits import GC_THRESHOLDS
from palio_studies.names import MATCHINGS
from palio_studies.simulator.poset_selector import PosetSelector
from palio_studies.simulator.scenario import selectors_of, simulate

Row = dict[str, Any]

TREE: Final = "tree:15x2"
GRAPH: Final = "random:15x10"
CLIENTS: Final = 400
EVENTS: Final = 600
ROUNDS: Final = 3
"""Of which the median counts; matchings take turns."""

CHANGES: Final = 200
"""Changes of a filter, an event after each; as many events without."""


def algorithms(clients: int = CLIENTS, events: int = EVENTS) -> list[Row]:
    """What each algorithm costs on each network that it is for."""
    _warm()
    return [
        _scenario(topology, each.name, clients, events)
        for topology in (TREE, GRAPH)
        for each in ALGORITHMS.values()
        if topology is TREE or each.graph is GraphKind.GRAPH
    ]


def _scenario(topology: str, routing: str, clients: int, events: int) -> Row:
    spent: dict[str, list[float]] = {name: [] for name in MATCHINGS}
    counted = []
    for _ in range(ROUNDS):
        for name, times in spent.items():
            start = process_time()
            found = simulate(
                topology, routing, seed=1, clients=clients, events=events, matching=name
            )
            times.append(process_time() - start)
            del found["matching"], found["trace"]
            counted.append(found)
    first, *others = counted
    assert all(each == first for each in others)
    return {
        "network": topology,
        "routing": routing,
        "requests": first["subscribes"] + first["updates"] + first["unsubscribes"],
        "advertisements": first["advertises"] + first["unadvertises"],
        "link states": first["link_states"],
        "in batches": first["batches"],
        "events": first["notifications"],
        "in vain": first["stray"],
        "filters": first["filters"],
        "ms": first["latency_ms"]["mean"],
        "p99 ms": first["latency_ms"]["p99"],
        **{f"CPU s {name}": round(median(times), 2) for name, times in spent.items()},
    }


class Workload(NamedTuple):
    """Filters, and how to draw an event for them."""

    name: str
    filters: list[Filter]
    event: Callable[[np.random.Generator], dict[str, Any]]


def thresholds(count: int) -> list[Filter]:
    """One chain: each filter covers all narrower ones."""
    order = np.random.default_rng(6).permutation(count)
    return [Filter.of([Conjunction.of([Constraint.of("a", ">=", int(low))])]) for low in order]


def matchings(workloads: list[Workload]) -> list[Row]:
    """What each matching costs by itself, in microseconds."""
    _warm()
    return [_matching(each, name) for each in workloads for name in MATCHINGS]


def _matching(workload: Workload, name: str) -> Row:
    rng = np.random.default_rng(7)
    lifted = [lift(each) for each in workload.filters]
    selector = selectors_of(name)()
    start = process_time()
    for key, each in enumerate(lifted):
        selector.add(key, each.skeleton, each.names, key)
    selector.match_event({})
    added = process_time() - start
    events = [workload.event(rng) for _ in range(2 * CHANGES)]
    start = process_time()
    matched = sum(len(selector.match_event(event)) for event in events[:CHANGES])
    alone = process_time() - start
    tried = len(lifted)
    if isinstance(selector, PosetSelector):
        tried = int(np.mean([selector.tried(event) for event in events[:CHANGES]]))
    changes = list(_changes(workload, rng))
    start = process_time()
    for (key, values), event in zip(changes, events[CHANGES:], strict=True):
        selector.bind(key, values, lifted[key].filled(values))
        selector.match_event(event)
    changed = process_time() - start
    return {
        "filters": f"{len(lifted):,} {workload.name}",
        "matching": name,
        "filter added us": round(1e6 * added / len(lifted), 1),
        "event us": round(1e6 * alone / CHANGES, 1),
        "matches": round(matched / CHANGES, 1),
        "tried": tried if name == "poset" else "",
        "change and event us": round(1e6 * changed / CHANGES, 1),
    }


def _changes(workload: Workload, rng: np.random.Generator) -> Iterator[tuple[int, dict[str, int]]]:
    """A filter, and a new value for one of its numbers."""
    for key in rng.integers(len(workload.filters), size=CHANGES):
        names = lift(workload.filters[key]).names
        number = next(name for name, value in names.items() if isinstance(value, int))
        yield int(key), {number: int(rng.integers(1000))}


def _warm() -> None:
    """Load compiled code, and seldom look for garbage, as brokers do."""
    warming.warm()
    gc.set_threshold(*GC_THRESHOLDS)


def as_markdown(rows: list[Row]) -> str:
    """A table for the page of figures."""
    columns = list(rows[0])
    lines = [
        columns,
        ["---"] * len(columns),
        *([_shown(row[each]) for each in columns] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
