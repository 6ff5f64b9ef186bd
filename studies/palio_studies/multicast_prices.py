"""What deliveries cost where links have prices: the least that is possible, and plans by prices."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.multicast.broker_sets import Masks
from palio.multicast.planners import PlanLimits
from palio_studies.multicast_network import BACKBONE, FRINGE, Wan

__all__ = ["PRICES", "Optimum", "Shares", "priced_limits", "shares_of"]

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PRICES: Final[dict[str, tuple[float, float, float]]] = {
    "equal prices": (1.0, 1.0, 1.0),
    "backbone dear": (10.0, 1.0, 1.0),
    "intermediate dear": (1.0, 10.0, 1.0),
    "fringe dear": (1.0, 1.0, 10.0),
}
"""By class of links what it costs that an event crosses one."""

MOST_ROUTERS: Final = 16
"""Of a stub, or of the backbone: there is a table of all their subsets."""


class Optimum:
    """The cheapest tree that joins a publisher with all who want an event, along any links.

    It is exact. Stubs hang on the backbone by one link, so the tree is cut there into parts; within
    a part all links have one price, so the best tree of a set of routers is one of the least
    connected sets that have them all. There is a table of those.
    """

    def __init__(self, wan: Wan) -> None:
        self._wan = wan
        near = {name: set(wan.graph[name]) - set(wan.brokers) for name in wan.graph}
        hosts = [next(iter(wan.graph[name])) for name in wan.brokers]
        backbone = sorted(
            {
                end
                for link, kind in zip(wan.links, wan.classes, strict=True)
                for end in link
                if kind == BACKBONE
            }
        )
        self._backbone = _least_links([near[name] for name in backbone], backbone)
        self._stubs = []
        for region, members in enumerate(wan.clusters):
            routers = [hosts[place] for place in members]
            ways = [(each, end) for each in routers for end in near[each] if end not in routers]
            if len(ways) != 1:
                raise InvalidInput(f"region {region + 1} has {len(ways)} links to others, not 1")
            own, above = ways[0]
            publishers = {
                place: routers.index(hosts[len(wan.subscribers) + place])
                for place in range(len(wan.publishers))
                if wan.regions[len(wan.subscribers) + place] == region
            }
            self._stubs.append(
                _Stub(
                    _least_links([near[name] for name in routers], routers),
                    members,
                    routers.index(own),
                    backbone.index(above),
                    publishers,
                )
            )

    def links(self, wanted: Masks, publishers: Longs) -> Floats:
        """By event and class how many links the cheapest tree has; it is the same for all prices by
        class, for no class can take the place of another.
        """
        links = np.zeros((len(wanted), 3))
        touched = np.zeros(len(wanted), np.int64)
        homes = self._wan.regions[len(self._wan.subscribers) + publishers]
        is_sent = wanted.any(axis=1)
        for region, stub in enumerate(self._stubs):
            inside = wanted[:, stub.members]
            here = inside @ (1 << np.arange(len(stub.members)))
            is_home = homes == region
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


def _least_links(near: list[set[str]], names: list[str]) -> Longs:
    """For each set of some routers, as bits, how few links join them all."""
    if len(names) > MOST_ROUTERS:
        raise InvalidInput(f"the optimum is found for at most {MOST_ROUTERS} routers of a stub")
    places = {name: place for place, name in enumerate(names)}
    around = [
        sum(1 << places[each] for each in near[at] if each in places) for at in range(len(names))
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


class Shares(NamedTuple):
    """What the prices of links make of a plan's prices."""

    brokers: Floats
    """By broker what it costs that it gets an event: its part of the links of its region that it
    shares with others there."""
    send: float
    """What the way into a region costs, on average."""


def shares_of(wan: Wan, prices: tuple[float, float, float]) -> Shares:
    """The prices of brokers, on average over publishers."""
    by_link = np.array(prices)[wan.classes]
    found = np.zeros(len(wan.subscribers))
    sends = []
    for publisher in range(len(wan.publishers)):
        paths = wan.tree(len(wan.subscribers) + publisher).paths[: len(wan.subscribers)]
        sharing = paths.sum(axis=0)
        for members in wan.clusters:
            common = paths[members].min(axis=0)
            own = paths[members] * (1 - common)
            found[members] += own @ (by_link / np.maximum(sharing, 1))
            sends.append(float(common @ by_link))
    return Shares(found / len(wan.publishers), float(np.mean(sends)))


def priced_limits(wan: Wan, prices: tuple[float, float, float] | None, groups: int) -> PlanLimits:
    """The limits of a plan that regards the prices of links, or knows of none."""
    clusters = tuple(tuple(wan.brokers[place] for place in each) for each in wan.clusters)
    if prices is None:
        return PlanLimits(groups=groups, clusters=clusters)
    shares = shares_of(wan, prices)
    return PlanLimits(
        groups=groups,
        clusters=clusters,
        prices=tuple(shares.brokers.tolist()),
        send_price=shares.send,
    )
