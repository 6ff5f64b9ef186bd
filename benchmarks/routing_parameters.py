"""Parametric updates against both orders of re-subscription (parametric 5), on the same seeds.

Every subscriber swings one bound between a narrow and a wide region, and trembles a little within
it with every update. *Delay* is from a swing to the wide region until the first event that only
the wide one matches; only range operators are watched, because an `=` subscriber hears few events
and would measure the publishers. A swing that was not answered by the end of the window counts with
the time until then and as *unheard*, on both sides: where there are any, the delay is a lower
bound. *Spurious* is what reaches a client and fails its newest value, *delivered* what passes.

A broker works a fixed time on each request and event, so load shows as delay. The paper does not
say its brokers' time, but two of its findings bracket it. Siena "does not scale beyond 100
updates/second/subscriber": with 7.5 subscribers a broker, each change two requests, an edge broker
was full at 1,500 requests a second of its own clients alone, 0.67 ms each. The Rete broker lost
half its throughput at ten times that rate, 0.07 ms. Hence the sweep from 0.1 to 1 ms.

Brokers that are compared with do without any parametric machinery: they know SUB and USUB only.
What waits for a busy broker is joined on all sides (`coalesce`), and in some runs on none. A
re-subscription is charged like two updates, although in the paper's brokers it costs more than
that: what the table shows is protocol only. Every link takes 10 ms, those of clients too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from functools import partial
from statistics import mean, median
from time import process_time
from typing import Any, Final, NamedTuple

from palio.routing.acyclic import Acyclic
from palio.routing.general import General
from palio.routing.hierarchical import Hierarchical
from palio.simulation import (
    Client,
    Link,
    Network,
    Randomness,
    SteadyService,
    Topology,
    connected_random,
    tree,
)
from palio.simulation.network import RouterFactory

Row = dict[str, Any]

BROKERS: Final = 20
SERVICES_US: Final = (100, 250, 500, 1000)
"""Work on one request or event: 10,000 to 1,000 of them a second a broker."""
USUAL_SERVICE_US: Final = 500
"""The one of a quick run, and of the runs without joining."""
LATENCY_MS: Final = 10
"""Of every link, a client's too: the paper delays both."""
WATCHED: Final = 12
"""Subscribers whose delay is taken; each has a type of its own with a steady stream of events."""
WATCHED_EVENTS_PER_S: Final = 40
OTHER_EVENTS_PER_S: Final = 120
SWING_MS: Final = 400
US_PER_MS: Final = 1000
TREMBLE: Final = 20
FEW: Final = 10
"""Of fewer spurious events on the side that has more, no ratio is given."""


class Way(NamedTuple):
    """How a client changes a value, and what its brokers know of it."""

    name: str
    change: Callable[[Client, int, str, int], int]
    parametric: bool


class Workload(NamedTuple):
    """Who is where, and the rates to try; `each` says whose rate it is."""

    name: str
    topology: Topology
    publishers: list[str]
    subscribers: list[str]
    types: int
    operators: tuple[str, ...]
    rates: tuple[int, ...]
    each: str
    seconds: float
    services_us: tuple[int, ...] = SERVICES_US

    def rate_of_one(self, rate: int) -> float:
        """Updates a second of one subscriber."""
        if self.each == "subscriber":
            return rate
        return rate * len(set(self.subscribers)) / len(self.subscribers)

    def routing(self, *, parametric: bool) -> RouterFactory:
        """The routers: a hierarchy for a tree, else general."""
        if self.topology.is_tree:
            return partial(Hierarchical, parametric=parametric)
        return partial(General, inner=partial(Acyclic, parametric=parametric))


def by_update(client: Client, key: int, _guard: str, value: int) -> int:
    """The parametric way."""
    client.update(key, x=value)
    return key


def subscribe_first(client: Client, key: int, guard: str, value: int) -> int:
    """Re-subscription without a gap. (siena's own rules for one identity stay out of the way: a
    filter with a variable stands beside others of its client.)
    """
    new = client.subscribe(guard, {"x": value})
    client.unsubscribe(key)
    return new


def unsubscribe_first(client: Client, key: int, guard: str, value: int) -> int:
    """Re-subscription without overlap."""
    client.unsubscribe(key)
    return client.subscribe(guard, {"x": value})


UPD: Final = Way("UPD", by_update, parametric=True)
RESUBSCRIPTIONS: Final = (
    Way("SUB, USUB", subscribe_first, parametric=False),
    Way("USUB, SUB", unsubscribe_first, parametric=False),
)
WAYS: Final = (UPD, *RESUBSCRIPTIONS)


