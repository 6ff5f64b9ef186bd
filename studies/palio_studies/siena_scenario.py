"""Runs of siena's study: who is at which site, what they publish and ask for, and what comes of it.

In `play` objects and parties come and go, as in the paper. In `flow` all have come to rest before
notifications are published at a steady rate: so what links carry is notifications alone, and how
long these take depends on the rate and on what a link can carry.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from palio.errors import InvalidInput
from palio.language.parsing import parse_advertisement, parse_filter, parse_pattern
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Monitor, Occurrence, Pattern
from palio.model.row_parcels import RowParcel
from palio.simulation.agenda import US
from palio.simulation.randomness import Randomness
from palio_studies.siena_sites import LATENCY_MS, Architecture, CostClass, CostTally, Sites, lay
from palio_studies.simulator.clients import Client, Delivery
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import START, Network, size_of
from palio_studies.simulator.site_networks import draw_sites

SIZES: Final[Mapping[int, tuple[int, int]]] = {100: (1, 4), 1_000: (4, 10), 10_000: (20, 20)}
"""By the number of sites, the transit domains and the sites of each; a transit site has three stubs
of eight sites, as in the generator's example of 100."""

KINDS: Final = 10
VALUES: Final = 100
"""Of an event's value, and of the least that a party wants."""

NOTIFICATION_BYTES: Final = size_of(RowParcel("o", [{"kind": 1, "value": 1}]))
"""Of a notification with a kind and a value."""


# --- what is published and wanted ---


class Interests:
    """What objects publish and parties ask for: one kind of event, as in the paper."""

    def filter(self, random: Randomness) -> Filter:
        """The filter of the next party."""
        del random
        return parse_filter("kind = 1")

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """What the object of this number will publish."""
        del thing, random
        return parse_advertisement("kind = 1 AND EXISTS number")

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """The notification of this number of an object."""
        del thing, random
        return {"kind": 1, "number": number}


class ManyKinds(Interests):
    """One of ten kinds, and values from some bound on. The kind of rank r is drawn in proportion
    to r ** -skew: with 0 all alike.

    >>> print(ManyKinds(0.0).filter(Randomness(1)))
    kind = 5 AND value >= 95
    """

    def __init__(self, skew: float) -> None:
        self._bounds = list(accumulate(rank**-skew for rank in range(1, KINDS + 1)))
        self._kinds: dict[int, int] = {}
        """By object, the kind that it publishes."""

    def filter(self, random: Randomness) -> Filter:
        """Of a kind by chance."""
        return parse_filter(f"kind = {self._kind(random)} AND value >= {random.below(VALUES)}")

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """Of a kind by chance, which the object keeps to."""
        kind = self._kinds[thing] = self._kind(random)
        return parse_advertisement(f"kind = {kind} AND EXISTS value")

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """Of the object's kind, with a value by chance."""
        del number
        return {"kind": self._kinds[thing], "value": random.below(VALUES)}

    def _kind(self, random: Randomness) -> int:
        return bisect(self._bounds, random.uniform() * self._bounds[-1])


class ManySequences(Interests):
    """Patterns: each object publishes values of a kind of its own, and a party wants sequences of
    values from some bounds on, of one object or of several in turn.

    >>> print(ManySequences(objects=3, sources=2, steps=3).pattern(Randomness(1)))
    kind = 0 AND value >= 14 THEN kind = 2 AND value >= 94 THEN kind = 0 AND value >= 31
    """

    def __init__(self, *, objects: int, sources: int, steps: int) -> None:
        self._objects = range(objects)
        self._sources = sources
        self._steps = steps

    def pattern(self, random: Randomness) -> Pattern:
        """The pattern of the next party."""
        kinds = random.sample(self._objects, self._sources)
        steps = [
            f"kind = {kinds[step % len(kinds)]} AND value >= {random.below(VALUES)}"
            for step in range(self._steps)
        ]
        return parse_pattern(" THEN ".join(steps))

    def filter(self, random: Randomness) -> Filter:
        """All that any step of a pattern wants."""
        return self.pattern(random).any_step

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """Of the object's own kind."""
        del random
        return parse_advertisement(f"kind = {thing} AND EXISTS value")

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """Of the object's own kind, with a value by chance."""
        del number
        return {"kind": thing, "value": random.below(VALUES)}


# --- sites and clients ---


def sites_of(size: int, random: Randomness) -> Sites:
    """A network of so many sites, as the model draws it."""
    if size not in SIZES:
        known = ", ".join(map(str, SIZES))
        raise InvalidInput(f"no network of {size} sites is planned; choose one of {known}")
    domains, transits = SIZES[size]
    return Sites(draw_sites(random, domains=domains, transits=transits))


