"""The wide-area network of the multicast study: routers, links of three classes, and brokers.

A transit-stub network: routers of the backbone, stubs of routers that hang on it, and at each
router of a stub a broker with subscribing clients. Publishers have brokers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.multicast.broker_sets import Masks
from palio.multicast.clusters import likeness_by_location
from palio.routing.trees import Edge, Graph, edge_of, forest, shortest_ways
from palio.simulation.randomness import Randomness
from palio_studies.simulator.site_networks import transit_stub

__all__ = [
    "BACKBONE",
    "CLASSES",
    "FRINGE",
    "INTERMEDIATE",
    "Extent",
    "Wan",
    "WanTree",
    "neighbour_graph",
    "wide_area",
]

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CLASSES: Final = ("backbone", "intermediate", "fringe")
BACKBONE, INTERMEDIATE, FRINGE = range(3)
"""Links between routers of the backbone; other links between routers; links to brokers."""

LATENCY_US: Final = ((10_000, 30_000), (1_000, 5_000), (200, 500))
"""What the links of each class are drawn from: between cities, within a region, within a house."""


class Extent(msgspec.Struct, frozen=True):
    """How large a network is; what stands here are the sizes of the paper."""

    transits: int = 5
    stubs: int = 2
    """Of each router of the backbone."""
    stub_size: int = 10
    """Routers of a stub, each with a broker."""
    publishers: int = 4

    @property
    def regions(self) -> int:
        """As many as there are stubs."""
        return self.transits * self.stubs


class WanTree(NamedTuple):
    """The tree along which the network brings what one broker sends."""

    parents: dict[str, str]
    """For each router and broker, the nearest first, the one before it."""
    paths: npt.NDArray[np.float32]
    """For each broker which links lead to it, as 0 and 1."""


class Wan:
    """Routers and brokers, their links, and which of the brokers are in a region.

    Brokers of subscribers come first, those of publishers last.

    >>> wan = wide_area(Extent(transits=3, stubs=1, stub_size=2, publishers=1), Randomness(1))
    >>> wan.brokers
    ('s1', 's2', 's3', 's4', 's5', 's6', 'p1')
    >>> [int((wan.classes == each).sum()) for each in (BACKBONE, INTERMEDIATE, FRINGE)]
    [2, 6, 7]
    """

    def __init__(
        self, graph: Graph, transits: int, subscribers: int, regions: int, homes: Sequence[int]
    ) -> None:
        self.graph = graph
        """Of each link how long an event is on its way, in microseconds."""
        self.subscribers = tuple(f"s{place + 1}" for place in range(subscribers))
        self.publishers = tuple(f"p{place + 1}" for place in range(len(homes)))
        self.brokers = self.subscribers + self.publishers
        self.links: tuple[Edge, ...] = tuple(
            sorted({edge_of(one, other) for one in graph for other in graph[one]})
        )
        backbone = {f"r{place + 1}" for place in range(transits)}
        ends = set(self.brokers)
        self.classes = np.array(
            [
                FRINGE
                if not ends.isdisjoint(link)
                else BACKBONE
                if backbone.issuperset(link)
                else INTERMEDIATE
                for link in self.links
            ]
        )
        self.clusters = np.array_split(np.arange(subscribers), regions)
        """The places of the brokers of each region: those of a stub."""
        self.regions: Longs = np.concatenate(
            [np.repeat(np.arange(regions), subscribers // regions), homes]
        )
        """By broker its region."""
        self.latency_us: Floats = -likeness_by_location(self.brokers, graph)
        """From broker to broker."""
        self._places = {link: place for place, link in enumerate(self.links)}
        self.tree = cache(self._tree)
        """The tree from the broker at a place."""

    def place(self, one: str, other: str) -> int:
        """The place of a link among `links`."""
        return self._places[edge_of(one, other)]

    def _tree(self, root: int) -> WanTree:
        parents = shortest_ways(self.graph, self.brokers[root]).parents
        ways: dict[str, list[int]] = {}
        for node, above in parents.items():
            ways[node] = [] if node == above else [*ways[above], self.place(node, above)]
        paths = np.zeros((len(self.brokers), len(self.links)), np.float32)
        for place, name in enumerate(self.brokers):
            paths[place, ways[name]] = 1
        return WanTree(parents, paths)

    def crossed(self, root: int, members: Masks) -> Masks:
        """Which links carry what a broker sends to groups with these members, a row each."""
        crossed: Masks = members.astype(np.float32) @ self.tree(root).paths > 0
        return crossed


def wide_area(extent: Extent, random: Randomness) -> Wan:
    """A network of this extent, its links, latencies and publishers' places drawn at random."""
    if extent.publishers > extent.regions:
        raise InvalidInput("each publisher is in a stub of its own, so there are as many or more")
    shape = transit_stub(extent.transits, extent.stubs, extent.stub_size, random)
    routers = {name: f"r{place + 1}" for place, name in enumerate(shape.brokers)}
    graph: dict[str, dict[str, int]] = {name: {} for name in routers.values()}

    def link(one: str, other: str, kind: int) -> None:
        weight = random.between(*LATENCY_US[kind])
        graph[one][other] = graph[other][one] = weight

    backbone = set(shape.brokers[: extent.transits])
    for one, other in shape.edges:
        kind = BACKBONE if backbone.issuperset((one, other)) else INTERMEDIATE
        link(routers[one], routers[other], kind)
    stubs = [routers[name] for name in shape.brokers[extent.transits :]]
    homes = random.sample(range(extent.regions), extent.publishers)
    inside = [random.below(extent.stub_size) for _ in homes]
    hosts = [
        *stubs,
        *(stubs[home * extent.stub_size + at] for home, at in zip(homes, inside, strict=True)),
    ]
    for place, host in enumerate(hosts):
        own = place - len(stubs)
        name = f"s{place + 1}" if own < 0 else f"p{own + 1}"
        graph[name] = {}
        link(name, host, FRINGE)
    return Wan(graph, extent.transits, len(stubs), extent.regions, homes)


