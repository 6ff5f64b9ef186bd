"""The networks of the proxy study, what is wanted where, and the state of their brokers.

Every site has a proxy. A mesh has all links; the hierarchy is the tree of the shortest ways from
the site in the middle, so that each proxy is as near to the root as it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isqrt
from typing import Final, NamedTuple, TypeAlias

import msgspec

from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.general import General
from palio.routing.messages import Flood, Subscribe
from palio.routing.protocol import Peer, Router
from palio.routing.proxies import Proxies
from palio.routing.trees import Graph, middle, shortest_paths
from palio.simulation import Randomness, Topology, connected_random, grid
from palio_studies.simulator import Link, Network
from palio_studies.simulator.network import Message
from palio_studies.simulator.site_networks import draw_sites
from palio_studies.study import Point

EVEN_MS: Final = 10
"""How long every link takes where the network has no lengths."""

EXTRA_LINKS: Final = 0.5
"""Links of a random network beyond those of a tree, for each site."""

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
        return {site: shortest_paths(graph, site).distances for site in self.sites}

    def way(self, one: str, other: str) -> list[Link]:
        """The links of the shortest way between two sites."""
        before = shortest_paths(self.graph, one).parents
        found = []
        while other != one:
            found.append(Link(latency_ms=self._length(before[other], other)))
            other = before[other]
        return found

    def tree_distances(self) -> dict[str, dict[str, int]]:
        """How long the way in the hierarchy takes between any two, in ms."""
        tree = {(above, name): self._length(above, name) for name, above in self.parents.items()}
        graph = _graph(self.sites, tree)
        return {site: shortest_paths(graph, site).distances for site in self.sites}

    def upwards(self, site: str) -> list[str]:
        """A site, the one above it, and so on to the root."""
        found = [site]
        while found[-1] in self.parents:
            found.append(self.parents[found[-1]])
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

    def _network(
        self,
        router: Callable[[str], Router],
        links: Iterable[tuple[str, str]],
    ) -> Network:
        network = Network()
        for site in self.sites:
            network.add_broker(site, router)
        for one, other in links:
            network.connect(one, other, Link(latency_ms=self._length(one, other)))
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
    parents = shortest_paths(graph, root).parents
    del parents[root]
    return ProxyNetwork(shape.brokers, links, root, parents)


def _graph(sites: Iterable[str], links: Mapping[tuple[str, str], int]) -> Graph:
    graph: dict[str, dict[str, int]] = {site: {} for site in sites}
    for (one, other), length in links.items():
        graph[one][other] = graph[other][one] = length
    return graph


# --- who wants what ---

NEAR: Final = 0.1
"""The share of all sources that are near a receiver."""

FEWEST_NEAR: Final = 2

Distances: TypeAlias = Mapping[str, Mapping[str, int]]


class ProxyScenario(NamedTuple):
    """A network, and what each source offers and each receiver wants, by site."""

    drawn: ProxyNetwork
    distances: Distances
    offered: Mapping[str, str]
    wanted: Mapping[str, Sequence[str]]


def draw_scenario(point: Point) -> ProxyScenario:
    """Each site wants types that are not its own: with the chance `locality` from nearby."""
    given = point.parameters
    random = Randomness(point.seed)
    drawn = proxy_network(str(given["network"]), int(given["proxies"]), random)
    distances = drawn.distances()
    offered = {site: f"t{number}" for number, site in enumerate(drawn.sites) if number % 2 == 0}
    wanted: dict[str, list[str]] = {}
    for site, lengths in distances.items():
        others = sorted((source for source in offered if source != site), key=lengths.__getitem__)
        near = others[: max(FEWEST_NEAR, round(NEAR * len(offered)))]
        kinds = wanted[site] = []
        while len(kinds) < int(given["wishes"]):
            is_near = random.chance(float(given["locality"]))
            kind = offered[random.choice(near if is_near else others)]
            if kind not in kinds:
                kinds.append(kind)
    return ProxyScenario(drawn, distances, offered, wanted)


# --- what a broker has to know ---


class TableState(NamedTuple):
    """How much one broker knows."""

    entries: int
    """Filters and advertisements in its tables, whoever asked for them."""
    lines: int
    """An entry and a peer that asked for it: the lists of (E, IPL, OPL) together (proxy IV)."""
    tree_links: int = 0
    """Links of the tree that it knows."""


def state_of(router: Router) -> TableState:
    """The tables of a router that forwards along a tree.

    >>> state_of(Proxies("b1"))
    TableState(entries=0, lines=0, tree_links=0)
    """
    links = len(router.tree) if isinstance(router, General) else 0
    inner = router.inner if isinstance(router, General) else router
    assert isinstance(inner, ForwardingRouter)
    ledgers = [inner.subscriptions]
    if isinstance(inner, Proxies):
        ledgers.append(inner.advertisements)
    entries = len({str(filter) for ledger in ledgers for filter in ledger.table.nodes})
    lines = sum(len(node.subscribers) for each in ledgers for node in each.table.nodes.values())
    return TableState(entries, lines, links)


class FloodedState:
    """The tables of brokers that are told the summaries of all, from what crosses their links.

    It is right as long as nothing is taken back.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[tuple[str, str]]] = {}

    def note(self, broker: str, message: Message) -> None:
        """A broker is told something."""
        if isinstance(message, Flood):
            for request in message.requests:
                if isinstance(request, Subscribe):
                    self.add(broker, message.origin, str(request.filter))

    def add(self, broker: str, origin: str, filter: str) -> None:
        """A broker knows what is wanted at another, or at itself."""
        self._known.setdefault(broker, set()).add((origin, filter))

    def of(self, broker: str) -> TableState:
        """What a broker knows."""
        known = self._known.get(broker, set())
        return TableState(len({filter for _, filter in known}), len(known))