class Point(NamedTuple):
    """One run: a way of changing values under one rate, with brokers of one speed."""

    workload: Workload
    rate: int
    way: Way
    service_us: int
    joined: bool
    """Whether batches that wait for a busy broker are joined."""


def points(*, quick: bool) -> list[Point]:
    """The runs of the sweep; a quick one has one service time and each workload's greatest rate."""
    found = []
    for workload in workloads():
        greatest = max(workload.rates)
        for rate in (greatest,) if quick else workload.rates:
            for service_us in (USUAL_SERVICE_US,) if quick else workload.services_us:
                is_usual = (rate, service_us) == (greatest, USUAL_SERVICE_US)
                for joined in (True, False) if is_usual else (True,):
                    found += [Point(workload, rate, way, service_us, joined) for way in WAYS]
    return found


def workloads() -> list[Workload]:
    """HTM, AT and scaling of parametric 5."""
    random = Randomness(6)
    mesh = connected_random(BROKERS, BROKERS, random)
    hierarchy = tree(BROKERS, 3)
    sources, ends = _far_apart(hierarchy)
    return [
        Workload(
            "HTM",
            mesh,
            publishers=[each for each in mesh.brokers for _ in range(10)],
            subscribers=[mesh.brokers[n % BROKERS] for n in range(100)],
            types=20,
            operators=(">=", ">=", "<=", "<=", "="),
            rates=(10, 30, 100),
            each="broker",
            seconds=2,
        ),
        Workload(
            "AT",
            hierarchy,
            publishers=[sources[n % len(sources)] for n in range(5)],
            subscribers=[ends[n % len(ends)] for n in range(150)],
            types=200,
            operators=("<=", ">=", "="),
            rates=(10, 100, 1000),
            each="broker",
            seconds=2,
        ),
        Workload(
            "scaling",
            mesh,
            publishers=[mesh.brokers[n % BROKERS] for n in range(100)],
            subscribers=[mesh.brokers[n % BROKERS] for n in range(150)],
            types=200,
            operators=("<=", ">=", "="),
            rates=(100, 1000),
            each="subscriber",
            seconds=1,
            services_us=(100, USUAL_SERVICE_US),
        ),
    ]


def _far_apart(topology: Topology) -> tuple[list[str], list[str]]:
    """Some brokers, and all that have at least three others between them and each of these."""
    source = topology.brokers[-1]
    far = [each for each, hops in _hops(topology, source).items() if hops >= 4]
    near = [
        each
        for each in topology.brokers
        if all(hops >= 4 for other, hops in _hops(topology, each).items() if other in far)
    ]
    return near, far


def _hops(topology: Topology, start: str) -> dict[str, int]:
    hops, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for edge in topology.edges:
            if here in edge:
                other = edge[1] if edge[0] == here else edge[0]
                if other not in hops:
                    hops[other] = hops[here] + 1
                    queue.append(other)
    return hops


class Swinger:
    """One subscriber and its subscription."""

    def __init__(self, client: Client, topic: int, operator: str, way: Way, seed: int) -> None:
        attribute = "segment" if operator == "=" else "value"
        self.guard = f"type = {topic} AND {attribute} {operator} :x"
        self.client = client
        self.topic = topic
        self.operator = operator
        self.way = way
        self.random = Randomness(seed)
        self.is_wide = False
        self.swings_us: list[int] = []
        self.key = client.subscribe(self.guard, {"x": self.value()})

    def value(self) -> int:
        """A value of the region it is in."""
        tremble = self.random.below(TREMBLE)
        if self.operator == "=":
            return (5 if self.is_wide else 0) + tremble % 2
        wide, narrow = (200, 800) if self.operator == ">=" else (800, 200)
        sign = 1 if self.operator == ">=" else -1
        return (wide if self.is_wide else narrow) + sign * tremble

    def is_new(self, event: Any) -> bool:
        """Whether an event is one that only the wide region matches."""
        return bool(200 + TREMBLE <= event["value"] <= 800 - TREMBLE)

    def update(self) -> None:
        """Tremble."""
        self.key = self.way.change(self.client, self.key, self.guard, self.value())

    def swing(self, now_us: int) -> None:
        """Go over to the other region."""
        self.is_wide = not self.is_wide
        if self.is_wide:
            self.swings_us.append(now_us)
        self.update()

    def delays_ms(self, end_us: int) -> tuple[list[float], int]:
        """From each swing until it was heard, or until the end; how many were not."""
        heard = [each.time_us for each in self.client.received if self.is_new(each.event)]
        found, missing = [], 0
        for start in self.swings_us:
            if start > end_us - SWING_MS * US_PER_MS // 2:
                continue  # too near the end to tell
            then = next((time for time in heard if time > start), None)
            missing += then is None
            found.append(((end_us if then is None else then) - start) / 1000)
        return found, missing


