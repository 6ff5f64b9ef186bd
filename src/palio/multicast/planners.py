"""The planning methods by name, and `plan`, which uses one of them or the cheapest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput, LimitExceeded
from palio.model.limits import check_limit
from palio.multicast.clustered import (
    MAX_CLUSTER,
    ClusteredGroups,
    clusters_of,
    groups_needed,
    likeness_by_interest,
    likeness_by_location,
)
from palio.multicast.listed import HybridGroups, flooding, ideal
from palio.multicast.merging import approximated
from palio.multicast.neighbours import NeighbourGroups
from palio.multicast.plans import GroupPlan, PlanReport, judged, measure
from palio.multicast.traffic import GroupTraffic
from palio.routing.trees import Graph

Floats = npt.NDArray[np.float64]

BEST: Final = "best"
"""The cheapest method."""


@dataclass(frozen=True, kw_only=True)
class PlanLimits:
    """The limits of a plan, and the data of the network."""

    groups: int = 1_000
    """Groups in all."""
    cluster_size: int | None = None
    """Brokers of a cluster; None for as many as the groups allow."""
    threshold: int | None = None
    """Destinations of a cluster beyond which all of it gets the event."""
    clusters: tuple[tuple[str, ...], ...] = ()
    """The clusters; None to find them."""
    graph: Graph | None = None
    """Links between brokers and their costs: for clusters by location, and for neighbours."""
    prices: tuple[float, ...] | None = None
    """Costs of an event at a broker, in the order of the brokers; else 1 each."""
    send_price: float = 1.0
    """Cost of a send, where an event at a broker costs 1."""

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise InvalidInput(f"a plan has one group at least, not {self.groups}")
        if not self.send_price >= 0:
            raise InvalidInput("the price of a send is 0 or more")

    def prices_of(self, traffic: GroupTraffic) -> Floats | None:
        """The prices as numbers, one for each broker."""
        if self.prices is None:
            return None
        prices = np.asarray(self.prices, np.float64)
        if len(prices) != len(traffic.brokers) or not (np.isfinite(prices) & (prices > 0)).all():
            raise InvalidInput("there is one price for each broker, a number above 0")
        return prices


def _clusters(traffic: GroupTraffic, limits: PlanLimits, most: int) -> list[list[int]]:
    if limits.clusters:
        places = {name: place for place, name in enumerate(traffic.brokers)}
        unknown = [name for each in limits.clusters for name in each if name not in places]
        if unknown:
            raise InvalidInput(f"{unknown[0]!r:.80} is in a cluster, and no broker of the plan")
        return [[places[name] for name in each] for each in limits.clusters]
    size = limits.cluster_size or _largest(len(traffic.brokers), most, limits.threshold)
    if limits.graph is not None:
        return clusters_of(likeness_by_location(traffic.brokers, limits.graph), size)
    return clusters_of(likeness_by_interest(traffic), size)


def _largest(brokers: int, groups: int, threshold: int | None) -> int:
    """Find the largest size of clusters for which there are enough groups."""
    for size in range(min(MAX_CLUSTER, brokers), 1, -1):
        whole, rest = divmod(brokers, size)
        needed = whole * groups_needed(size, threshold)
        if needed + (groups_needed(rest, threshold) if rest else 0) <= groups:
            return size
    return 1


def _clustered(
    traffic: GroupTraffic, limits: PlanLimits, threshold: int | None = None
) -> ClusteredGroups:
    bounded = PlanLimits(**{**vars(limits), "threshold": threshold})
    made = ClusteredGroups(traffic.brokers, _clusters(traffic, bounded, limits.groups), threshold)
    check_limit("the number of groups of these clusters", "groups", limits.groups, made.group_count)
    return made


def _threshold(traffic: GroupTraffic, limits: PlanLimits) -> GroupPlan:
    if limits.threshold is not None:
        return _clustered(traffic, limits, limits.threshold)
    found = [_clustered(traffic, limits, 1)]
    for threshold in (2, 3, 4):
        with suppress(LimitExceeded):
            found.append(_clustered(traffic, limits, threshold))
    return min(
        found, key=lambda made: _cost(measure(made, traffic, limits.prices_of(traffic)), limits)
    )


def _hybrid(traffic: GroupTraffic, limits: PlanLimits) -> GroupPlan:
    half = PlanLimits(**{**vars(limits), "groups": max(1, limits.groups // 2)})
    edge = _clustered(traffic, half, limits.threshold)
    across = approximated(
        traffic, max(1, limits.groups - edge.group_count), limits.prices_of(traffic)
    )
    return HybridGroups(edge, across, limits.send_price)


def _neighbours(traffic: GroupTraffic, limits: PlanLimits) -> GroupPlan:
    if limits.graph is None:
        raise InvalidInput("hop by hop needs the links between brokers")
    return NeighbourGroups(traffic.brokers, limits.graph)


METHODS: Final[dict[str, Callable[[GroupTraffic, PlanLimits], GroupPlan]]] = {
    "ideal": lambda traffic, limits: ideal(traffic, limits.groups),
    "flooding": lambda traffic, _: flooding(traffic.brokers),
    "clustered": _clustered,
    "threshold": _threshold,
    "neighbours": _neighbours,
    "approximated": lambda traffic, limits: approximated(
        traffic, limits.groups, limits.prices_of(traffic)
    ),
    "hybrid": _hybrid,
}
"""Makers of plans, by method."""


def _cost(report: PlanReport, limits: PlanLimits) -> float:
    return report.price + limits.send_price * (report.sends + report.links)


class Planned(NamedTuple):
    """A plan, and the cost of plans of its kind for held-out events (`judged`)."""

    plan: GroupPlan
    report: PlanReport


class PlansCompared(NamedTuple):
    """The plans of all methods."""

    plans: tuple[Planned, ...]
    """The cheapest first. Flooding is always among them."""
    impossible: dict[str, str]
    """For each method without a plan, the reason."""


def plan(traffic: GroupTraffic, method: str = BEST, limits: PlanLimits = PlanLimits()) -> GroupPlan:
    """Make the plan of a method, or the cheapest plan.

    >>> traffic = GroupTraffic.of(["b1", "b2", "b3", "b4"], [(["b1", "b2"], 3), (["b3", "b4"], 1)])
    >>> plan(traffic, limits=PlanLimits(groups=2)).method
    'ideal'
    """
    if method == BEST:
        return compare(traffic, limits).plans[0].plan
    return _maker(method, limits)(traffic)


def planned(
    traffic: GroupTraffic, method: str = BEST, limits: PlanLimits = PlanLimits()
) -> Planned:
    """Make a plan and measure its cost, by a second plan from half of the events."""
    if method == BEST:
        return compare(traffic, limits).plans[0]
    return Planned(*judged(_maker(method, limits), traffic, limits.prices_of(traffic)))


def compare(traffic: GroupTraffic, limits: PlanLimits = PlanLimits()) -> PlansCompared:
    """Make the plans of all methods that apply."""
    found: list[Planned] = []
    cannot = {}
    for name in METHODS:
        try:
            found.append(planned(traffic, name, limits))
        except (InvalidInput, LimitExceeded) as error:
            cannot[name] = str(error)
    found.sort(key=lambda each: _cost(each.report, limits))
    return PlansCompared(tuple(found), cannot)


def _maker(method: str, limits: PlanLimits) -> Callable[[GroupTraffic], GroupPlan]:
    make = METHODS.get(method)
    if make is None:
        raise InvalidInput(f"{method!r:.80} is no method; choose {BEST}, {', '.join(METHODS)}")

    def made(traffic: GroupTraffic) -> GroupPlan:
        limits.prices_of(traffic)
        return make(traffic, limits)

    return made
