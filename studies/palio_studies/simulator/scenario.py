"""One scenario from a few words, and what it cost: the substance of `palio simulate`."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, Final

import msgspec

from palio.errors import InvalidInput
from palio.matching.index import Index
from palio.routing.algorithms import ALGORITHMS, Algorithm, GraphKind, find_algorithm
from palio.routing.protocol import Matching, Router, Selector, SelectorFactory
from palio.routing.reference_selector import ReferenceSelector
from palio.routing.trees import shortest_paths
from palio.simulation.agenda import US_PER_MS
from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology, parse_topology
from palio_studies.names import MATCHINGS
from palio_studies.simulator.clients import Client
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import Network
from palio_studies.simulator.poset_selector import PosetSelector
from palio_studies.simulator.site_networks import transit_stub

_GROUPS: Final = 10
"""Topics of the scenario: each client asks for a part of one."""

_VALUES: Final = 100
"""Values of an event, and of a client's parameter."""


def simulate(
    topology: str,
    routing: str,
    *,
    seed: int = 0,
    clients: int = 20,
    events: int = 100,
    patterns: int = 0,
    matching: str = "reference",
) -> dict[str, Any]:
    """Clients at random brokers subscribe, change a parameter, publish; the costs, counted.

    Of the clients, `patterns` also ask for a pattern, which the brokers assemble. `matching` is one
    of `MATCHINGS`. Where there is one broker for all, the clients are at the other
    places of the topology.

    >>> simulate("ring:12", "general", seed=7)["delivered"] > 0
    True
    """
    random = Randomness(seed)
    algorithm = find_algorithm(routing)
    shape = _checked(topology, algorithm, random)
    for what, count, least in (("clients", clients, 1), ("events", events, 0)):
        if count < least:
            raise InvalidInput(f"{what} is {count}; it takes at least {least}")
    if not 0 <= patterns <= clients:
        raise InvalidInput(f"patterns is {patterns}; at most every client, {clients}, asks for one")
    if patterns and not algorithm.assembles:
        able = " or ".join(each.name for each in ALGORITHMS.values() if each.assembles)
        raise InvalidInput(f"{routing} assembles no patterns; choose {able}")
    brokers = Topology(shape.brokers[:1], ()) if algorithm.graph is GraphKind.ALONE else shape
    selectors: list[Selector] = []
    select = selectors_of(matching)

    def selector() -> Selector:
        selectors.append(select())
        return selectors[-1]

    def new_router(name: str) -> Router:
        new = algorithm.new_assembling if patterns else algorithm.new
        return new(name, selector)

    network = Network.of(brokers, new_router, seed=seed)
    scenario = _Scenario(network, random)
    scenario.populate(shape, clients, patterns)
    for _ in range(events):
        scenario.publish()
    costs = msgspec.to_builtins(network.costs)
    costs["link_states"] = costs.pop("topology")
    return {
        "topology": topology,
        "routing": routing,
        "matching": matching,
        "seed": seed,
        "brokers": len(shape.brokers),
        "links": len(shape.edges),
        "clients": clients,
        "published": events,
        **costs,
        **scenario.deliveries(),
        "filters": sum(map(len, selectors)),
        "time_ms": network.now_ms,
        "trace": network.trace.hash,
    }


def selectors_of(matching: str) -> SelectorFactory:
    """What makes the selectors of a router, one of `MATCHINGS`.

    >>> type(selectors_of("poset")()).__name__
    'PosetSelector'
    """
    if matching == "poset":
        return PosetSelector
    if matching == "reference":
        return ReferenceSelector
    if matching != "index":
        raise InvalidInput(f"{matching!r:.80} is no matching; choose one of {', '.join(MATCHINGS)}")
    return lambda: Matching(Index())


def _checked(topology: str, algorithm: Algorithm, random: Randomness) -> Topology:
    shape = parse_topology(topology, random, {"transit-stub": transit_stub})
    links = {frozenset(edge) for edge in shape.edges}
    if len(links) < len(shape.edges) or any(len(link) < 2 for link in links):
        raise InvalidInput(f"{topology} is too small to be a ring; make it ring:3 or larger")
    if algorithm.graph is GraphKind.TREE and not shape.is_tree:
        instead = ", ".join(
            each.name
            for each in ALGORITHMS.values()
            if each.graph is GraphKind.GRAPH and each.is_advertised == algorithm.is_advertised
        )
        raise InvalidInput(
            f"{algorithm.name} needs a tree and {topology} has cycles; choose {instead}"
        )
    return shape


class _Scenario:
    """The clients, and when each of their events was published."""

    def __init__(self, network: Network, random: Randomness) -> None:
        self.network = network
        self.random = random
        self.crowd: list[Client] = []
        self._published_us: dict[str, list[int]] = {}

    def populate(self, shape: Topology, clients: int, patterns: int) -> None:
        """Let brokers meet, then clients come, subscribe, and change their minds."""
        random, network = self.random, self.network
        network.run()
        keys = []
        graph: dict[str, dict[str, int]] = {name: {} for name in shape.brokers}
        for one, other in shape.edges:
            graph[one][other] = graph[other][one] = 1
        hops = shortest_paths(graph, "b1").distances
        for number in range(clients):
            place = random.choice(shape.brokers)
            if place in network.routers:
                client = network.client(f"c{number}", place)
            else:
                client = network.client(f"c{number}", "b1", [Link()] * hops[place])
            self.crowd.append(client)
            self._published_us[client.name] = []
        for client in self.crowd:
            client.advertise("topic IS NOT NULL AND value IS NOT NULL")
            topic, bound = random.below(_GROUPS), random.below(_VALUES)
            keys.append(client.subscribe(f"topic = {topic} AND value >= :low", {"low": bound}))
        self.network.run()
        for client, key in zip(self.crowd, keys, strict=True):
            client.update(key, low=random.below(_VALUES))
        self.network.run()
        for client in self.crowd[:patterns]:
            first, then = random.sample(range(_GROUPS), 2)
            client.subscribe_pattern(f"topic = {first} THEN topic = {then}")
        self.network.run()

    def publish(self) -> None:
        """One event of somebody's, and whatever follows from it."""
        client = self.random.choice(self.crowd)
        self._published_us[client.name].append(self.network.agenda.now_us)
        event = {"topic": self.random.below(_GROUPS), "value": self.random.below(_VALUES)}
        client.publish(event)
        self.network.run()

    def deliveries(self) -> dict[str, Any]:
        """How much was delivered, and how long it took in virtual milliseconds."""
        singles = [
            each.time_us - self._published_us[each.publisher][each.seq]
            for client in self.crowd
            for each in client.received
        ]
        composites = [
            each.time_us - self._published_us[last.publisher][last.seq]
            for client in self.crowd
            for each in client.found
            for last in each.parts[-1:]
        ]
        return {
            "delivered": len(singles),
            "composites": len(composites),
            "latency_ms": _spread(singles),
            "composite_latency_ms": _spread(composites),
        }


def _spread(times_us: Iterable[int]) -> dict[str, float] | None:
    """Mean, median and 99th percentile in milliseconds, by nearest rank; None of nothing."""
    ordered = sorted(times_us)
    if not ordered:
        return None
    ranks = {"p50": 0.5, "p99": 0.99}
    return {
        "mean": round(sum(ordered) / len(ordered) / US_PER_MS, 3),
        **{
            name: ordered[ceil(share * len(ordered)) - 1] / US_PER_MS
            for name, share in ranks.items()
        },
    }
