"""Runs of the study of parametric subscriptions on the virtual network (parametric 5).

Every subscriber swings one bound between a narrow and a wide region, and trembles a little within
it with every update. How long it stays in a region bounds the delay that a run can tell: what comes
later is not an answer to this swing, so it counts as unheard. Some are *watched*: each of these
has a type of events of its own, with a steady stream, and a range of values, because one with `=`
hears few events and would measure the publishers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from statistics import mean
from typing import Any, Final, NamedTuple, TypeAlias

from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.general import General
from palio.routing.messages import Batch, Subscribe, Unsubscribe, Update
from palio.routing.protocol import Router
from palio.routing.trees import shortest_paths
from palio.simulation import Randomness, Topology, connected_random, tree
from palio_studies.simulator import Client, Link, Network, Service
from palio_studies.simulator.inbox import Envelope
from palio_studies.simulator.network import RouterFactory
from palio_studies.simulator.poset_selector import PosetSelector
from palio_studies.study import Point, Row

BROKERS: Final = 20

# --- ways to change a value ---


Change: TypeAlias = Callable[[Client, int, str, int], int]
"""Of a client, the key of a subscription, its guard and the new value: the key from then on."""


def by_update(client: Client, key: int, _guard: str, value: int) -> int:
    """The parametric way; brokers of the others know SUB and USUB only."""
    client.change(key, {"x": value})
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


UPD: Final = "UPD"
RESUBSCRIPTIONS: Final = ("SUB, USUB", "USUB, SUB")
WAYS: Final[Mapping[str, Change]] = {
    UPD: by_update,
    RESUBSCRIPTIONS[0]: subscribe_first,
    RESUBSCRIPTIONS[1]: unsubscribe_first,
}

# --- kinds of brokers ---

SIENA, LINEAR, RETE = "siena", "siena, linear UPD", "rete"
ENGINES: Final = (SIENA, LINEAR, RETE)

SIENA_FILTER_US: Final = 5
"""What the Siena of the paper takes for one filter of its poset: a request looks at all of them, an
event at those on which it is tried. With the 130 or so that a broker of the scaling workload has,
a request takes 0.65 ms, and 7.5 subscribers fill a broker with 100 re-subscriptions a second each:
where the paper says that Siena ends.
"""

UPDATE_FILTERS: Final = 4
"""Filters that Siena looks at for an UPD, however many it has: the paper finds a variable's filter
by a hash table, in O(1) (4.3), and reorders it if needed. So these are the filter itself, the ones
above and beneath it, and the summary with which the outcome is compared.
"""

RETE_REQUEST_US: Final = 70
"""...and what EventJava takes for a request: at ten times that rate it had lost half."""

RETE_EVENT_US: Final = 50
"""...and for an event, whatever filters there are: it delivered more than 9,000 a second to each
subscriber, so 110 is the most.
"""


class SteadyWork:
    """The same time for each request, and for each event, in one line or in two: EventJava has a
    network of events apart from its poset, and ran on machines of two processors.

    A request that ends what has never begun is no work: of re-subscriptions that waited and were
    joined, all but the last leave nothing else.
    """

    def __init__(self, request_us: int, event_us: int, *, lines: int) -> None:
        self._request_us = request_us
        self._event_us = event_us
        self._lines = lines
        self._keys: dict[tuple[str, str], set[int]] = {}

    def line(self, letter: Envelope) -> int:
        """See `Service`."""
        return int(isinstance(letter.message, RowParcel)) % self._lines

    def time_us(self, broker: str, letter: Envelope) -> int:
        """See `Service`."""
        if isinstance(letter.message, RowParcel):
            return self._event_us * self._looks(broker, letter.message)
        return self._request_us * self._changes(broker, letter)

    def _looks(self, broker: str, events: RowParcel) -> int:  # noqa: ARG002  # for Siena
        return len(events)

    def _change(self, broker: str, request: object) -> int:  # noqa: ARG002  # for Siena
        return 1

    def _changes(self, broker: str, letter: Envelope) -> int:
        """How much work a message means to a broker, if its turn has come."""
        message = letter.message
        if not isinstance(message, Batch):
            return self._change(broker, message)
        known = self._keys.setdefault((broker, letter.source), set())
        if message.fresh:
            known.clear()
        work = 0
        for request in message.requests:
            if isinstance(request, Subscribe):
                known.add(request.key)
            elif isinstance(request, Unsubscribe):
                if request.key not in known:
                    continue
                known.discard(request.key)
            work += self._change(broker, request)
        return work


class SienaService(SteadyWork):
    """One poset for everything, so one line: requests rearrange it, events walk it.

    SUB and USUB look at the whole poset. An UPD looks it up, as in the paper; or, `is_linear`, it
    costs as much as a SUB, which is how much the verdicts depend on that.
    """

    def __init__(self, *, is_linear: bool = False) -> None:
        super().__init__(SIENA_FILTER_US, SIENA_FILTER_US, lines=1)
        self._is_linear = is_linear
        self.posets: dict[str, PosetSelector] = {}

    def _looks(self, broker: str, events: RowParcel) -> int:
        return sum(max(1, self.posets[broker].tried(row)) for row in events.rows)

    def _change(self, broker: str, request: object) -> int:
        filters = max(1, len(self.posets[broker]))
        if isinstance(request, Update) and not self._is_linear:
            return min(UPDATE_FILTERS, filters)
        return filters


def broking(engine: str, load: Workload, *, parametric: bool) -> tuple[RouterFactory, Service]:
    """The brokers of a workload, one of `ENGINES`: their routers, and how long they work."""
    kind = Hierarchical if load.topology.is_tree else Acyclic
    siena = SienaService(is_linear=engine == LINEAR)

    def routing(name: str) -> Router:
        if engine in (SIENA, LINEAR):
            poset = siena.posets[name] = PosetSelector()
            router = kind(name, lambda: poset, parametric=parametric)
        else:
            router = kind(name, parametric=parametric)
        # A router of a hierarchy is one as it is, another within one for any graph.
        return router if load.topology.is_tree else General(router.name, lambda _: router)

    if engine in (SIENA, LINEAR):
        return routing, siena
    return routing, SteadyWork(RETE_REQUEST_US, RETE_EVENT_US, lines=2)


# --- workloads ---


class Workload(NamedTuple):
    """Who is where, and what they ask for; `each` says whose rate the updates are."""

    topology: Topology
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    types: int
    operators: tuple[str, ...]
    each: str = "broker"

    def rate_of_one(self, rate: float) -> float:
        """Updates a second of one subscriber."""
        if self.each == "subscriber":
            return rate
        return rate * len(set(self.subscribers)) / len(self.subscribers)


def workload(name: str, random: Randomness, *, subscribers: int = 0) -> Workload:
    """HTM, AT or scaling; `subscribers` in all, if not as many as usual."""
    if name == "AT":
        hierarchy = tree(BROKERS, 3)
        sources, ends = _far_apart(hierarchy)
        publishing, listening = _round(sources, 5), _round(ends, subscribers or 150)
        return Workload(hierarchy, publishing, listening, 200, ("<=", ">=", "="))
    mesh = connected_random(BROKERS, BROKERS, random)
    around = partial(_round, mesh.brokers)
    if name == "HTM":
        publishing, listening = around(10 * BROKERS), around(subscribers or 5 * BROKERS)
        return Workload(mesh, publishing, listening, 20, (">=", ">=", "<=", "<=", "="))
    publishing, listening = around(100), around(subscribers or 150)
    return Workload(mesh, publishing, listening, 200, ("<=", ">=", "="), "subscriber")


def _round(brokers: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(brokers[number % len(brokers)] for number in range(count))


def _far_apart(topology: Topology) -> tuple[list[str], list[str]]:
    """Some brokers, and all that have at least three others between them and each of these."""
    graph: dict[str, dict[str, int]] = {broker: {} for broker in topology.brokers}
    for one, other in topology.edges:
        graph[one][other] = graph[other][one] = 1
    hops = {broker: shortest_paths(graph, broker).distances for broker in topology.brokers}
    last = hops[topology.brokers[-1]]
    far = sorted((broker for broker in topology.brokers if last[broker] >= 4), key=last.__getitem__)
    near = [broker for broker in topology.brokers if all(hops[broker][end] >= 4 for end in far)]
    return near, far


# --- runs ---

LATENCY_MS: Final = 10
"""Of every link, a client's too: the paper delays both."""