def run(point: Point) -> Row:
    """One way of changing values under one rate; what it cost."""
    workload, rate, way, service_us, joined = point
    network = Network.of(
        workload.topology,
        workload.routing(parametric=way.parametric),
        seed=2,
        link=Link(latency_ms=LATENCY_MS),
        client_ms=LATENCY_MS,
        service=SteadyService(service_us),
        coalescing=joined,
    )
    network.run()
    random = Randomness(8)
    swingers = []
    for number, broker in enumerate(workload.subscribers):
        topic = number if number < WATCHED else random.between(WATCHED, workload.types - 1)
        operators = workload.operators
        if number < WATCHED:
            operators = tuple(each for each in operators if each != "=")
        operator = operators[number % len(operators)]
        client = network.client(f"s{number}", broker)
        swingers.append(Swinger(client, topic, operator, way, number))
    publishers = [network.client(f"p{n}", at) for n, at in enumerate(workload.publishers)]
    network.run()
    _plan(network, workload, swingers, publishers, rate)
    before, start_us, spent = copy(network.costs), network.agenda.now_us, process_time()
    end_us = start_us + round(workload.seconds * 1_000_000)
    network.run(end_us / 1000)
    costs = network.costs
    delays, unheard = [], 0
    for swinger in swingers[:WATCHED]:
        found, missing = swinger.delays_ms(end_us)
        delays += found
        unheard += missing
    told = [sum((each.subscribes, each.updates, each.unsubscribes)) for each in (before, costs)]
    return {
        "workload": workload.name,
        "updates_per_s": rate,
        "service_ms": service_us / US_PER_MS,
        "joined": joined,
        "way": way.name,
        "delay_ms": round(mean(delays)),
        "median_ms": round(median(delays)),
        "unheard": f"{unheard}/{len(delays)}",
        "spurious": costs.spurious - before.spurious,
        "delivered": costs.delivered - before.delivered,
        "messages": told[1] - told[0],
        "steps": costs.steps - before.steps,
        "cpu_s": round(process_time() - spent, 1),
    }


def _plan(
    network: Network,
    workload: Workload,
    swingers: list[Swinger],
    publishers: list[Client],
    rate: int,
) -> None:
    """Put updates, swings and events on the clock."""
    random = Randomness(9)

    def every(period_ms: float, action: Callable[[], object]) -> None:
        def again() -> None:
            action()
            network.after(period_ms, again)

        network.after(period_ms * random.uniform(), again)

    for swinger in swingers:
        every(1000 / workload.rate_of_one(rate), swinger.update)
        every(SWING_MS, partial(_swing, network, swinger))
    draws = random.branch()
    for topic in range(WATCHED):
        every(1000 / WATCHED_EVENTS_PER_S, partial(_publish, publishers, draws, topic))
    every(1000 / OTHER_EVENTS_PER_S, partial(_publish, publishers, draws, None, workload.types))


def _swing(network: Network, swinger: Swinger) -> None:
    swinger.swing(network.agenda.now_us)


def _publish(
    publishers: list[Client], random: Randomness, topic: int | None, types: int = 0
) -> None:
    if topic is None:
        topic = random.between(WATCHED, types - 1)
    value = random.below(1000)
    event = {"type": topic, "value": value, "segment": value // 100}
    random.choice(publishers).publish(event)


def factors(rows: list[Row]) -> list[Row]:
    """Each re-subscription against the parametric way of the same workload and rate."""
    found = []
    for row in rows:
        if row["way"] not in {way.name for way in RESUBSCRIPTIONS}:
            continue
        (ours,) = (
            each
            for each in rows
            if each["way"] == UPD.name and all(each[name] == row[name] for name in PLACE)
        )
        many = max(row["spurious"], ours["spurious"]) >= FEW
        found.append(
            {
                **{name: row[name] for name in (*PLACE, "way")},
                "delay": _ratio(row["delay_ms"], ours["delay_ms"]),
                "unheard": f"{row['unheard']} : {ours['unheard']}",
                "spurious": _ratio(row["spurious"], ours["spurious"]) if many else None,
                "throughput": _ratio(ours["delivered"], row["delivered"]),
                "messages": _ratio(row["messages"], ours["messages"]),
            }
        )
    return found


PLACE: Final = ("workload", "updates_per_s", "service_ms", "joined")
"""The columns that say what two rows have in common."""


def _ratio(one: float, other: float) -> float:
    return round(one / max(other, 1), 2)
