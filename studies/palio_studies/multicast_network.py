"""The wide-area network of the multicast study: routers, links of three classes, and brokers.

A transit-stub network: routers of the backbone, stubs of routers that hang on it, and at each
router of a stub a broker with subscribing clients. Publishers have brokers of their own.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Masks
from palio.multicast.clustered import likeness_by_location
from palio.routing.trees import Edge, edge_of, forest, shortest_paths
from palio.simulation.randomness import Randomness
from palio_studies.simulator.site_networks import transit_stub

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CLASSES: Final = ("backbone", "intermediate", "fringe")
BACKBONE, INTERMEDIATE, FRINGE = range(3)
"""Links between routers of the backbone; other links between routers; links to brokers."""

LATENCY_US: Final = ((10_000, 30_000), (1_000, 5_000), (200, 500))
"""What the links of each class are drawn from: between cities, within a region, within a house."""


class Extent(NamedTuple):
    """How large a network is; what stands here are the sizes of the paper."""

    transits: int = 5
    stubs: int = 2
    """Of each router of the backbone."""
    stub_size: int = 10
    """Routers of a stub, each with a broker."""
    publishers: int = 4
    """Each in a stub of its own."""

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
    """Routers and brokers, their links, and which of the brokers are in a region; links, latencies
    and publishers' places are drawn at random.

    Brokers of subscribers come first, those of publishers last.

    >>> wan = Wan(Extent(transits=3, stubs=1, stub_size=2, publishers=1), Randomness(1))
    >>> wan.brokers
    ('s1', 's2', 's3', 's4', 's5', 's6', 'p1')
    >>> [int((wan.classes == each).sum()) for each in (BACKBONE, INTERMEDIATE, FRINGE)]
    [2, 6, 7]
    """

    def __init__(self, extent: Extent, random: Randomness) -> None:
        shape = transit_stub(extent.transits, extent.stubs, extent.stub_size, random)
        names = [f"r{place + 1}" for place in range(len(shape.brokers))]
        routers = dict(zip(shape.brokers, names, strict=True))
        self.backbone, stubs = names[: extent.transits], names[extent.transits :]
        self.graph: dict[str, dict[str, int]] = {}
        """Of each link how long an event is on its way, in microseconds."""
        kinds: dict[Edge, int] = {}

        def link(one: str, other: str, kind: int) -> None:
            weight = random.between(*LATENCY_US[kind])
            self.graph.setdefault(one, {})[other] = weight
            self.graph.setdefault(other, {})[one] = weight
            kinds[edge_of(one, other)] = kind

        for edge in shape.edges:
            one, other = (routers[name] for name in edge)
            link(one, other, BACKBONE if {one, other} <= {*self.backbone} else INTERMEDIATE)
        homes = random.sample(range(extent.regions), extent.publishers)
        own = [stubs[home * extent.stub_size + random.below(extent.stub_size)] for home in homes]
        self.subscribers = tuple(f"s{place + 1}" for place in range(len(stubs)))
        self.publishers = tuple(f"p{place + 1}" for place in range(extent.publishers))
        self.brokers = self.subscribers + self.publishers
        self.hosts = dict(zip(self.brokers, [*stubs, *own], strict=True))
        """The router of each broker."""
        for name, host in self.hosts.items():
            link(name, host, FRINGE)
        self.links: tuple[Edge, ...] = tuple(sorted(kinds))
        self.classes = np.array([kinds[link] for link in self.links])
        self.clusters = np.array_split(np.arange(len(stubs)), extent.regions)
        """The places of the brokers of each region: those of a stub..."""
        self.named_clusters = tuple(
            tuple(self.brokers[place] for place in each) for each in self.clusters
        )
        """...and their names."""
        self.most_groups = extent.regions << extent.stub_size
        """As many as CGM has, nearly: no method is given more."""
        self.regions: Longs = np.array([*np.arange(len(stubs)) // extent.stub_size, *homes])
        """By broker its region."""
        self.latency_us: Floats = -likeness_by_location(self.brokers, self.graph)
        """From broker to broker."""
        self.tree = cache(self._tree)
        """The tree from the broker at a place."""

    def _tree(self, root: int) -> WanTree:
        places = {link: place for place, link in enumerate(self.links)}
        parents = shortest_paths(self.graph, self.brokers[root]).parents
        ways: dict[str, list[int]] = {}
        for node, above in parents.items():
            ways[node] = [] if node == above else [*ways[above], places[edge_of(node, above)]]
        paths = np.zeros((len(self.brokers), len(self.links)), np.float32)
        for place, name in enumerate(self.brokers):
            paths[place, ways[name]] = 1
        return WanTree(parents, paths)

    def crossed(self, root: int, members: Masks) -> Masks:
        """Which links carry what a broker sends to groups with these members, a row each."""
        crossed: Masks = members.astype(np.float32) @ self.tree(root).paths > 0
        return crossed


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
    edges = {edge_of(brokers[one], brokers[other]): (one, other) for one, other in pairs}
    joined = forest(edges)
    joining = dict.fromkeys(pair for edge, pair in edges.items() if edge in joined)
    chosen = joining
    for most in range(1, len(brokers)):
        wider = dict(joining)
        degrees = np.bincount(np.array([*wider]).ravel(), minlength=len(brokers))
        for one, other in pairs:
            if (one, other) not in wider and max(degrees[one], degrees[other]) < most:
                wider[one, other] = None
                degrees[[one, other]] += 1
        if int((2**degrees - 1).sum()) > most_groups:
            break
        chosen = wider
    graph: dict[str, dict[str, int]] = {name: {} for name in brokers}
    for one, other in chosen:
        weight = max(1, round(float(distances[one, other])))
        graph[brokers[one]][brokers[other]] = graph[brokers[other]][brokers[one]] = weight
    return graph