WATCHED: Final = 12
"""Subscribers whose delay is taken."""

EVENTS_PER_S: Final = 600
WATCHED_SHARE: Final = 0.8
"""...of which so many are of the types that are watched."""

SWING_MS: Final = 4_000
WINDOW_S: Final = 9.0
"""Each subscriber widens once, or twice, after up to 4 s under load, and 4 s or more are left."""
US_PER_MS: Final = 1000
US_PER_S: Final = 1_000_000
TREMBLE: Final = 20
NARROW: Final = 200
WIDE: Final = 800
"""Of values from 0 to 999, a bound is near one of these: it lets a fifth through, or four."""

CROWD_SWINGS: Final = 1_000
"""With more subscribers than this only the watched ones swing: the others drive on."""


class AdaptationHeard(NamedTuple):
    """What a watched subscriber heard: from each swing to the wide region the time until the first
    event that only that matches, or, of the *unheard*, until it swung back or the window closed;
    events that it got twice; and of the *steady* ones, of the first half of the window, which each
    of its values matched, those that it missed.
    """

    delays_ms: list[float]
    unheard: int
    doubled: int
    missed: int
    steady: int


def delay_row(heard: Sequence[AdaptationHeard], window_s: float) -> Row:
    """The delays of all that are watched."""
    delays_ms = [delay for one in heard for delay in one.delays_ms]
    return {
        "delay_ms": mean(delays_ms or [1000 * window_s]),
        "swings": len(delays_ms),
        "unheard": sum(one.unheard for one in heard) / max(1, len(delays_ms)),
    }


