"""Sites, how the architectures lie upon them (siena 6), and what crosses their links: costs by
class, by site and by link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from functools import partial
from typing import Final

from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic, Centralized, Hierarchical
from palio.routing.advertised import Advertised
from palio.routing.messages import (
    Advertise,
    Batch,
    Control,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)
from palio.routing.trees import Edge, edge_of, middle, shortest_paths
from palio.simulation.topologies import Topology
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import Network, RouterFactory
from palio_studies.simulator.site_networks import SiteNetwork

LATENCY_MS: Final = 10.0
"""Of each link: the paper makes it constant and does not say how long it is."""


class Architecture(StrEnum):
    """Servers, how they are connected, and what they tell each other."""

    CENTRALIZED = "ce"
    HIERARCHICAL = "hs"
    ACYCLIC = "as"
    ADVERTISED = "aa"


class Sites:
    """A network of sites: the names of their servers, their links and what these cost.

    The server in the middle, a transit site, is the root of hierarchies and the one of `ce`. The
    tree of acyclic architectures has the shortest ways from there.
    """

    def __init__(self, drawn: SiteNetwork) -> None:
        topology = Topology.of(drawn.size, drawn.links)
        self.names = topology.brokers
        self.transits = self.names[: drawn.transits]
        self.prices: dict[Edge, int] = {}
        self.graph: dict[str, dict[str, int]] = {name: {} for name in self.names}
        for (one, other), length in zip(topology.edges, drawn.lengths, strict=True):
            self.prices[edge_of(one, other)] = length
            self.graph[one][other] = self.graph[other][one] = length
        self.centre = middle(self.graph, self.transits)
        self.parents, self.distances = shortest_paths(self.graph, self.centre)

    @property
    def tree(self) -> list[tuple[str, str]]:
        """The links of the tree, the end nearer the centre first; the nearest come first."""
        return [(parent, site) for site, parent in self.parents.items() if site != self.centre]

    def way(self, site: str) -> list[tuple[str, str]]:
        """The links from a site to the centre, in their order and direction."""
        found = []
        while site != self.centre:
            found.append((site, self.parents[site]))
            site = self.parents[site]
        return found


def lay(architecture: Architecture, sites: Sites, *, seed: int) -> Network:
    """A network of servers, at rest. Where there is one server only it is at the centre."""
    network = Network(seed)
    make = _ROUTERS[architecture]
    if architecture is Architecture.CENTRALIZED:
        network.add_broker(sites.centre, make)
        return network
    for name in sites.names:
        network.add_broker(name, make)
    for one, other in sites.tree:
        price = sites.prices[edge_of(one, other)]
        link = Link(latency_ms=LATENCY_MS, price=price)
        network.connect(one, other, link)
    network.run()
    return network


_hierarchical: Final[RouterFactory] = partial(Hierarchical, parametric=False)
_acyclic: Final[RouterFactory] = partial(Acyclic, parametric=False)
_ROUTERS: Final[Mapping[Architecture, RouterFactory]] = {
    Architecture.CENTRALIZED: partial(Centralized, parametric=False),
    Architecture.HIERARCHICAL: _hierarchical,
    Architecture.ACYCLIC: _acyclic,
    Architecture.ADVERTISED: Advertised,
}


# --- costs ---


class CostClass(IntEnum):
    """What a message is about."""

    SUBSCRIPTION = 0
    ADVERTISEMENT = 1
    NOTIFICATION = 2


_CLASS_OF: Final[Mapping[type, CostClass]] = {
    **dict.fromkeys((Subscribe, Unsubscribe), CostClass.SUBSCRIPTION),
    **dict.fromkeys((Advertise, Unadvertise), CostClass.ADVERTISEMENT),
}


class CostTally:
    """Counts what crosses the links between sites. Give `crossed` to `Network.on_crossing`.

    The paper's unit is the message with one request or one notification; Palio joins what goes one
    way at one time.
    """

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._counts: defaultdict[tuple[str, str], list[int]] = defaultdict(
            lambda: [0] * len(CostClass)
        )
        """By source and target, of each class."""
        self._ways: dict[str, list[tuple[str, str]]] = {}
        """By client that is away from its server, the links from it to there."""
        self._lengths: dict[tuple[str, str], tuple[int, int]] = {}

    def remote(self, client: str, way: list[tuple[str, str]]) -> None:
        """A client reaches its server over these links."""
        self._ways[client] = way

    def crossed(self, source: str, target: str, message: Control | RowParcel) -> None:
        """A message goes from one site to another."""
        counts = self._counts[source, target]
        if isinstance(message, RowParcel):
            counts[CostClass.NOTIFICATION] += len(message)
        elif isinstance(message, Batch):
            for each in message.requests:
                if isinstance(each, Update):  # plain siena cancels the old, asks for the new
                    counts[CostClass.SUBSCRIPTION] += 2
                else:
                    counts[_CLASS_OF[type(each)]] += 1

    # --- what came of it ---

    def cost(self, of: CostClass) -> int:
        """The price of all messages of a class."""
        return self._sum(lambda counts: counts[of])[1]

    def crossings(self, of: CostClass) -> int:
        """How many links all messages of a class crossed."""
        return self._sum(lambda counts: counts[of])[0]

    def by_link(self) -> dict[tuple[str, str], int]:
        """What was paid at each link, both ways; 0 at those that were not used."""
        paid = dict.fromkeys(self._sites.prices, 0)
        for ends, counts in self._counts.items():
            crossings = sum(counts)
            for link in self._way(*ends):
                edge = edge_of(*link)
                paid[edge] += crossings * self._sites.prices[edge]
        return paid

    def by_site(self) -> dict[str, int]:
        """What each site sends and receives."""
        found = dict.fromkeys(self._sites.names, 0)
        for ends, cost in self.by_link().items():
            for end in ends:
                found[end] += cost
        return found

    # --- how it counts ---

    def _way(self, source: str, target: str) -> list[tuple[str, str]]:
        back = self._ways.get(target)
        if back:
            return [(near, far) for far, near in reversed(back)]
        return self._ways.get(source) or [(source, target)]

    def _length(self, source: str, target: str) -> tuple[int, int]:
        """How many links lie between, and what crossing them costs."""
        known = self._lengths.get((source, target))
        if known is None:
            way = self._way(source, target)
            known = len(way), sum(self._sites.prices[edge_of(*link)] for link in way)
            self._lengths[source, target] = known
        return known

    def _sum(self, count: Callable[[list[int]], int]) -> tuple[int, int]:
        """Over all pairs of ends, what is counted between them times links, and times price."""
        links = price = 0
        for ends, counts in self._counts.items():
            length, cost = self._length(*ends)
            links += count(counts) * length
            price += count(counts) * cost
        return links, price