def neighbour_graph(
    brokers: tuple[str, ...], distances: Floats, most_groups: int
) -> dict[str, dict[str, int]]:
    """Neighbours by nearness: the lightest links that join all brokers, and then the nearest pairs,
    as long as no broker has more neighbours than allow for so many groups (2^n - 1 each).

    >>> neighbour_graph(("a", "b", "c"), np.array([[0.0, 1, 2], [1, 0, 4], [2, 4, 0]]), 5)
    {'a': {'b': 1, 'c': 2}, 'b': {'a': 1}, 'c': {'a': 2}}
    """
    order = np.argsort(distances, axis=None, kind="stable").tolist()
    pairs = [divmod(each, len(brokers)) for each in order]
    pairs = [(one, other) for one, other in pairs if one < other]
    joined = forest([edge_of(brokers[one], brokers[other]) for one, other in pairs])
    chosen = [edge_of(brokers[one], brokers[other]) in joined for one, other in pairs]
    best = chosen
    for most in range(1, len(brokers)):
        tried, degrees = list(chosen), np.zeros(len(brokers), np.int64)
        for pair, is_joined in zip(pairs, chosen, strict=True):
            if is_joined:
                degrees[list(pair)] += 1
        for place, (one, other) in enumerate(pairs):
            if not tried[place] and max(degrees[one], degrees[other]) < most:
                tried[place] = True
                degrees[[one, other]] += 1
        if int((2**degrees - 1).sum()) > most_groups:
            break
        best = tried
    graph: dict[str, dict[str, int]] = {name: {} for name in brokers}
    for (one, other), is_chosen in zip(pairs, best, strict=True):
        if is_chosen:
            weight = max(1, round(float(distances[one, other])))
            graph[brokers[one]][brokers[other]] = graph[brokers[other]][brokers[one]] = weight
    return graph