class Swinger:
    """One subscriber and its subscription."""

    def __init__(self, client: Client, topic: int, operator: str, way: Change, seed: int) -> None:
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
        self.key = self.way(self.client, self.key, self.guard, self.value())

    def swing(self, now_us: int) -> None:
        """Go over to the other region."""
        self.is_wide = not self.is_wide
        if self.is_wide:
            self.swings_us.append(now_us)
        self.update()

    def heard(
        self,
        published: Mapping[tuple[str, int], Mapping[str, Any]],
        end_us: int,
        swing_ms: float,
    ) -> AdaptationHeard:
        """What came of its swings, and of the events that were published in the first half."""
        news = [each.time_us for each in self.client.received if self.is_new(each.event)]
        delays_ms, unheard = [], 0
        for start in self.swings_us:
            if start > end_us - swing_ms * US_PER_MS // 2:
                continue  # too near the end to tell
            close = min(end_us, start + round(swing_ms * US_PER_MS))
            then = next((time for time in news if start < time <= close), None)
            unheard += then is None
            delays_ms.append(((close if then is None else then) - start) / US_PER_MS)
        got = [(each.publisher, each.seq) for each in self.client.received]
        steady = [
            each
            for each, event in published.items()
            if event["type"] == self.topic and self.is_steady(event)
        ]
        known = set(got)
        missed = sum(each not in known for each in steady)
        return AdaptationHeard(delays_ms, unheard, len(got) - len(known), missed, len(steady))


class AdaptationStage:
    """A network with its clients, and what is published."""

    def __init__(self, point: Point) -> None:
        of = point.parameters
        random = Randomness(point.seed)
        self.load: Workload = workload(
            str(of["workload"]), random.branch(), subscribers=int(of["subscribers"])
        )
        way = str(of["way"])
        routing, service = broking(
            str(of["engine"]),
            self.load,
            parametric=way == UPD,
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
        self.swingers = self._swingers(WAYS[way], random.branch())
        self.publishers = [
            self.network.client(f"p{n}", at) for n, at in enumerate(self.load.publishers)
        ]
        self.network.run()
        self.published: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._numbers: Counter[str] = Counter()

    @property
    def watched(self) -> list[Swinger]:
        """The subscribers whose delay is taken."""
        return self.swingers[:WATCHED]

    def _swingers(self, way: Change, random: Randomness) -> list[Swinger]:
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

    def plan(self, updates_per_s: float, events_per_s: float, bundle: int, swing_ms: float) -> None:
        """Put updates, swings and events on the clock."""
        for swinger in self.swingers:
            self._every(1000 / self.load.rate_of_one(updates_per_s), swinger.update)
        swinging = self.watched if len(self.swingers) > CROWD_SWINGS else self.swingers
        for swinger in swinging:
            self._every(swing_ms, partial(self._swing, swinger))
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
        values = [random.below(1000) for _ in range(bundle)]
        events = [{"type": topic, "value": value, "segment": value // 100} for value in values]
        for event in events:
            self.published[publisher.name, self._numbers[publisher.name]] = event
            self._numbers[publisher.name] += 1
        publisher.publish(*events)


def run(point: Point) -> list[Row]:
    """What a way of changing values costs under one rate."""
    of = point.parameters
    stage = AdaptationStage(point)
    network = stage.network
    swing_ms = float(of["swing_ms"])
    stage.plan(float(of["updates_per_s"]), float(of["events_per_s"]), int(of["bundle"]), swing_ms)
    before, start_us, window_s = copy(network.costs), network.agenda.now_us, float(of["window_s"])
    end_us = start_us + round(window_s * US_PER_S)
    network.run((start_us + end_us) / 2 / US_PER_MS)
    early = dict(stage.published)
    network.run(end_us / US_PER_MS)
    costs = network.costs
    heard = [swinger.heard(early, end_us, swing_ms) for swinger in stage.watched]
    spurious, delivered = costs.spurious - before.spurious, costs.delivered - before.delivered
    steady = sum(each.steady for each in heard)
    return [
        {
            **delay_row(heard, window_s),
            "spurious_per_s": spurious / window_s,
            "spurious_share": spurious / max(1, spurious + delivered),
            "delivered_per_s": delivered / window_s,
            "missed": sum(each.missed for each in heard) / max(1, steady),
            "doubled": sum(each.doubled for each in heard),
        }
    ]
