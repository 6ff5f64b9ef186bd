"""The networks of the proxy study: sites with links of some length, and a hierarchy laid into them.

Every site has a proxy. A mesh has all links; the hierarchy is the tree of the shortest ways from
the site in the middle, so that each proxy is as near to the root as it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isqrt
from typing import Final

import msgspec

from palio.routing.protocol import Peer, Router
from palio.routing.proxies import Proxies
from palio.routing.trees import MAX_PRICE, Graph, edge_of, middle, shortest_ways
from palio.simulation import Link, Network, Randomness, Topology, connected_random, grid
from palio.simulation.shortcuts import Price
from palio.simulation.shortened import Shortened
from palio.simulation.site_networks import draw_sites

__all__ = ["KINDS", "ProxyNetwork", "proxy_network"]

EVEN_MS: Final = 10
"""How long every link takes where the network has no lengths."""

EXTRA_LINKS: Final = 0.5
"""Links of a random network beyond those of a tree, for each site."""

TREE_WEIGHT: Final = 100
SHORT_WEIGHT: Final = 101
"""What links of the hierarchy weigh and those that are shorter than its ways, so that brokers find
the hierarchy that is given, and take any of those for a shortcut.
"""

TRANSITS: Final = 4
STUBS: Final = 3
"""Of a transit site: as siena's networks of 100 sites have them."""

KINDS: Final = ("transit-stub", "random", "grid")


class ProxyNetwork(msgspec.Struct, frozen=True):
    """Sites, how long their links take in ms, and who is above whom in the hierarchy."""

    sites: tuple[str, ...]
    links: Mapping[tuple[str, str], int]
    root: str
    parents: Mapping[str, str]
    """Of every site but the root."""

    @property
    def graph(self) -> Graph:
        """The same links from both ends."""
        return _graph(self.sites, self.links)

    def distances(self) -> dict[str, dict[str, int]]:
        """How long the shortest way takes between any two, in ms."""
        graph = self.graph
        return {site: shortest_ways(graph, site).distances for site in self.sites}

    def way(self, one: str, other: str) -> list[Link]:
        """The links of the shortest way between two sites."""
        before = shortest_ways(self.graph, one).parents
        found = []
        while other != one:
            found.append(Link(latency_ms=self._length(before[other], other)))
            other = before[other]
        return found

    def mesh(self, router: Callable[[str], Router]) -> Network:
        """All links, with routers that know what to do on a graph."""
        return self._network(router, self.links)

    def hierarchy(self) -> Network:
        """Proxies, each linked with the one above it (proxy IV)."""

        def new_proxy(name: str) -> Router:
            proxy = Proxies(name)
            if name in self.parents:
                proxy.above = Peer.broker(self.parents[name])
            return proxy

        return self._network(new_proxy, [(above, name) for name, above in self.parents.items()])

    def shortened(self, price: Price) -> Network:
        """The same hierarchy, where all other links are there for shortcuts."""

        def new_proxy(name: str) -> Router:
            proxy = Shortened(name, price=price)
            proxy.has_parent = name in self.parents
            return proxy

        tree = {edge_of(name, above) for name, above in self.parents.items()}
        lengths = {edge_of(*ends): length for ends, length in self.links.items()}
        along = _graph(self.sites, {link: lengths[link] for link in tree})
        ways = {site: shortest_ways(along, site).distances for site in self.sites}
        network = self._network(new_proxy, sorted(tree), TREE_WEIGHT)
        for one, other in sorted(lengths.keys() - tree):
            is_short = lengths[one, other] < ways[one][other]
            weight = SHORT_WEIGHT if is_short else MAX_PRICE
            link = Link(latency_ms=lengths[one, other], price=float(weight))
            network.connect(one, other, link)
        network.run()
        return network

    def _network(
        self,
        router: Callable[[str], Router],
        links: Iterable[tuple[str, str]],
        weight: int | None = None,
    ) -> Network:
        network = Network()
        for site in self.sites:
            network.add_broker(site, router)
        for one, other in links:
            network.connect(one, other, Link(latency_ms=self._length(one, other), price=weight))
        network.run()
        return network

    def _length(self, one: str, other: str) -> int:
        return self.links[(one, other) if (one, other) in self.links else (other, one)]


def proxy_network(kind: str, size: int, random: Randomness) -> ProxyNetwork:
    """A network of about so many sites.

    >>> network = proxy_network("grid", 9, Randomness(1))
    >>> network.root, network.parents["b1"]
    ('b5', 'b2')
    """
    links: dict[tuple[str, str], int]
    if kind == "transit-stub":
        stub = max(1, (size - TRANSITS) // (TRANSITS * STUBS))
        drawn = draw_sites(random, transits=TRANSITS, stubs=STUBS, stub_size=stub)
        shape = Topology.of(drawn.size, drawn.links)
        links = dict(zip(shape.edges, drawn.lengths, strict=True))
    else:
        side = isqrt(size)
        shape = (
            grid(side, side)
            if kind == "grid"
            else connected_random(size, int(size * EXTRA_LINKS), random)
        )
        links = dict.fromkeys(shape.edges, EVEN_MS)
    graph = _graph(shape.brokers, links)
    root = middle(graph, shape.brokers)
    parents = shortest_ways(graph, root).parents
    del parents[root]
    return ProxyNetwork(shape.brokers, links, root, parents)


def _graph(sites: Iterable[str], links: Mapping[tuple[str, str], int]) -> Graph:
    graph: dict[str, dict[str, int]] = {site: {} for site in sites}
    for (one, other), length in links.items():
        graph[one][other] = graph[other][one] = length
    return graph
