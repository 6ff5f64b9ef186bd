"""One run of the study of parametric subscriptions on the virtual network (parametric 5).

Every subscriber swings one bound between a narrow and a wide region, and trembles a little within
it with every update. Some are *watched*: each of these has a type of events of its own, with a
steady stream, and a range of values, because one with `=` hears few events and would measure the
publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from statistics import mean
from typing import Any, Final, NamedTuple

from palio.simulation import Randomness
from palio_studies.parametric_workloads import WAYS, Way, Workload, broking, workload
from palio_studies.simulator import Client, Link, Network
from palio_studies.study import Point, Row

__all__ = [
    "CROWD_SWINGS",
    "EVENTS_PER_S",
    "LATENCY_MS",
    "SWING_MS",
    "WATCHED",
    "WINDOW_S",
    "AdaptationHeard",
    "Swinger",
    "run",
]

LATENCY_MS: Final = 10
"""Of every link, a client's too: the paper delays both."""

WATCHED: Final = 12
"""Subscribers whose delay is taken."""

EVENTS_PER_S: Final = 600
WATCHED_SHARE: Final = 0.8
"""...of which so many are of the types that are watched."""

SWING_MS: Final = 400
WINDOW_S: Final = 2.0
US_PER_MS: Final = 1000
US_PER_S: Final = 1_000_000
TREMBLE: Final = 20
NARROW: Final = 200
WIDE: Final = 800
"""Of values from 0 to 999, a bound is near one of these: it lets a fifth through, or four."""

CROWD_SWINGS: Final = 1_000
"""With more subscribers than this only the watched ones swing: the others drive on."""


