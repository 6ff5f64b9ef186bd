"""What is run of the multicast study, at each scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from palio_studies.multicast_drift import run_drift
from palio_studies.multicast_runs import (
    run_approximation,
    run_groups,
    run_latency,
    run_links,
    run_prices,
)
from palio_studies.multicast_scenes import NON_REGIONAL, PUBLISHER_REGIONAL, REGIONAL
from palio_studies.names import Scale
from palio_studies.study import SEEDS, Experiment, Point, with_seeds

__all__ = [
    "AMBIENT",
    "DRIFTS",
    "DRIFT_SIZES",
    "EVENTS",
    "EXPERIMENTS",
    "GROUPS",
    "MATCHES",
    "QUEUED",
    "RATES",
]

Parameters = dict[str, Any]

MATCHES: Final = {
    Scale.SMALL: (0.01, 0.1, 1.0, 10.0),
    Scale.PAPER: (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    Scale.BEYOND: (0.01, 0.1, 1.0),
}
"""Match rates, in %."""

DEGREES: Final = {
    Scale.SMALL: (0.0, 0.9, 1.0),
    Scale.PAPER: (0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0),
    Scale.BEYOND: (0.0, 0.9, 1.0),
}
COMMON: Final = 1.0
"""The match rate at which both kinds of regionalism are run, in %."""
REGIONAL_MATCHES: Final = {Scale.SMALL: (1.0,), Scale.PAPER: (0.1, 1.0), Scale.BEYOND: (0.1,)}

EVENTS: Final = {Scale.SMALL: 200, Scale.PAPER: 1_000, Scale.BEYOND: 1_000}
GROUPS: Final = {Scale.SMALL: 512, Scale.PAPER: 2_048, Scale.BEYOND: 2_048}
"""Of the approximation."""
BUDGETS: Final = {
    Scale.SMALL: (16, 256, 2_048),
    Scale.PAPER: (16, 64, 256, 1_024, 4_096),
    Scale.BEYOND: (16_384,),
}
QUEUED: Final = {Scale.SMALL: 100, Scale.PAPER: 300, Scale.BEYOND: 300}
"""Events whose latency is measured."""
RATES: Final = {
    Scale.SMALL: (100.0, 8_000.0),
    Scale.PAPER: (100.0, 1_000.0, 4_000.0, 8_000.0),
    Scale.BEYOND: (1_000.0,),
}
AMBIENT: Final = 0.3
LOADS: Final = {Scale.SMALL: (), Scale.PAPER: (0.0, 0.6, 0.9), Scale.BEYOND: (0.95,)}
PRICED_SEEDS: Final = 5
"""A run with prices makes ten plans, and takes ten times as long as others."""
STUBS: Final = {Scale.SMALL: (2,), Scale.PAPER: (2,), Scale.BEYOND: (4, 8)}
"""Stubs of each of the five backbone routers: 100 brokers, or 200 and 400."""
DRIFTS: Final = {Scale.SMALL: (0.2,), Scale.PAPER: (0.05, 0.2), Scale.BEYOND: (0.2, 0.5)}
"""Shares of the subscriptions that are others in each period."""
DRIFT_MATCHES: Final = {Scale.SMALL: (0.1,), Scale.PAPER: (0.01, 0.1), Scale.BEYOND: (0.1, 1.0)}
DRIFT_SEEDS: Final = 3
"""A run has nine plans for each of its periods."""
DRIFT_SIZES: Final[dict[Scale, Parameters]] = {
    Scale.SMALL: {"stubs": 1, "learned": 1_000, "events": 100, "groups": 128, "periods": 4},
    Scale.PAPER: {"stubs": 2, "learned": 4_000, "events": 500, "groups": 512, "periods": 6},
    Scale.BEYOND: {"stubs": 2, "learned": 4_000, "events": 500, "groups": 512, "periods": 12},
}


def _sized(scale: Scale) -> Iterable[Parameters]:
    for stubs in STUBS[scale]:
        yield {"stubs": stubs, "events": EVENTS[scale], "groups": GROUPS[scale]}


def _match_rates(scale: Scale) -> Iterable[Point]:
    found = [
        {**sized, "kind": NON_REGIONAL, "match": match, "regionalism": 0.0}
        for sized in _sized(scale)
        for match in MATCHES[scale]
    ]
    return with_seeds("match-rate", found, SEEDS[scale])


def _regionalism(scale: Scale) -> Iterable[Point]:
    found = [
        {**sized, "kind": kind, "match": match, "regionalism": degree}
        for sized in _sized(scale)
        for kind in (REGIONAL, PUBLISHER_REGIONAL)
        for match in REGIONAL_MATCHES[scale]
        for degree in DEGREES[scale]
        if kind == REGIONAL or match == COMMON
    ]
    return with_seeds("regionalism", found, SEEDS[scale])


def _approximation(scale: Scale) -> Iterable[Point]:
    found = [
        {"match": match, "events": EVENTS[scale], "groups": groups}
        for match in ((1.0,) if scale is Scale.SMALL else (0.1, 1.0))
        for groups in BUDGETS[scale]
    ]
    return with_seeds("approximation", found, SEEDS[scale])


def _latency(scale: Scale) -> Iterable[Point]:
    cases = [(0.1, 0.0), (1.0, 0.0), (1.0, 1.0)]
    queues = [(*case, rate, AMBIENT) for case in cases for rate in RATES[scale]]
    queues += [(*case, 1_000.0, load) for case in cases[:2] for load in LOADS[scale]]
    found = [
        {
            "kind": REGIONAL,
            "match": match,
            "regionalism": degree,
            "rate": rate,
            "ambient": ambient,
            "events": QUEUED[scale],
            "groups": 512,
        }
        for match, degree, rate, ambient in queues
    ]
    return with_seeds("latency", found, SEEDS[scale])


def _groups(scale: Scale) -> Iterable[Point]:
    sizes = (100,) if scale is Scale.SMALL else (25, 50, 75, 100, 125, 150, 200)
    found = [
        {"brokers": brokers, "clusters": clusters}
        for brokers in sizes
        for clusters in (5, 10, 20)
        if brokers >= clusters
    ]
    return with_seeds("groups", found, 1)


def _prices(scale: Scale) -> Iterable[Point]:
    cases = [(0.1, 0.0), (1.0, 0.0)]
    if scale is not Scale.SMALL:
        cases.append((1.0, 0.9))
    found = [
        {
            "kind": REGIONAL,
            "match": match,
            "regionalism": degree,
            "events": 60 if scale is Scale.SMALL else 1_000,
            "groups": 1_152 if scale is Scale.SMALL else 2_048,
        }
        for match, degree in cases
    ]
    return with_seeds("prices", found, min(SEEDS[scale], PRICED_SEEDS))


def _drift(scale: Scale) -> Iterable[Point]:
    found = [
        {**DRIFT_SIZES[scale], "match": match, "drift": drift}
        for match in DRIFT_MATCHES[scale]
        for drift in DRIFTS[scale]
    ]
    return with_seeds("drift", found, min(SEEDS[scale], DRIFT_SEEDS))


EXPERIMENTS: Final = (
    Experiment("match-rate", run_links, _match_rates, weight=lambda _: 4.0),
    Experiment("regionalism", run_links, _regionalism, weight=lambda _: 4.0),
    Experiment("approximation", run_approximation, _approximation, weight=lambda _: 3.0),
    Experiment("latency", run_latency, _latency, weight=lambda _: 3.0),
    Experiment("groups", run_groups, _groups, weight=lambda _: 0.1),
    Experiment("prices", run_prices, _prices, weight=lambda _: 20.0),
    Experiment("drift", run_drift, _drift, weight=lambda _: 10.0),
)
