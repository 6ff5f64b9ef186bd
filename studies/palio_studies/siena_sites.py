"""Sites, what their links cost, and how the architectures lie upon them (siena 6)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Final

from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.algorithms import find_algorithm
from palio.routing.centralized import Centralized
from palio.routing.flooded import Flooded
from palio.routing.gateway import Gateway
from palio.routing.hierarchical import Hierarchical
from palio.routing.patterns.router import Patterned
from palio.routing.protocol import Peer, Router
from palio.routing.trees import Edge, edge_of, middle, shortest_ways
from palio.simulation.topologies import Topology
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import Network, RouterFactory
from palio_studies.simulator.site_networks import SiteNetwork

__all__ = ["LATENCY_MS", "Architecture", "Sites", "lay"]

LATENCY_MS: Final = 10.0
"""Of each link: the paper makes it constant and does not say how long it is."""


class Architecture(StrEnum):
    """Servers, how they are connected, and what they tell each other."""

    CENTRALIZED = "ce"
    HIERARCHICAL = "hs"
    ACYCLIC = "as"
    ADVERTISED = "aa"
    GENERAL = "ge"
    """Any graph: one tree that the servers choose themselves, and as `as` along it."""
    SOURCES = "st"
    """Any graph: a tree of shortest ways for each server where something is published."""
    HYBRID = "hy"
    """A hierarchy in each stub; the transit sites are peers."""
    FLOODED = "fs"
    """As `as` without covering: each server is told each subscription."""
    PATTERNS = "pa"
    """As `aa`; servers assemble patterns, each where the ways of its events meet."""


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
        self.parents, self.distances = shortest_ways(self.graph, self.centre)

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


def lay(
    architecture: Architecture, sites: Sites, *, seed: int, bytes_per_ms: float | None = None
) -> Network:
    """A network of servers, at rest. Where there is one server only it is at the centre.

    `bytes_per_ms` is what each direction of a link carries; None for no limit.
    """
    network = Network(seed)
    make = _routers(architecture, sites)
    if architecture is Architecture.CENTRALIZED:
        network.add_broker(sites.centre, make)
        return network
    for name in sites.names:
        network.add_broker(name, make)
    meshed = architecture in (Architecture.GENERAL, Architecture.SOURCES)
    for one, other in list(sites.prices) if meshed else sites.tree:
        price = sites.prices[edge_of(one, other)]
        link = Link(latency_ms=LATENCY_MS, price=price, bytes_per_ms=bytes_per_ms)
        network.connect(one, other, link)
    network.run()
    return network


def _routers(architecture: Architecture, sites: Sites) -> RouterFactory:
    """What makes the servers: those of plain siena, which send no updates of parameters."""
    match architecture:
        case Architecture.GENERAL:
            return find_algorithm("general").new
        case Architecture.SOURCES:
            return find_algorithm("source-trees").new
        case Architecture.HYBRID:
            return _hybrid(frozenset(sites.transits))
        case Architecture.ADVERTISED:
            return Advertised
        case Architecture.FLOODED:
            return Flooded
        case Architecture.PATTERNS:
            return Patterned
    return _PLAIN[architecture]


def _hybrid(transits: frozenset[str]) -> RouterFactory:
    def is_transit(peer: Peer) -> bool:
        return peer.name in transits

    def new(name: str) -> Router:
        if name not in transits:
            return _hierarchical(name)
        return Gateway(name, _hierarchical, _acyclic, is_transit)

    return new


_hierarchical: Final[RouterFactory] = partial(Hierarchical, parametric=False)
_acyclic: Final[RouterFactory] = partial(Acyclic, parametric=False)
_PLAIN: Final[Mapping[Architecture, RouterFactory]] = {
    Architecture.CENTRALIZED: partial(Centralized, parametric=False),
    Architecture.HIERARCHICAL: _hierarchical,
    Architecture.ACYCLIC: _acyclic,
}