class AdaptationHeard(NamedTuple):
    """What a watched subscriber heard."""

    delays_ms: list[float]
    """From each swing to the wide region until the first event that only that matches, or until
    the window closed."""
    unheard: int
    """Swings of which the latter is true."""
    doubled: int
    """Events that it got twice."""
    missed: int
    """Of the `steady` ones, those that it did not get."""
    steady: int
    """Events that each of its values matched, of the first half of the window."""


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
        if self.operator == ">=":
            return (NARROW if self.is_wide else WIDE) + tremble
        return (WIDE if self.is_wide else NARROW) - tremble

    def is_new(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is one that every value of the wide region matches, and no other."""
        return bool(NARROW + TREMBLE <= event["value"] < WIDE - TREMBLE)

    def is_steady(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is one that every value of both regions matches."""
        value: int = event["value"]
        return value >= WIDE + TREMBLE if self.operator == ">=" else value <= NARROW - TREMBLE

    def update(self) -> None:
        """Tremble."""
        self.key = self.way.change(self.client, self.key, self.guard, self.value())

    def swing(self, now_us: int) -> None:
        """Go over to the other region."""
        self.is_wide = not self.is_wide
        if self.is_wide:
            self.swings_us.append(now_us)
        self.update()

    def heard(
        self, published: Mapping[tuple[str, int], Mapping[str, Any]], end_us: int
    ) -> AdaptationHeard:
        """What came of its swings, and of the events that were published in the first half."""
        news = [each.time_us for each in self.client.received if self.is_new(each.event)]
        delays, unheard = [], 0
        for start in self.swings_us:
            if start > end_us - SWING_MS * US_PER_MS // 2:
                continue  # too near the end to tell
            then = next((time for time in news if time > start), None)
            unheard += then is None
            delays.append(((end_us if then is None else then) - start) / US_PER_MS)
        got = [(each.publisher, each.seq) for each in self.client.received]
        steady = [
            each
            for each, event in published.items()
            if event["type"] == self.topic and self.is_steady(event)
        ]
        known = set(got)
        missed = sum(each not in known for each in steady)
        return AdaptationHeard(delays, unheard, len(got) - len(known), missed, len(steady))


class AdaptationStage:
    """A network with its clients, and what is published."""

    def __init__(self, point: Point) -> None:
        of = point.parameters
        random = Randomness(point.seed)
        self.load: Workload = workload(
            str(of["workload"]), random.branch(), subscribers=int(of["subscribers"])
        )
        way = WAYS[str(of["way"])]
        routing, service = broking(
            str(of["engine"]),
            self.load,
            parametric=way.parametric,
            service_us=round(float(of["service_ms"]) * US_PER_MS),
        )
        self.network = Network.of(
            self.load.topology,
            routing,
            seed=point.seed,
            link=Link(latency_ms=LATENCY_MS),
            service=service,
            client_ms=LATENCY_MS,
            coalescing=bool(of["joined"]),
        )
        self.network.run()
        self.random = random.branch()
        self.swingers = self._swingers(way, random.branch())
        self.publishers = [
            self.network.client(f"p{n}", at) for n, at in enumerate(self.load.publishers)
        ]
        self.network.run()
        self.published: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._numbers: dict[str, int] = {}

    @property
    def watched(self) -> list[Swinger]:
        """The subscribers whose delay is taken."""
        return self.swingers[:WATCHED]

    def _swingers(self, way: Way, random: Randomness) -> list[Swinger]:
        load, found = self.load, []
        ranges = tuple(each for each in load.operators if each != "=")
        for number, broker in enumerate(load.subscribers):
            if number < WATCHED:
                topic, operator = number, ranges[number % len(ranges)]
            else:
                topic = random.between(WATCHED, load.types - 1)
                operator = load.operators[number % len(load.operators)]
            client = self.network.client(f"s{number}", broker)
            found.append(Swinger(client, topic, operator, way, random.below(1 << 30)))
        return found

    def plan(self, updates_per_s: float, events_per_s: float, bundle: int) -> None:
        """Put updates, swings and events on the clock."""
        for swinger in self.swingers:
            self._every(1000 / self.load.rate_of_one(updates_per_s), swinger.update)
        swinging = self.watched if len(self.swingers) > CROWD_SWINGS else self.swingers
        for swinger in swinging:
            self._every(SWING_MS, partial(self._swing, swinger))
        watched_gap = 1000 * bundle * WATCHED / (events_per_s * WATCHED_SHARE)
        for topic in range(WATCHED):
            self._every(watched_gap, partial(self._publish, topic, bundle))
        other_gap = 1000 * bundle / (events_per_s * (1 - WATCHED_SHARE))
        self._every(other_gap, partial(self._publish, None, bundle))

    def _every(self, period_ms: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.network.after(period_ms, again)

        self.network.after(period_ms * self.random.uniform(), again)

    def _swing(self, swinger: Swinger) -> None:
        swinger.swing(self.network.agenda.now_us)

    def _publish(self, topic: int | None, bundle: int) -> None:
        """Of one type, so many events at once."""
        random = self.random
        if topic is None:
            topic = random.between(WATCHED, self.load.types - 1)
        publisher = random.choice(self.publishers)
        events = []
        for _ in range(bundle):
            value = random.below(1000)
            events.append({"type": topic, "value": value, "segment": value // 100})
        number = self._numbers.get(publisher.name, 0)
        for place, event in enumerate(events, number):
            self.published[publisher.name, place] = event
        self._numbers[publisher.name] = number + bundle
        publisher.publish(*events)


def run(point: Point) -> list[Row]:
    """What a way of changing values costs under one rate."""
    of = point.parameters
    stage = AdaptationStage(point)
    network = stage.network
    window_s = float(of["window_s"])
    stage.plan(float(of["updates_per_s"]), float(of["events_per_s"]), int(of["bundle"]))
    before, start_us = copy(network.costs), network.agenda.now_us
    end_us = start_us + round(window_s * US_PER_S)
    network.run((start_us + end_us) / 2 / US_PER_MS)
    early = dict(stage.published)
    network.run(end_us / US_PER_MS)
    costs = network.costs
    heard = [swinger.heard(early, end_us) for swinger in stage.watched]
    delays = [each for one in heard for each in one.delays_ms]
    spurious = costs.spurious - before.spurious
    delivered = costs.delivered - before.delivered
    requests = [each.subscribes + each.updates + each.unsubscribes for each in (before, costs)]
    steady = sum(each.steady for each in heard)
    return [
        {
            "delay_ms": mean(delays),
            "swings": len(delays),
            "unheard": sum(each.unheard for each in heard) / len(delays),
            "spurious_per_s": spurious / window_s,
            "spurious_share": spurious / max(1, spurious + delivered),
            "delivered_per_s": delivered / window_s,
            "requests_per_s": (requests[1] - requests[0]) / window_s,
            "missed": sum(each.missed for each in heard) / max(1, steady),
            "doubled": sum(each.doubled for each in heard),
        }
    ]
