"""Runs of siena's study: who is at which site, what they publish and ask for, and what comes of it.

In `play` objects and parties come and go, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from palio.errors import InvalidInput
from palio.language.parsing import parse_advertisement, parse_filter
from palio.simulation.randomness import Randomness
from palio_studies.siena_sites import LATENCY_MS, Architecture, CostTally, Sites, lay
from palio_studies.simulator.clients import Client, Delivery
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import Network
from palio_studies.simulator.site_networks import draw_sites

SIZES: Final[Mapping[int, tuple[int, int]]] = {100: (1, 4), 1_000: (4, 10), 10_000: (20, 20)}
"""By the number of sites, the transit domains and the sites of each; a transit site has three stubs
of eight sites, as in the generator's example of 100."""


FILTER: Final = parse_filter("kind = 1")
"""What every party asks for: there is one kind of event, as in the paper."""

ADVERTISEMENT: Final = parse_advertisement("kind = 1 AND EXISTS number")


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

    def __init__(self, architecture: Architecture, sites: int, seed: int) -> None:
        random = Randomness(seed)
        self.sites = sites_of(sites, random.branch())
        self._places, self.moods = (random.branch() for _ in range(2))
        self.network = lay(architecture, self.sites, seed=seed)
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

    def __init__(self, number: int, scene: _Scene, plan: SitePlan) -> None:
        self.client = scene.client(f"o{number}")
        self.requests = 0
        self.published_us: list[int] = []
        """When each notification was published."""
        self._scene = scene
        self._plan = plan
        self._mood = scene.moods.branch()
        self._rounds = 0
        self._key = 0
        scene.network.after(0, self._begin)

    def _begin(self) -> None:
        self._key = self.client.advertise(ADVERTISEMENT)
        self._rounds += 1
        self.requests += 1
        self._wait()

    def _wait(self) -> None:
        self._scene.network.after(self._mood.exponential(self._plan.gap_ms), self._publish)

    def _publish(self) -> None:
        self.client.publish({"kind": 1, "number": len(self.published_us)})
        self.published_us.append(self._scene.network.agenda.now_us)
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

    def __init__(self, number: int, scene: _Scene, plan: SitePlan) -> None:
        self.client = scene.client(f"p{number}")
        self.requests = 0
        self.subscribed = 0
        self._scene = scene
        self._plan = plan
        self._missing = 0
        self._key = 0
        self.client.on_delivery = self._receive
        if plan.p:
            scene.network.after(0, self._subscribe)

    def _subscribe(self) -> None:
        self._key = self.client.subscribe(FILTER)
        self.requests += 1
        self.subscribed += 1
        self._missing = self._plan.q

    def _receive(self, _: Delivery) -> None:
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


def play(plan: SitePlan, seed: int) -> Played:
    """Run it. The sites, and what is where, are the same for all architectures of a seed."""
    scene = _Scene(plan.architecture, plan.sites, seed)
    objects = [_Object(number, scene, plan) for number in range(plan.objects)]
    parties = [_Party(number, scene, plan) for number in range(plan.parties)]
    scene.network.run()
    return Played(scene.sites, scene.network, scene.tally, objects, parties)
