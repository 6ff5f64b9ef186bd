"""What deliveries cost where links have prices: the least that is possible, and plans by prices."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from palio.multicast.broker_sets import Masks
from palio.multicast.planners import PlanLimits, compare
from palio.multicast.plans import GroupPlan
from palio_studies.multicast_network import BACKBONE, FRINGE, Floats, Longs, Wan
from palio_studies.multicast_scenes import Scene, nearest, scene_of
from palio_studies.study import Point, Row

Prices = tuple[float, float, float]
"""By class of links what it costs that an event crosses one."""

PRICES: Final[dict[str, Prices]] = {
    "equal prices": (1.0, 1.0, 1.0),
    "backbone dear": (10.0, 1.0, 1.0),
    "intermediate dear": (1.0, 10.0, 1.0),
    "fringe dear": (1.0, 1.0, 10.0),
}

COMPARED: Final = ("ideal", "flooding", "CGM", "threshold CGM")
CLUSTERS_UP_TO: Final = 2
"""The threshold of the clusters of a hybrid plan: 560 groups in all, of ten clusters of ten."""


class Optimum:
    """The cheapest tree that joins a publisher with all who want an event, along any links.

    It is exact. Stubs hang on the backbone by one link, so the tree is cut there into parts; within
    a part all links have one price, so the best tree of a set of routers is one of the least
    connected sets that have them all. There is a table of those.
    """

    def __init__(self, wan: Wan) -> None:
        self._wan = wan
        self._backbone = _least_links(wan, wan.backbone)
        self._stubs = []
        for members in wan.clusters:
            routers = [wan.hosts[wan.brokers[place]] for place in members]
            ((gate, above),) = (
                (place, wan.backbone.index(end))
                for place, router in enumerate(routers)
                for end in wan.graph[router]
                if end in wan.backbone
            )
            publishers = {
                place: routers.index(wan.hosts[name])
                for place, name in enumerate(wan.publishers)
                if wan.hosts[name] in routers
            }
            self._stubs.append(_Stub(_least_links(wan, routers), members, gate, above, publishers))

    def links(self, wanted: Masks, publishers: Longs) -> Floats:
        """By event and class how many links the cheapest tree has; it is the same for all prices by
        class, for no class can take the place of another.
        """
        links = np.zeros((len(wanted), 3))
        touched = np.zeros(len(wanted), np.int64)
        is_sent = wanted.any(axis=1)
        for stub in self._stubs:
            inside = wanted[:, stub.members]
            here = inside @ (1 << np.arange(len(stub.members)))
            is_home = np.isin(publishers, [*stub.publishers])
            leaves = is_home & (inside.sum(axis=1) < wanted.sum(axis=1))
            crosses = leaves | (~is_home & (here > 0))
            needed = here | np.where(crosses, 1 << stub.gate, 0)
            for publisher, router in stub.publishers.items():
                needed |= np.where(is_sent & (publishers == publisher), 1 << router, 0)
            links[:, 1] += stub.table[needed] + crosses
            touched |= np.where(crosses, 1 << stub.above, 0)
        links[:, BACKBONE] = self._backbone[touched]
        links[:, FRINGE] = wanted.sum(axis=1) + is_sent
        return links


class _Stub(NamedTuple):
    table: Longs
    members: Longs
    gate: int
    """The router with the link to the backbone, by its place..."""
    above: int
    """...and the one at the other end."""
    publishers: dict[int, int]
    """The routers of the publishers that are here."""


def _least_links(wan: Wan, names: list[str]) -> Longs:
    """For each set of some routers, as bits, how few links join them all."""
    around = [
        sum(1 << place for place, other in enumerate(names) if other in wan.graph[name])
        for name in names
    ]
    sets = np.arange(1 << len(names))
    is_joined = np.zeros(len(sets), np.bool_)
    is_joined[1 << np.arange(len(names))] = True
    sizes = np.bitwise_count(sets).astype(np.int64)
    for size in range(2, len(names) + 1):
        rows = np.flatnonzero(sizes == size)
        for place, beside in enumerate(around):
            # Some router of a connected set can be left out of it.
            rest = rows & ~(1 << place)
            is_joined[rows] |= (rest != rows) & is_joined[rest] & ((rest & beside) > 0)
    least = np.where(is_joined, sizes - 1, len(names))
    least[0] = 0
    for place in range(len(names)):
        without = sets[(sets >> place & 1) == 0]
        least[without] = np.minimum(least[without], least[without | 1 << place])
    return least


def priced_limits(wan: Wan, prices: Prices | None, groups: int) -> PlanLimits:
    """The limits of a plan that regards the prices of links, or knows of none.

    The price of a broker is its part of the links of its region that it shares with others there;
    that of a send is the way into a region. Both are means over publishers.
    """
    limits = PlanLimits(groups=groups, clusters=wan.named_clusters, threshold=CLUSTERS_UP_TO)
    if prices is None:
        return limits
    by_link = np.array(prices)[wan.classes]
    shares = np.zeros(len(wan.subscribers))
    sends = []
    for publisher in range(len(wan.publishers)):
        paths = wan.tree(len(wan.subscribers) + publisher).paths[: len(wan.subscribers)]
        sharing = paths.sum(axis=0)
        for members in wan.clusters:
            common = paths[members].min(axis=0)
            own = paths[members] * (1 - common)
            shares[members] += own @ (by_link / np.maximum(sharing, 1))
            sends.append(float(common @ by_link))
    of_brokers = tuple((shares / len(wan.publishers)).tolist())
    return replace(limits, prices=of_brokers, send_price=float(np.mean(sends)))


def run_prices(point: Point) -> list[Row]:
    """What an event costs where links have prices: by planners that know them and that do not,
    beside the exact optimum.
    """
    scene = scene_of(point.parameters, point.seed)
    groups = int(point.parameters["groups"])
    fixed = scene.plans(groups)
    blind = {name: scene.delivered(fixed[name]).links for name in COMPARED}
    blind["optimum"] = Optimum(scene.wan).links(scene.wanted, scene.publishers)
    blind |= _planned(scene, None, groups)
    rows: list[Row] = []
    for prices, by_class in PRICES.items():
        least = float((blind["optimum"] @ by_class).mean())
        for by_price, links in (("no", blind), ("yes", _planned(scene, by_class, groups))):
            for planner, crossed in links.items():
                price = float((crossed @ by_class).mean())
                rows.append(
                    {
                        "prices": prices,
                        "planner": planner,
                        "by_price": by_price,
                        "price": price,
                        "of_optimum": price / least,
                    }
                )
    return rows


def _planned(scene: Scene, prices: Prices | None, groups: int) -> dict[str, Floats]:
    """The links that events cross by plans that are made for prices, or without."""
    wan = scene.wan
    distances = wan.latency_us
    if prices is not None:
        by_link = np.array(prices)[wan.classes]
        distances = np.stack([wan.tree(root).paths @ by_link for root in range(len(wan.brokers))])
        distances = np.minimum(distances, distances.T)
    made = [each.plan for each in compare(scene.learned, priced_limits(wan, prices, groups)).plans]
    plans: dict[str, GroupPlan] = {
        plan.method: plan for plan in made if plan.method in {"approximated", "hybrid"}
    }
    plans["best"] = made[0]
    plans["neighbours"] = nearest(wan, distances)
    return {name: scene.delivered(plan).links for name, plan in plans.items()}
