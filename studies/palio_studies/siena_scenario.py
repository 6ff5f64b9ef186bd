"""One run of siena's study: sites, an architecture on them, applications, and what it all cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from palio.errors import InvalidInput
from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.simulation.randomness import Randomness
from palio_studies.siena_behaviour import Behaviour, InterestedParty, ObjectOfInterest
from palio_studies.siena_sites import LATENCY_MS, Architecture, Sites, lay
from palio_studies.siena_tally import CostTally
from palio_studies.simulator.clients import Client
from palio_studies.simulator.links import Link
from palio_studies.simulator.network import Network
from palio_studies.simulator.site_networks import draw_sites

__all__ = ["SIZES", "Crowd", "Interests", "OneKind", "Played", "SitePlan", "play", "sites_of"]

SIZES: Final[Mapping[int, tuple[int, int]]] = {100: (1, 4), 1_000: (4, 10), 10_000: (20, 20)}
"""By the number of sites, the transit domains and the sites of each; a transit site has three stubs
of eight sites, as in the generator's example of 100."""


class Interests(Protocol):
    """What objects publish and parties ask for."""

    def filter(self, party: int, random: Randomness) -> Filter:
        """What a party asks for."""

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """What an object of interest will publish."""

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """The object's notification of a number."""


class OneKind:
    """All objects publish one kind of event, and all parties want it, as in the paper."""

    def __init__(self) -> None:
        self._filter = parse_filter("kind = 1")
        self._advertisement = parse_advertisement("kind = 1 AND EXISTS number")

    def filter(self, party: int, random: Randomness) -> Filter:
        """See `Interests`."""
        del party, random
        return self._filter

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """See `Interests`."""
        del thing, random
        return self._advertisement

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """See `Interests`."""
        del thing, random
        return {"kind": 1, "number": number}


class SitePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: all but the seed."""

    architecture: Architecture
    objects: int
    parties: int
    behaviour: Behaviour
    sites: int = 100


class Played(msgspec.Struct, frozen=True):
    """A run that is over."""

    sites: Sites
    network: Network
    tally: CostTally
    objects: list[ObjectOfInterest]
    parties: list[InterestedParty]

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


def sites_of(size: int, random: Randomness) -> Sites:
    """A network of so many sites, as the model draws it."""
    if size not in SIZES:
        known = ", ".join(map(str, SIZES))
        raise InvalidInput(f"no network of {size} sites is planned; choose one of {known}")
    domains, transits = SIZES[size]
    return Sites(draw_sites(random, domains=domains, transits=transits))


def play(plan: SitePlan, seed: int, interests: Interests | None = None) -> Played:
    """Run it. The sites, and what is where, are the same for all architectures of a seed."""
    random = Randomness(seed)
    sites = sites_of(plan.sites, random.branch())
    places, moods, tastes = random.branch(), random.branch(), random.branch()
    network = lay(plan.architecture, sites, seed=seed)
    tally = CostTally(sites)
    network.on_crossing = tally.crossed
    what = interests or OneKind()
    crowd = Crowd(network, sites, tally, places)
    objects = [
        ObjectOfInterest(
            network,
            crowd.client(f"o{number}"),
            plan.behaviour,
            moods.branch(),
            advertisement=what.advertisement(number, tastes),
            events=_Events(what, number, tastes.branch(), tally),
        )
        for number in range(plan.objects)
    ]
    parties = [
        InterestedParty(
            network,
            crowd.client(f"p{number}"),
            plan.behaviour,
            filter=what.filter(number, tastes),
            taken=tally.taken,
        )
        for number in range(plan.parties)
    ]
    network.run()
    return Played(sites, network, tally, objects, parties)


class _Events:
    """The notifications of an object, which the tally learns of as they are made."""

    def __init__(
        self, interests: Interests, thing: int, random: Randomness, tally: CostTally
    ) -> None:
        self._interests = interests
        self._thing = thing
        self._random = random
        self._tally = tally

    def __call__(self, number: int) -> Mapping[str, Any]:
        self._tally.published(f"o{self._thing}", number)
        return self._interests.event(self._thing, number, self._random)


class Crowd:
    """Clients at random sites, each with the server of its site; or with the only one."""

    def __init__(
        self, network: Network, sites: Sites, tally: CostTally, places: Randomness
    ) -> None:
        self._network = network
        self._sites = sites
        self._tally = tally
        self._places = places

    def client(self, name: str) -> Client:
        """One more."""
        site = self._places.choice(self._sites.names)
        if site in self._network.routers:
            return self._network.client(name, site)
        way = self._sites.way(site)
        self._tally.remote(name, way)
        links = [
            Link(latency_ms=LATENCY_MS, price=self._sites.graph[one][other]) for one, other in way
        ]
        return self._network.client(name, self._sites.centre, links)
