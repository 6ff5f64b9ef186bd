"""GroupTraffic to plan for, at random, and merging in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.planners import PlanLimits, compare
from palio.multicast.plans import GroupPlan
from palio.multicast.traffic import GroupTraffic

RING = 9
"""Brokers of `some_traffic`."""


def some_traffic(
    seed: int, brokers: int = RING, sets: int = 60, wanted: float = 0.3
) -> GroupTraffic:
    """Sets of destinations, and how many events each had."""
    random = np.random.default_rng(seed)
    masks = random.random((sets, brokers)) < wanted
    names = [f"b{place}" for place in range(brokers)]
    return GroupTraffic.counted(names, words_of(masks), random.pareto(1.5, sets) + 0.1)


def ring_of(brokers: int) -> Mapping[str, Mapping[str, int]]:
    """Brokers in a ring, and one link across."""
    graph: dict[str, dict[str, int]] = {f"b{place}": {} for place in range(brokers)}
    links = [(place, (place + 1) % brokers) for place in range(brokers)] + [(0, brokers // 2)]
    for one, other in links:
        graph[f"b{one}"][f"b{other}"] = graph[f"b{other}"][f"b{one}"] = 1 + one % 3
    return graph


def every_plan(traffic: GroupTraffic, groups: int = 40) -> list[GroupPlan]:
    """A plan of each method that has one."""
    limits = PlanLimits(groups=groups, graph=ring_of(len(traffic.brokers)))
    return [made for made, _ in compare(traffic, limits).plans]


Group = tuple[float, frozenset[int]]
"""The share of events of a group, and its brokers."""


def groups_of(traffic: GroupTraffic) -> list[Group]:
    """A group for each set."""
    masks = masks_of(traffic.sets, len(traffic.brokers))
    return [
        (float(share), frozenset(np.flatnonzero(row).tolist()))
        for share, row in zip(traffic.shares, masks, strict=True)
    ]


def cheapest_pair(groups: list[Group], prices: list[float]) -> tuple[float, int, int]:
    """The pair that adds least waste when it is merged, of all pairs."""

    def waste(one: Group, other: Group) -> float:
        return one[0] * sum(prices[place] for place in other[1] - one[1]) + other[0] * sum(
            prices[place] for place in one[1] - other[1]
        )

    return min(
        (waste(groups[one], groups[other]), one, other)
        for one, other in combinations(range(len(groups)), 2)
    )


def greedy_waste(traffic: GroupTraffic, most: int, prices: list[float]) -> float:
    """The waste that merging adds, always the best of all pairs."""
    groups = groups_of(traffic)
    total = 0.0
    while len(groups) > most:
        cost, one, other = cheapest_pair(groups, prices)
        total += cost
        merged = (groups[one][0] + groups[other][0], groups[one][1] | groups[other][1])
        rest = [each for place, each in enumerate(groups) if place not in {one, other}]
        groups = [*rest, merged]
    return total
