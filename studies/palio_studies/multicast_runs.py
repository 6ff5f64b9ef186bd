"""What is run of the multicast study, at each scale, and its runs: from a point to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import cos, pi, sin
from typing import Any, Final, TypeVar

import numpy as np

from palio.language.parsing import parse_filter
from palio.multicast.clustered import clusters_of, groups_needed, likeness_by_interest, regionalism
from palio.simulation.randomness import Randomness
from palio_studies.multicast_network import CLASSES, Extent, Wan, neighbour_graph
from palio_studies.multicast_queues import run_latency
from palio_studies.multicast_scenes import (
    NON_REGIONAL,
    PUBLISHER_REGIONAL,
    REGIONAL,
    scene_of,
)
from palio_studies.names import Scale
from palio_studies.study import SEEDS, Experiment, Point, Row, Value, grid, with_seeds

# --- links ---


def run_links(point: Point) -> list[Row]:
    """What each method makes of some events: links by class, sends, waste, and its groups."""
    scene = scene_of(point.parameters, point.seed)
    regions = [each.tolist() for each in scene.wan.clusters]
    alike = clusters_of(likeness_by_interest(scene.learned), len(regions[0]))
    seen: Row = {
        "wanted": float(scene.wanted.sum(axis=1).mean()),
        "regionalism_found": regionalism(scene.learned, regions),
        "regions_found": _found_together(scene.wan, alike),
    }
    plans = scene.plans(int(point.parameters["groups"]))
    rows: list[Row] = [
        {"method": name, **scene.costs(made), **seen} for name, made in plans.items()
    ]
    least = float(rows[0]["intermediate"])
    return [{**row, "of_ideal": float(row["intermediate"]) / least} for row in rows]


def _found_together(wan: Wan, clusters: list[list[int]]) -> float:
    """Of the pairs of brokers in a cluster, the share that is of one region."""
    pairs = [wan.regions[members][:, None] == wan.regions[members] for members in clusters]
    same = sum(int(each.sum()) - len(each) for each in pairs)
    return same / sum(len(each) * (len(each) - 1) for each in pairs)


def run_groups(point: Point) -> list[Row]:
    """How many groups clusters need, exact and by threshold: the closed forms of the planner."""
    brokers, clusters = (int(point.parameters[name]) for name in ("brokers", "clusters"))
    sizes = [len(each) for each in np.array_split(np.arange(brokers), clusters)]
    return [
        {
            "method": "CGM" if threshold is None else f"threshold CGM, up to {threshold}",
            "needed": float(sum(groups_needed(size, threshold) for size in sizes)),
        }
        for threshold in (None, 1, 2, 3, 4)
    ]


def run_endpoints(point: Point) -> list[Row]:
    """How many brokers so many clusters of one size hold, if there may be so many groups."""
    clusters, groups = (int(point.parameters[name]) for name in ("clusters", "most_groups"))
    size = 0
    while clusters * groups_needed(size + 1, None) <= groups:
        size += 1
    return [{"endpoints": clusters * size}]


EXAMPLES: Final = {
    "s1": "a = 1",
    "s2": "b <= 2",
    "s3": "a = 1 AND c >= 2",
}
"""Three subscriptions on a schema of three integers, each from 0 to 3."""


def run_matching_sets(point: Point) -> list[Row]:
    """The disjoint sets of events that some subscriptions make: by who wants them, their share."""
    del point
    filters = {name: parse_filter(text) for name, text in EXAMPLES.items()}
    events = [dict(zip("abc", values, strict=True)) for values in product(range(4), repeat=3)]
    wanted = [
        " ".join(name for name, each in filters.items() if each.matches(event)) or "none"
        for event in events
    ]
    return [
        {"set": wants, "share": count / len(events)} for wants, count in Counter(wanted).items()
    ]


def run_network(point: Point) -> list[Row]:
    """The links of a network, and the neighbours of its brokers, as strokes of a map: routers of
    the backbone on a circle, each stub on one of its own beyond them.
    """
    wan = Wan(Extent(), Randomness(point.seed))
    places = {name: _around(0, 0, 1.0, *each) for name, each in _counted(wan.backbone)}
    stubs = len(wan.clusters)
    for region, cluster in enumerate(wan.clusters):
        middle = _around(0, 0, 2.4, region, stubs)
        for place, broker in enumerate(cluster.tolist()):
            name = wan.brokers[broker]
            places[wan.hosts[name]] = _around(*middle, 0.42, place, len(cluster))
            places[name] = _around(*middle, 0.55, place, len(cluster))
    for name in wan.publishers:
        x, y = places[wan.hosts[name]]
        places[name] = (0.93 * x, 0.93 * y)
    near = neighbour_graph(wan.brokers, wan.latency_us, wan.most_groups)
    strokes = [
        *(("link", CLASSES[kind], ends) for ends, kind in zip(wan.links, wan.classes, strict=True)),
        *(("neighbours", "neighbours", (one, other)) for one in near for other in near[one]),
    ]
    return [
        {
            "of": of,
            "kind": kind,
            **dict(zip(("x", "y", "to_x", "to_y"), (*places[one], *places[other]), strict=True)),
        }
        for of, kind, (one, other) in strokes
        if one < other or of == "link"
    ]


def _counted(names: Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    return [(name, (place, len(names))) for place, name in enumerate(names)]


def _around(x: float, y: float, radius: float, place: int, count: int) -> tuple[float, float]:
    angle = 2 * pi * place / count
    return x + radius * cos(angle), y + radius * sin(angle)


# --- what is run ---

T = TypeVar("T")
Parameters = list[dict[str, Value]]


def _scaled(small: T, paper: T, beyond: T) -> dict[Scale, T]:
    return {Scale.SMALL: small, Scale.PAPER: paper, Scale.BEYOND: beyond}


COMMON: Final = 1.0
"""The match rate, in %, at which both kinds of regionalism are run: from it on events are for most
brokers."""
MATCHES: Final = _scaled(
    (0.01, 0.1, 1.0, 10.0), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (0.01, 0.1, 1.0)
)
"""Match rates, in %."""
REGIONAL_MATCHES: Final = _scaled((COMMON,), (0.1, COMMON), (0.1,))
DEGREES: Final = _scaled(
    (0.0, 0.9, 1.0), (0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0), (0.0, 0.9, 1.0)
)
EVENTS: Final = _scaled(200, 1_000, 1_000)
GROUPS: Final = _scaled(512, 2_048, 2_048)
"""Of the approximation."""
STUBS: Final = _scaled((2,), (2,), (4, 8))
"""Stubs of each of the five backbone routers: 100 brokers, or 200 and 400."""

QUEUED: Final = _scaled(100, 300, 300)
"""Events whose latency is measured."""
RATES: Final = _scaled((100.0, 8_000.0), (100.0, 1_000.0, 4_000.0, 8_000.0), (1_000.0,))


def _sizes(scale: Scale) -> dict[str, Any]:
    return {"stubs": STUBS[scale], "events": [EVENTS[scale]], "groups": [GROUPS[scale]]}


def _match_rates(scale: Scale) -> Parameters:
    return grid(**_sizes(scale), kind=[NON_REGIONAL], match=MATCHES[scale], regionalism=[0.0])


def _regionalism(scale: Scale) -> Parameters:
    given = {**_sizes(scale), "regionalism": DEGREES[scale]}
    matches = REGIONAL_MATCHES[scale]
    common = [match for match in matches if match == COMMON]
    return [
        *grid(kind=[REGIONAL], match=matches, **given),
        *grid(kind=[PUBLISHER_REGIONAL], match=common, **given),
    ]


def _latency(scale: Scale) -> Parameters:
    given: dict[str, Any] = {"kind": [REGIONAL], "events": [QUEUED[scale]], "groups": [512]}
    return [
        *grid(match=[0.1, 1.0], regionalism=[0.0], rate=RATES[scale], **given),
        *grid(match=[1.0], regionalism=[1.0], rate=RATES[scale], **given),
    ]


def _groups(scale: Scale) -> Parameters:
    sizes = [100] if scale is Scale.SMALL else [25, 50, 75, 100, 125, 150, 200]
    return grid(brokers=sizes, clusters=[5, 10, 20])


def _experiment(
    name: str,
    run: Callable[[Point], list[Row]],
    sets: Callable[[Scale], Parameters],
    weight: float,
    seeds: int = max(SEEDS.values()),
) -> Experiment:
    """Runs with so many seeds at the most; one takes a time in proportion to its weight."""

    def points(scale: Scale) -> Iterable[Point]:
        return with_seeds(name, sets(scale), min(SEEDS[scale], seeds))

    return Experiment(name, run, points, weight=lambda _: weight)


EXPERIMENTS: Final = (
    _experiment("match-rate", run_links, _match_rates, 4.0),
    _experiment("regionalism", run_links, _regionalism, 4.0),
    _experiment("latency", run_latency, _latency, 3.0),
    _experiment("groups", run_groups, _groups, 0.1, seeds=1),
    _experiment(
        "endpoints",
        run_endpoints,
        lambda _: grid(clusters=[1, 2, 5, 10, 20, 40], most_groups=[1_000, 10_000, 100_000]),
        0.1,
        seeds=1,
    ),
    _experiment("matching-sets", run_matching_sets, lambda _: [{}], 0.1, seeds=1),
    _experiment("network", run_network, lambda _: [{}], 0.2, seeds=1),
)
