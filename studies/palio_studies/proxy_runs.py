"""The proxy study's runs: designs of section II, and a hierarchy beside a mesh (proxy V).

Routers are the real ones. What each receiver hears is compared with what it wants of all that was
published; a run in which they differ ends with an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np

from palio.model.row_parcels import RowParcel
from palio.routing.centralized import Centralized
from palio.routing.general import General
from palio.routing.source_trees import SourceTrees
from palio.simulation import Client, Network, Randomness
from palio.simulation.agenda import US_PER_MS
from palio.simulation.network import Message
from palio.simulation.shortcuts import Price
from palio.simulation.shortened import Shortened
from palio_studies.proxy_network import ProxyNetwork, proxy_network
from palio_studies.proxy_state import FloodedState, TableState, state_of
from palio_studies.study import Point, Row, Value

__all__ = ["NEAR", "SHORTENED", "compare_designs", "compare_organizations", "compare_prices"]

NEAR: Final = 0.1
"""The share of all sources that are near a receiver."""

FEWEST_NEAR: Final = 2


SHORTENED: Final = "hierarchy with shortcuts"

UNCOUNTED: Final = -1
"""The number of events by which rates are found."""


class SourceEvent(NamedTuple):
    """An event of a type, where it came from and when."""

    site: str
    kind: str
    at_ms: float


class DeliveryDelay(NamedTuple):
    """How long a delivery took, and how long the shortest way takes."""

    took_ms: float
    shortest_ms: int


# --- mesh and hierarchy ---


def compare_organizations(point: Point) -> list[Row]:
    """A row for each way to organize the same proxies with the same sources and receivers."""
    given = point.parameters
    random = Randomness(point.seed)
    drawn = proxy_network(str(given["network"]), int(given["proxies"]), random)
    distances = drawn.distances()
    offered, wanted = _interests(drawn, distances, given, random)
    return [
        _organized(name, network, drawn, distances, offered, wanted)
        for name, network in (
            ("mesh", drawn.mesh(SourceTrees)),
            ("mesh, one tree", drawn.mesh(General)),
            ("hierarchy", drawn.hierarchy()),
            (SHORTENED, drawn.shortened(Price())),
        )
    ]


def compare_prices(point: Point) -> list[Row]:
    """A row of a hierarchy with shortcuts that have to be worth so much."""
    given = point.parameters
    random = Randomness(point.seed)
    drawn = proxy_network(str(given["network"]), int(given["proxies"]), random)
    distances = drawn.distances()
    offered, wanted = _interests(drawn, distances, given, random)
    price = float(given["price"])
    network = drawn.shortened(Price(price, price / 4))
    return [_organized(SHORTENED, network, drawn, distances, offered, wanted)]


def _interests(
    drawn: ProxyNetwork,
    distances: Mapping[str, Mapping[str, int]],
    given: Mapping[str, Value],
    random: Randomness,
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """What each source offers and each receiver wants, by site."""
    offered = {site: f"t{number}" for number, site in enumerate(drawn.sites) if number % 2 == 0}
    locality, wishes = float(given["locality"]), int(given["wishes"])
    return offered, _wishes(distances, offered, locality, wishes, random)


def _wishes(
    distances: Mapping[str, Mapping[str, int]],
    offered: Mapping[str, str],
    locality: float,
    wishes: int,
    random: Randomness,
) -> dict[str, list[str]]:
    """What each site wants, not its own: with the chance `locality` from nearby, else any."""
    found: dict[str, list[str]] = {}
    for site in distances:
        others = sorted((each for each in offered if each != site), key=distances[site].__getitem__)
        near = others[: max(FEWEST_NEAR, round(NEAR * len(offered)))]
        kinds: list[str] = []
        while len(kinds) < wishes:
            kind = offered[random.choice(near if random.chance(locality) else others)]
            if kind not in kinds:
                kinds.append(kind)
        found[site] = kinds
    return found


def _organized(
    organization: str,
    network: Network,
    drawn: ProxyNetwork,
    distances: Mapping[str, Mapping[str, int]],
    offered: Mapping[str, str],
    wanted: Mapping[str, Sequence[str]],
) -> Row:
    flooded, passed = FloodedState(), Counter[str]()

    def note(_: str, target: str, message: Message) -> None:
        flooded.note(target, message)
        if isinstance(message, RowParcel):
            passed[target] += len(message)

    network.on_crossing = note
    before = _requests(network)
    for site, kinds in wanted.items():
        receiver = network.client(f"r-{site}", site)
        for kind in kinds:
            receiver.subscribe(_filter(kind))
            flooded.add(site, site, _filter(kind))
    for site, kind in offered.items():
        source = network.client(f"s-{site}", site)
        if organization in ("hierarchy", SHORTENED):
            source.advertise(_filter(kind))
    network.run()
    if organization == SHORTENED:
        open_shortcuts(network, offered)
    requests = _requests(network) - before
    passed.clear()
    crossings = network.costs.notifications
    published = _publish(network, offered)
    heard = _heard(network, published, wanted, distances)
    states = {
        site: flooded.of(site) if isinstance(router, SourceTrees) else state_of(router)
        for site, router in network.routers.items()
    }
    return {
        "organization": organization,
        **_latencies(heard),
        **_stated(states.values()),
        "requests": requests,
        "crossings": (network.costs.notifications - crossings) / len(published),
        "busiest": max(passed.values()) / len(published),
        "links_known": len(drawn.links) if organization != "hierarchy" else 0,
        "shortcuts": sum(
            len(router.shortcuts)
            for router in network.routers.values()
            if isinstance(router, Shortened)
        ),
    }


def open_shortcuts(network: Network, offered: Mapping[str, str]) -> None:
    """Each source publishes once a second for as long as rates are of. Then shortcuts begin where
    they pay, and each publishes once more, so that the next copy is accepted.
    """
    window_s = round(Price().window_s)
    began_ms = network.now_ms
    for broker in network.routers:
        network.look(broker)
    for second in range(window_s + 1):
        for site, kind in offered.items():
            network.clients[f"s-{site}"].publish({"type": kind, "number": UNCOUNTED})
        if second < window_s:
            network.run(began_ms + 1_000 * (second + 1))
        if second == window_s - 1:
            for broker in network.routers:
                network.look(broker)
            network.run()
    network.run()
    for client in network.clients.values():
        client.received.clear()


def _filter(kind: str) -> str:
    return f"type = '{kind}'"


def _requests(network: Network) -> int:
    costs = network.costs
    return costs.subscribes + costs.unsubscribes + costs.advertises + costs.unadvertises


def _publish(network: Network, offered: Mapping[str, str]) -> list[SourceEvent]:
    """One event from each source, each after the one before has arrived everywhere."""
    published = []
    for site, kind in offered.items():
        published.append(SourceEvent(site, kind, network.now_ms))
        event = {"type": kind, "number": len(published) - 1}
        network.clients[f"s-{site}"].publish(event)
        network.run()
    return published


def _heard(
    network: Network,
    published: Sequence[SourceEvent],
    wanted: Mapping[str, Sequence[str]],
    distances: Mapping[str, Mapping[str, int]],
) -> list[DeliveryDelay]:
    """Every delivery; all that were due, each once, and no other."""
    found = []
    for site, kinds in wanted.items():
        received = network.clients[f"r-{site}"].received
        took = {int(each.event["number"]): each.time_us / US_PER_MS for each in received}
        due = {number for number, each in enumerate(published) if each.kind in kinds}
        if took.keys() != due or len(received) != len(due):
            raise AssertionError(f"{site} heard {sorted(took)}, and was to hear {sorted(due)}")
        for number in sorted(due):
            event = published[number]
            found.append(DeliveryDelay(took[number] - event.at_ms, distances[event.site][site]))
    return found


def _latencies(heard: Sequence[DeliveryDelay]) -> Row:
    took = [each.took_ms for each in heard]
    return {
        "latency_ms": fmean(took),
        "latency_p95_ms": float(np.percentile(took, 95)),
        "stretch": sum(took) / max(1, sum(each.shortest_ms for each in heard)),
    }


def _stated(states: Iterable[TableState]) -> Row:
    every = list(states)
    return {
        "entries": fmean(each.entries for each in every),
        "entries_most": max(each.entries for each in every),
        "lines": fmean(each.lines for each in every),
        "lines_most": max(each.lines for each in every),
    }


# --- section II ---


def compare_designs(point: Point) -> list[Row]:
    """A row for each design of section II: so many sources and receivers of one type of event."""
    given = point.parameters
    random = Randomness(point.seed)
    drawn = proxy_network(str(given["network"]), int(given["proxies"]), random)
    distances = drawn.distances()
    sources = [random.choice(drawn.sites) for _ in range(int(given["sources"]))]
    receivers = [random.choice(drawn.sites) for _ in range(int(given["receivers"]))]
    return [
        _design("distributed", _distributed(drawn, sources, receivers), drawn, distances),
        _design("single proxy", _single(drawn, sources, receivers), drawn, distances),
        _design("multi-proxy", _several(drawn, sources, receivers), drawn, distances),
    ]


class Design(NamedTuple):
    """Who is where, before anybody has said anything."""

    network: Network
    sources: list[tuple[Client, str]]
    """With the site of each."""
    receivers: list[tuple[list[Client], str]]
    """The connections of each, and its site."""
    watched: Counter[str]
    """For each place with how many others it exchanges heartbeats."""


def _distributed(drawn: ProxyNetwork, sources: Sequence[str], receivers: Sequence[str]) -> Design:
    """Each source serves itself; a receiver subscribes at all of them."""
    network, watched = Network(), Counter[str]()
    own = []
    for number, site in enumerate(sources):
        network.add_broker(f"source{number}", Centralized)
        own.append((network.client(f"s{number}", f"source{number}"), site))
    connected: list[tuple[list[Client], str]] = []
    for receiver, site in enumerate(receivers):
        clients = []
        for number, at in enumerate(sources):
            way = drawn.way(at, site)
            clients.append(network.client(f"r{receiver}-{number}", f"source{number}", way))
            watched[f"source{number}"] += 1
            watched[f"r{receiver}"] += 1
        connected.append((clients, site))
    return Design(network, own, connected, watched)


def _single(drawn: ProxyNetwork, sources: Sequence[str], receivers: Sequence[str]) -> Design:
    """All clients are those of one proxy, in the middle of the network."""
    network = Network()
    network.add_broker("proxy", Centralized)

    def client(name: str, site: str) -> Client:
        return network.client(name, "proxy", drawn.way(drawn.root, site))

    return Design(
        network,
        [(client(f"s{number}", site), site) for number, site in enumerate(sources)],
        [([client(f"r{number}", site)], site) for number, site in enumerate(receivers)],
        Counter({"proxy": len(sources) + len(receivers)}),
    )


def _several(drawn: ProxyNetwork, sources: Sequence[str], receivers: Sequence[str]) -> Design:
    """A proxy at each site, in a hierarchy; clients go to that of their site."""
    network = drawn.hierarchy()
    watched = Counter([*sources, *receivers])
    for below, above in drawn.parents.items():
        watched[below] += 1
        watched[above] += 1
    return Design(
        network,
        [(network.client(f"s{number}", site), site) for number, site in enumerate(sources)],
        [([network.client(f"r{number}", site)], site) for number, site in enumerate(receivers)],
        watched,
    )


def _design(
    name: str, design: Design, drawn: ProxyNetwork, distances: Mapping[str, Mapping[str, int]]
) -> Row:
    network = design.network
    sent: Counter[str] = Counter()

    def note(origin: str, _: str, message: Message) -> None:
        if isinstance(message, RowParcel):
            sent[origin] += len(message)

    network.on_crossing = note
    before = _requests(network)
    for client, _ in design.sources:
        if name == "multi-proxy":
            client.advertise(_filter("t"))
    for clients, _ in design.receivers:
        for client in clients:
            client.subscribe(_filter("t"))
    network.run()
    requests = _requests(network) - before
    heard, most_sent = _told(design, distances, sent)
    states = {place: state_of(router) for place, router in network.routers.items()}
    connections = sum(len(clients) for clients, _ in design.receivers)
    if name == "distributed":
        pairs = connections
    elif name == "single proxy":
        pairs = connections + len(design.sources)
    else:
        pairs = connections + len(design.sources) + len(drawn.parents)
    stated = _stated(states.values())
    return {
        "design": name,
        **_latencies(heard),
        **stated,
        "source_lines": stated["lines_most"] if name == "distributed" else 0,
        "lines_all": sum(each.lines for each in states.values()),
        "requests": requests,
        "crossings": network.costs.notifications / len(design.sources),
        "most_sent": most_sent,
        "watched_pairs": pairs,
        "watched_most": max(design.watched.values()),
    }


def _told(
    design: Design, distances: Mapping[str, Mapping[str, int]], sent: Counter[str]
) -> tuple[list[DeliveryDelay], float]:
    """Each source publishes an event, which each receiver must hear once. What each delivery took,
    and how often the busiest place sends an event, on average.
    """
    network, began, most = design.network, [], []
    for number, (client, _) in enumerate(design.sources):
        began.append(network.now_ms)
        sent.clear()
        client.publish({"type": "t", "number": number})
        network.run()
        most.append(max(sent.values(), default=0))
    found = []
    for clients, site in design.receivers:
        heard = [each for client in clients for each in client.received]
        numbers = sorted(int(each.event["number"]) for each in heard)
        if numbers != list(range(len(began))):
            raise AssertionError(f"a receiver heard {numbers} of {len(began)} events")
        for each in heard:
            number = int(each.event["number"])
            shortest = distances[design.sources[number][1]][site]
            found.append(DeliveryDelay(each.time_us / US_PER_MS - began[number], shortest))
    return found, fmean(most)