class _Scene:
    """Sites with servers at rest, and clients at random sites. All that is random is the same for
    all architectures of a seed.
    """

    def __init__(
        self, architecture: Architecture, sites: int, seed: int, bytes_per_ms: float | None = None
    ) -> None:
        random = Randomness(seed)
        self.sites = sites_of(sites, random.branch())
        self._places, self.moods, self.tastes = (random.branch() for _ in range(3))
        self.network = lay(architecture, self.sites, seed=seed, bytes_per_ms=bytes_per_ms)
        self.tally = CostTally(self.sites)
        self.network.on_crossing = self.tally.crossed

    def client(self, name: str) -> Client:
        """One more, with the server of its site; or with the only one, over the links between."""
        site = self._places.choice(self.sites.names)
        if site in self.network.routers:
            return self.network.client(name, site)
        way = self.sites.way(site)
        self.tally.remote(name, way)
        prices = [self.sites.graph[one][other] for one, other in way]
        links = [Link(latency_ms=LATENCY_MS, price=price) for price in prices]
        return self.network.client(name, self.sites.centre, links)

    def publish(self, client: Client, number: int, event: Mapping[str, Any]) -> int:
        """Publish a client's notification of a number; when is returned."""
        self.tally.published(client.name, number)
        client.publish(event)
        return self.network.agenda.now_us


# --- applications that come and go ---


class SitePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A run with applications that come and go (siena 6): all but the seed.

    An object repeats m times (advertise, publish n times, unadvertise), a party repeats p times
    (subscribe, receive q times, unsubscribe). All begin at once, and nothing but publications takes
    time.
    """

    architecture: Architecture
    objects: int
    parties: int
    sites: int = 100
    m: int
    n: int
    p: int
    q: int
    gap_ms: float = 1000.0
    """The mean time between publications of one object, a Poisson process."""


class _Object:
    """An object of interest: a client that publishes, and advertises what it will publish."""

    def __init__(self, number: int, scene: _Scene, plan: SitePlan, interests: Interests) -> None:
        self.client = scene.client(f"o{number}")
        self.requests = 0
        self.published_us: list[int] = []
        """When each notification was published."""
        self._number = number
        self._scene = scene
        self._plan = plan
        self._interests = interests
        self._mood = scene.moods.branch()
        self._advertisement = interests.advertisement(number, scene.tastes)
        self._taste = scene.tastes.branch()
        self._rounds = 0
        self._key = 0
        scene.network.after(0, self._begin)

    def _begin(self) -> None:
        self._key = self.client.advertise(self._advertisement)
        self._rounds += 1
        self.requests += 1
        self._wait()

    def _wait(self) -> None:
        self._scene.network.after(self._mood.exponential(self._plan.gap_ms), self._publish)

    def _publish(self) -> None:
        number = len(self.published_us)
        event = self._interests.event(self._number, number, self._taste)
        self.published_us.append(self._scene.publish(self.client, number, event))
        self.requests += 1
        if len(self.published_us) < self._rounds * self._plan.n:
            self._wait()
            return
        self.client.unadvertise(self._key)
        self.requests += 1
        if self._rounds < self._plan.m:
            self._begin()


class _Party:
    """An interested party: it subscribes, waits for some notifications, unsubscribes, and so on."""

    def __init__(self, number: int, scene: _Scene, plan: SitePlan, interests: Interests) -> None:
        self.client = scene.client(f"p{number}")
        self.requests = 0
        self.subscribed = 0
        self._scene = scene
        self._plan = plan
        self._filter = interests.filter(scene.tastes)
        self._missing = 0
        self._key = 0
        self.client.on_delivery = self._receive
        if plan.p:
            scene.network.after(0, self._subscribe)

    def _subscribe(self) -> None:
        self._key = self.client.subscribe(self._filter)
        self.requests += 1
        self.subscribed += 1
        self._missing = self._plan.q

    def _receive(self, delivery: Delivery) -> None:
        self._scene.tally.taken(delivery)
        self._missing -= 1
        if not self._missing:
            self._scene.network.after(0, self._unsubscribe)

    def _unsubscribe(self) -> None:
        self.client.unsubscribe(self._key)
        self.requests += 1
        if self.subscribed < self._plan.p:
            self._subscribe()


class Played(NamedTuple):
    """A run that is over."""

    sites: Sites
    network: Network
    tally: CostTally
    objects: list[_Object]
    parties: list[_Party]

    @property
    def requests(self) -> int:
        """How often a service was asked for: every advertise, publish, subscribe and so on."""
        asked = sum(each.requests for each in self.objects)
        return asked + sum(each.requests for each in self.parties)

    @property
    def published(self) -> int:
        """Notifications of all objects."""
        return sum(len(each.published_us) for each in self.objects)

    @property
    def subscribed(self) -> int:
        """Subscriptions of all parties."""
        return sum(each.subscribed for each in self.parties)


def play(plan: SitePlan, seed: int, interests: Interests | None = None) -> Played:
    """Run it. The sites, and what is where, are the same for all architectures of a seed."""
    scene = _Scene(plan.architecture, plan.sites, seed)
    wanted = interests or Interests()
    objects = [_Object(number, scene, plan, wanted) for number in range(plan.objects)]
    parties = [_Party(number, scene, plan, wanted) for number in range(plan.parties)]
    scene.network.run()
    return Played(scene.sites, scene.network, scene.tally, objects, parties)


# --- a steady flow ---


class SteadyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A run in which nobody comes or goes: all but the seed."""

    architecture: Architecture
    objects: int
    parties: int
    publications: int
    """Of all objects together."""
    rate: float
    """Publications a second, of all objects together."""
    capacity: float | None = None
    """Notifications a second that a direction of a link carries; None for no limit."""
    sites: int = 100


