"""The proxy study's runs on routers: designs of section II, and a hierarchy beside a mesh (V).

What each receiver hears is compared with what it wants of all that was published; a run in which
they differ ends with an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Centralized
from palio.routing.general import General
from palio.routing.source_trees import SourceTrees
from palio.simulation import Randomness
from palio.simulation.agenda import US_PER_MS
from palio_studies.proxy_network import (
    Distances,
    FloodedState,
    ProxyNetwork,
    ProxyScenario,
    TableState,
    draw_scenario,
    proxy_network,
    state_of,
)
from palio_studies.proxy_registrations import PaperHierarchy
from palio_studies.simulator import Client, Link, Network
from palio_studies.simulator.network import Message
from palio_studies.study import Point, Row

# --- mesh and hierarchy ---

SHORTENED: Final = "hierarchy with shortcuts"
REGISTERED: Final = "hierarchy by IV-C.1"

SHORTCUT_WORTH: Final = 1.0
"""Links that events skip by a shortcut in a second, for each type that its other end wants."""


def compare_organizations(point: Point) -> list[Row]:
    """A row for each way to organize the same proxies with the same sources and receivers."""
    scenario = draw_scenario(point)
    drawn = scenario.drawn
    proxies = drawn.hierarchy()
    hierarchy = _organized("hierarchy", proxies, scenario)
    return [
        _organized("mesh", drawn.mesh(SourceTrees), scenario),
        _organized("mesh, one tree", drawn.mesh(General), scenario),
        hierarchy,
        hierarchy | with_shortcuts(scenario, float(hierarchy["entries"])),
        hierarchy | by_registrations(scenario),
    ]


def _organized(organization: str, network: Network, scenario: ProxyScenario) -> Row:
    _, distances, offered, wanted = scenario
    flooded, passed = FloodedState(), Counter[str]()

    def note(_: str, target: str, message: Message) -> None:
        flooded.note(target, message)
        if isinstance(message, RowParcel):
            passed[target] += len(message)

    network.on_crossing = note
    before = _requests(network)
    receivers = {site: network.client(f"r-{site}", site) for site in wanted}
    for site, receiver in receivers.items():
        for kind in wanted[site]:
            receiver.subscribe(_filter(kind))
            flooded.add(site, site, _filter(kind))
    sources = {site: network.client(f"s-{site}", site) for site in offered}
    if organization == "hierarchy":
        for site, source in sources.items():
            source.advertise(_filter(offered[site]))
    network.run()
    requests = _requests(network) - before
    passed.clear()
    published = _publish(network, [(sources[site], site, kind) for site, kind in offered.items()])
    delays = []
    for site, receiver in receivers.items():
        due = [number for number, event in enumerate(published) if event.kind in wanted[site]]
        delays += _delays([receiver], site, published, due, distances)
    routers = network.routers
    return {
        "organization": organization,
        **_latencies(delays),
        **_stated(
            flooded.of(site) if isinstance(router, SourceTrees) else state_of(router)
            for site, router in routers.items()
        ),
        "requests": requests,
        "busiest": max(passed.values()) / len(published),
        "sporadic": _reached_by_sporadic(network, scenario),
    }


def with_shortcuts(scenario: ProxyScenario, entries: float) -> Row:
    """What shortcuts change, computed: brokers have none.

    A shortcut is a link from a proxy p to a proxy q of another branch. An event of p's branch takes
    it as well as the tree, and goes down to those of q's branch who want its type, of which p keeps
    an entry each. Each source publishes once a second. The root, which knows most, has none.
    """
    drawn, distances, offered, wanted = scenario
    ways = drawn.tree_distances()
    upwards = {site: drawn.upwards(site) for site in drawn.sites}
    shortcuts = []
    for one, other in drawn.links:
        for near, far in ((one, other), (other, one)):
            if near in upwards[far] or far in upwards[near]:
                continue
            kinds = {kind for site in drawn.sites if far in upwards[site] for kind in wanted[site]}
            copied = sum(kind in kinds and near in upwards[at] for at, kind in offered.items())
            skipped = len(set(upwards[near]) ^ set(upwards[far])) - 1
            if copied * skipped >= SHORTCUT_WORTH * len(kinds):
                shortcuts.append((near, far, distances[near][far]))
                entries += len(kinds) / len(drawn.sites)

    def took(source: str, site: str) -> float:
        lengths = [
            ways[source][near] + length + ways[far][site]
            for near, far, length in shortcuts
            if near in upwards[source] and far in upwards[site]
        ]
        return min([ways[source][site], *lengths])

    homes = {kind: site for site, kind in offered.items()}
    pairs = [(homes[kind], site) for site, kinds in wanted.items() for kind in kinds]
    delays = [DeliveryDelay(took(*pair), distances[pair[0]][pair[1]]) for pair in pairs]
    return {"organization": SHORTENED, **_latencies(delays), "entries": entries}


def by_registrations(scenario: ProxyScenario) -> Row:
    """What the paper's rules change, with all sources registered before anybody subscribes: then
    most subscriptions stop early.
    """
    drawn, _, offered, wanted = scenario
    proxies = PaperHierarchy(drawn.parents)
    for site, kind in offered.items():
        proxies.send("REG", kind, f"s-{site}", site)
    for site, kinds in wanted.items():
        for kind in kinds:
            proxies.send("SUB", kind, f"r-{site}", site)
    reached = [
        len(proxies.reached(kind, at) - {f"r-{at}"}) for kind, at in _sporadic(scenario).items()
    ]
    return {
        "organization": REGISTERED,
        **_stated(proxies.state(site) for site in drawn.sites),
        "requests": sum(message.sender in proxies.proxies for message in proxies.sent),
        "sporadic": sum(reached) / _due_of_sporadic(scenario),
    }


def _sporadic(scenario: ProxyScenario) -> dict[str, str]:
    """For each type, the site farthest from its source: there an event of it is published that
    nobody announced.
    """
    distances = scenario.distances
    return {
        kind: max(distances[at], key=distances[at].__getitem__)
        for at, kind in scenario.offered.items()
    }


def _due_of_sporadic(scenario: ProxyScenario) -> int:
    """How many receivers at other sites want one of these events."""
    return sum(
        kind in scenario.wanted[site]
        for kind, at in _sporadic(scenario).items()
        for site in scenario.wanted
        if site != at
    )


def _reached_by_sporadic(network: Network, scenario: ProxyScenario) -> float:
    """Publish these events; return the share of receivers that they reach."""
    before = network.costs.delivered
    for kind, at in _sporadic(scenario).items():
        network.clients[f"r-{at}"].publish({"type": kind, "number": -1})
    network.run()
    return (network.costs.delivered - before) / _due_of_sporadic(scenario)


# --- what both sections count ---


class SourceEvent(NamedTuple):
    """An event of a type, where it came from and when."""

    site: str
    kind: str
    at_ms: float


class DeliveryDelay(NamedTuple):
    """How long a delivery took, and how long the shortest way takes."""

    took_ms: float
    shortest_ms: int


def _filter(kind: str) -> str:
    return f"type = '{kind}'"


def _requests(network: Network) -> int:
    costs = network.costs
    return costs.subscribes + costs.unsubscribes + costs.advertises + costs.unadvertises


def _publish(network: Network, sources: Iterable[tuple[Client, str, str]]) -> list[SourceEvent]:
    """One event from each source, each after the one before has arrived everywhere."""
    published = []
    for number, (client, site, kind) in enumerate(sources):
        published.append(SourceEvent(site, kind, network.now_ms))
        client.publish({"type": kind, "number": number})
        network.run()
    return published


def _delays(
    clients: Iterable[Client],
    site: str,
    published: Sequence[SourceEvent],
    due: Sequence[int],
    distances: Distances,
) -> list[DeliveryDelay]:
    """Every delivery to a receiver; all that were due, each once, and no other."""
    took = sorted(
        (int(each.event["number"]), each.time_us / US_PER_MS)
        for client in clients
        for each in client.received
    )
    numbers = [number for number, _ in took]
    if numbers != list(due):
        raise AssertionError(f"{site} heard {numbers}, and was to hear {due}")
    return [
        DeliveryDelay(at_ms - published[number].at_ms, distances[published[number].site][site])
        for number, at_ms in took
    ]


def _latencies(delays: Sequence[DeliveryDelay]) -> Row:
    took = [delay.took_ms for delay in delays]
    return {
        "latency_ms": fmean(took),
        "stretch": sum(took) / max(1, sum(delay.shortest_ms for delay in delays)),
    }


def _stated(states: Iterable[TableState]) -> Row:
    entries, lines, _ = zip(*states, strict=True)
    return {
        "entries": fmean(entries),
        "entries_most": max(entries),
        "lines": fmean(lines),
        "lines_most": max(lines),
    }


# --- section II ---

Home: TypeAlias = tuple[str, Sequence[Link]]
"""The place that a client is connected to, and the links between."""


class Design(NamedTuple):
    """Who is where, before anybody has said anything."""

    network: Network
    sources: Sequence[Home]
    receivers: Sequence[Sequence[Home]]
    """All connections of each."""
    pairs: Sequence[tuple[str, str]]
    """Who exchanges heartbeats with whom."""


def compare_designs(point: Point) -> list[Row]:
    """A row for each design of section II: so many sources and receivers of one type of event."""
    given = point.parameters
    random = Randomness(point.seed)
    drawn = proxy_network(str(given["network"]), int(given["proxies"]), random)
    sources = [random.choice(drawn.sites) for _ in range(int(given["sources"]))]
    receivers = [random.choice(drawn.sites) for _ in range(int(given["receivers"]))]
    distances = drawn.distances()
    designs = {"distributed": _distributed, "single proxy": _single, "multi-proxy": _several}
    return [
        _designed(name, design(drawn, sources, receivers), distances, sources, receivers)
        for name, design in designs.items()
    ]


def _distributed(drawn: ProxyNetwork, sources: Sequence[str], receivers: Sequence[str]) -> Design:
    """Each source serves itself; a receiver subscribes at all of them."""
    network = Network()
    places = [f"source{number}" for number in range(len(sources))]
    for place in places:
        network.add_broker(place, Centralized)
    homes = [
        [(place, drawn.way(at, site)) for place, at in zip(places, sources, strict=True)]
        for site in receivers
    ]
    pairs = [(place, f"r{number}") for number in range(len(receivers)) for place in places]
    return Design(network, [(place, ()) for place in places], homes, pairs)


def _single(drawn: ProxyNetwork, sources: Sequence[str], receivers: Sequence[str]) -> Design:
    """All clients are those of one proxy, in the middle of the network."""
    network = Network()
    network.add_broker("proxy", Centralized)
    ends = [("proxy", drawn.way(drawn.root, site)) for site in (*sources, *receivers)]
    pairs = [("proxy", f"client{number}") for number in range(len(ends))]
    return Design(network, ends[: len(sources)], [[end] for end in ends[len(sources) :]], pairs)


def _several(drawn: ProxyNetwork, sources: Sequence[str], receivers: Sequence[str]) -> Design:
    """A proxy at each site, in a hierarchy; clients go to that of their site."""
    clients = [(site, f"client{number}") for number, site in enumerate((*sources, *receivers))]
    return Design(
        drawn.hierarchy(),
        [(site, ()) for site in sources],
        [[(site, ())] for site in receivers],
        [*clients, *drawn.parents.items()],
    )


def _designed(
    name: str,
    design: Design,
    distances: Distances,
    sources: Sequence[str],
    receivers: Sequence[str],
) -> Row:
    network = design.network
    copies: dict[int, Counter[str]] = {number: Counter() for number in range(len(sources))}

    def note(origin: str, _: str, message: Message) -> None:
        if isinstance(message, RowParcel):
            copies[message.rows[0]["number"]][origin] += 1

    network.on_crossing = note
    before = _requests(network)
    publishing = [network.client(f"s{n}", *home) for n, home in enumerate(design.sources)]
    listening = [
        [network.client(f"r{n}-{connection}", *home) for connection, home in enumerate(homes)]
        for n, homes in enumerate(design.receivers)
    ]
    if name == "multi-proxy":
        for client in publishing:
            client.advertise(_filter("t"))
    for client in chain(*listening):
        client.subscribe(_filter("t"))
    network.run()
    requests = _requests(network) - before
    published = _publish(
        network, [(client, site, "t") for client, site in zip(publishing, sources, strict=True)]
    )
    delays: list[DeliveryDelay] = []
    for clients, site in zip(listening, receivers, strict=True):
        delays += _delays(clients, site, published, range(len(published)), distances)
    states = [state_of(router) for router in network.routers.values()]
    stated = _stated(states)
    return {
        "design": name,
        **_latencies(delays),
        **stated,
        "source_lines": stated["lines_most"] if name == "distributed" else 0,
        "lines_all": sum(state.lines for state in states),
        "requests": requests,
        "crossings": network.costs.notifications / len(sources),
        "most_sent": fmean(max(sent.values(), default=0) for sent in copies.values()),
        "watched_pairs": len(design.pairs),
        "watched_most": max(Counter(chain(*design.pairs)).values()),
    }
