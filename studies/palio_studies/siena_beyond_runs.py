"""What siena's study runs beyond the paper: links with a capacity, and delegation of patterns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, Final

import numpy as np

from palio.model.patterns import Pattern
from palio.simulation.randomness import Randomness
from palio_studies.names import Scale
from palio_studies.siena_interests import ManyKinds
from palio_studies.siena_patterns import ManySequences, found_by_parties
from palio_studies.siena_runs import BEYOND_OBJECTS
from palio_studies.siena_sites import Architecture
from palio_studies.siena_steady import SteadyPlan, busiest_link, flow
from palio_studies.siena_tally import CostClass
from palio_studies.simulator.clients import Client
from palio_studies.study import SEEDS, Experiment, Point, Row, with_seeds

__all__ = ["BEYOND_EXPERIMENTS", "CAPACITY"]

CAPACITY: Final = 100.0
"""Notifications a second that each direction of a link carries: one takes 10 ms, as long as it
is then on its way."""

LOADED_OBJECTS: Final = 100
"""Where links have a capacity: so many, that no single place decides what is busy."""

LOAD_SEEDS: Final = {Scale.SMALL: SEEDS[Scale.SMALL], Scale.BEYOND: 6}
"""Twice as many as elsewhere: networks differ in what their busiest link is."""

PATTERN_RATE: Final = 10.0
"""Notifications a second of all objects, where nothing depends on how fast they come."""

USUAL_STEPS: Final = 3
"""Of a pattern..."""

LONE_PARTIES: Final = 10
"""...and the parties with patterns of other lengths."""


def run_load(point: Point) -> list[Row]:
    """Links with a capacity: how long notifications take, and how busy the busiest link is."""
    parameters = point.parameters
    interests = ManyKinds(0.0)
    load = float(parameters["load"])
    plan = SteadyPlan(
        architecture=Architecture(str(parameters["architecture"])),
        objects=int(parameters["objects"]),
        parties=int(parameters["parties"]),
        publications=int(parameters["publications"]),
        rate=load * CAPACITY,
        capacity=CAPACITY,
    )

    def ask(client: Client, number: int, random: Randomness) -> None:
        client.subscribe(interests.filter(number, random))

    run = flow(plan, point.seed, interests, ask)
    busiest = busiest_link(run)
    latencies = run.latencies_ms
    return [
        {
            "latency_ms": float(np.mean(latencies)),
            "slow_ms": float(np.percentile(latencies, 95)),
            "delivered": len(latencies),
            "busiest": busiest.share,
            "bearable": load / busiest.share,
            "at_root": float(run.sites.centre in busiest.ends),
        }
    ]


def run_delegation(point: Point) -> list[Row]:
    """Parties that want patterns, assembled by servers (`pa`) or by the parties (`aa`)."""
    parameters = point.parameters
    architecture = Architecture(str(parameters["architecture"]))
    plan = SteadyPlan(
        architecture=architecture,
        objects=int(parameters["objects"]),
        parties=int(parameters["parties"]),
        publications=int(parameters["publications"]),
        rate=PATTERN_RATE,
    )
    wishes = ManySequences(
        objects=plan.objects,
        sources=int(parameters["sources"]),
        steps=int(parameters["steps"]),
    )
    is_delegated = architecture is Architecture.PATTERNS
    patterns: list[Pattern] = []

    def ask(client: Client, number: int, random: Randomness) -> None:
        del number
        pattern = wishes.pattern(random)
        patterns.append(pattern)
        if is_delegated:
            client.subscribe_pattern(pattern)
        else:
            client.subscribe(pattern.any_step)

    run = flow(plan, point.seed, wishes, ask)
    found = sum(len(each.found) for each in run.parties)
    return [
        {
            "occurrences": found if is_delegated else found_by_parties(run, patterns),
            "notification_cost": run.tally.cost(CostClass.NOTIFICATION),
            "carried_cost": run.tally.carried(),
            "subscription_cost": run.tally.cost(CostClass.SUBSCRIPTION),
        }
    ]


def _sets(
    architectures: Iterable[str], parties: Iterable[int], objects: int, publications: int
) -> list[dict[str, Any]]:
    return [
        {
            "architecture": architecture,
            "objects": objects,
            "parties": party,
            "publications": publications,
        }
        for architecture, party in product(architectures, parties)
    ]


def _load_points(scale: Scale) -> Iterable[Point]:
    """Few parties, so that most notifications are for nobody, and as many as sites."""
    match scale:
        case Scale.SMALL:
            loads: tuple[float, ...] = (0.5, 4.0)
            sets = _sets(("hs", "as"), (10,), LOADED_OBJECTS, 1_500)
        case Scale.BEYOND:
            loads = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
            sets = _sets(("hs", "as", "hy", "st"), (10, 100), LOADED_OBJECTS, 5_000)
        case _:
            return ()
    loaded = [each | {"load": load} for each in sets for load in loads]
    return with_seeds("load", loaded, LOAD_SEEDS[scale])


def _delegation_points(scale: Scale) -> Iterable[Point]:
    """Patterns over one object and over two, for few parties and many; longer and shorter ones."""
    match scale:
        case Scale.SMALL:
            parties: tuple[int, ...] = (LONE_PARTIES,)
            publications = 100
            lengths: tuple[int, ...] = (USUAL_STEPS,)
        case Scale.BEYOND:
            parties = (3, 10, 30, 100, 300, 1_000)
            publications, lengths = 1_000, (2, USUAL_STEPS, 5, 8)
        case _:
            return ()
    sets = [
        each | {"sources": sources, "steps": steps}
        for steps in lengths
        for sources in (1, 2)
        for each in _sets(
            ("aa", "pa"),
            parties if steps == USUAL_STEPS else (LONE_PARTIES,),
            BEYOND_OBJECTS,
            publications,
        )
    ]
    return with_seeds("delegation", sets, SEEDS[scale])


def _work(point: Point) -> float:
    """About how long a run takes; source trees are long in being told of all links."""
    parameters = point.parameters
    crossings = int(parameters["publications"]) * (10.0 + int(parameters["parties"]))
    return crossings * (5 if parameters["architecture"] == Architecture.SOURCES else 1)


BEYOND_EXPERIMENTS: Final = (
    Experiment("load", run_load, _load_points, weight=_work),
    Experiment("delegation", run_delegation, _delegation_points, weight=_work),
)