Query: TypeAlias = Callable[[Client, Randomness], object]
"""What a party does: it subscribes to something."""


class BusiestLink(NamedTuple):
    """The direction of a link that most notifications crossed."""

    ends: tuple[str, str]
    share: float
    """What came for it while notifications were published, of what it can carry: above 1 they
    wait, longer and longer."""


class Flow(NamedTuple):
    """A run that is over."""

    plan: SteadyPlan
    sites: Sites
    network: Network
    tally: CostTally
    parties: list[Client]
    published_us: dict[tuple[str, int], int]
    """By publisher and number, when each notification was published."""

    @property
    def latencies_ms(self) -> list[float]:
        """How long each notification took to each party that took it, the shortest first."""
        return sorted(
            (each.time_us - self.published_us[each.publisher, each.seq]) / 1000
            for party in self.parties
            for each in party.received
        )

    @property
    def seconds(self) -> float:
        """From the first publication to the last."""
        times = self.published_us.values()
        return (max(times) - min(times)) / US

    @property
    def busiest_link(self) -> BusiestLink:
        """Of a run with a capacity and two publications or more."""
        crossed = self.tally.by_direction(CostClass.NOTIFICATION)
        ends = max(crossed, key=lambda link: (crossed[link], link))
        assert self.plan.capacity is not None
        return BusiestLink(ends, crossed[ends] / self.seconds / self.plan.capacity)


def flow(plan: SteadyPlan, seed: int, interests: Interests, ask: Query) -> Flow:
    """Run it: each notification is published by any object, with Poisson gaps."""
    bytes_per_ms = None if plan.capacity is None else plan.capacity * NOTIFICATION_BYTES / 1000
    scene = _Scene(plan.architecture, plan.sites, seed, bytes_per_ms)
    network, random = scene.network, scene.moods
    objects = [scene.client(f"o{number}") for number in range(plan.objects)]
    parties = [scene.client(f"p{number}") for number in range(plan.parties)]
    for number, client in enumerate(objects):
        client.advertise(interests.advertisement(number, scene.tastes))
    network.run()
    for client in parties:
        ask(client, scene.tastes)
    network.run()
    counts = [0] * plan.objects
    published_us: dict[tuple[str, int], int] = {}

    def publish() -> None:
        thing = random.below(plan.objects)
        client, number = objects[thing], counts[thing]
        counts[thing] += 1
        event = interests.event(thing, number, random)
        published_us[client.name, number] = scene.publish(client, number, event)
        if len(published_us) < plan.publications:
            network.after(random.exponential(1000 / plan.rate), publish)

    network.after(0, publish)
    network.run()
    return Flow(plan, scene.sites, network, scene.tally, parties, published_us)


def found_by_parties(run: Flow, patterns: list[Pattern]) -> int:
    """How often the patterns of parties occur in the events that each of them received."""
    found = 0
    for party, pattern in zip(run.parties, patterns, strict=True):
        taken = [
            Occurrence(
                START + timedelta(microseconds=run.published_us[each.publisher, each.seq]),
                each.publisher,
                each.seq,
                each.event,
            )
            for each in party.received
        ]
        monitor = Monitor(pattern)
        found += len(monitor.push(taken)) + len(monitor.flush())
    return found
