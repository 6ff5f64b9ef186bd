"""Networks of sites as the transit-stub model draws them (siena 6).

The model is that of Zegura, Calvert and Bhattacharjee: a few transit domains carry what goes far,
and each transit site has stub domains that hang on it. A domain is a random graph, each two of its
sites linked with one probability, drawn again until it is connected. Sites lie on a plane, which
gives links their lengths. The numbers are those with which its authors' generator draws 100 sites:
a transit domain of 4, 3 stubs each, 8 sites a stub, no further links between domains.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import hypot, log
from typing import Final, TypeAlias

import msgspec

from palio.simulation.randomness import Randomness
from palio.simulation.topologies import Topology

Place: TypeAlias = tuple[float, float]
Pair: TypeAlias = tuple[int, int]

STUB_LINKED: Final = 0.42
"""The chance that two sites of a stub are linked."""

TRANSIT_LINKED: Final = 0.6
"""...and two of a transit domain, if it is as small as the generator's."""

TRANSIT_DEGREE: Final = 2.0
"""In large transit domains it is less: a site has about so many links, and the natural logarithm of
their number more, so that nearly nine in ten graphs are connected when they are first drawn."""

STUB_SIDE: Final = 100
"""How wide the square is in which the sites of a stub lie: ten times what the generator has, since
lengths are whole numbers here too."""

DOMAIN_SIDE: Final = 200
"""...those of a transit domain..."""

WHOLE_SIDE: Final = 20 * DOMAIN_SIDE
"""...and the transit domains, if there are several."""

_ORIGIN: Final[Place] = (0.0, 0.0)


class SiteNetwork(msgspec.Struct, frozen=True):
    """Sites, numbered from 0 with those of transit domains first, and their links with lengths."""

    size: int
    transits: int
    links: tuple[Pair, ...]
    lengths: tuple[int, ...]


def transit_chance(sites: int) -> float:
    """The chance that two sites of a transit domain of so many are linked.

    >>> transit_chance(4), round(transit_chance(20), 2)
    (0.6, 0.26)
    """
    return min(TRANSIT_LINKED, (TRANSIT_DEGREE + log(sites)) / max(1, sites - 1))


def draw_sites(
    random: Randomness, *, domains: int = 1, transits: int = 4, stubs: int = 3, stub_size: int = 8
) -> SiteNetwork:
    """A network of `domains` transit domains of `transits` sites, each with `stubs` stubs.

    >>> network = draw_sites(Randomness(1))
    >>> network.size, network.transits, min(network.lengths) >= 1
    (100, 4, True)
    """
    plan = _Plan()
    corners = _places(domains, WHOLE_SIDE, _ORIGIN, random)
    members = [plan.add(_places(transits, DOMAIN_SIDE, corner, random)) for corner in corners]
    for domain in members:
        plan.link(domain, _connected(transits, transit_chance(transits), random))
    for one, other in _connected(domains, TRANSIT_LINKED, random):
        plan.join(random.choice(members[one]), random.choice(members[other]))
    backbone = [site for domain in members for site in domain]
    for transit in backbone:
        for _ in range(stubs):
            places = _places(stub_size, STUB_SIDE, plan.places[transit], random)
            stub = plan.add(places)
            plan.join(transit, random.choice(stub))
            plan.link(stub, _connected(stub_size, STUB_LINKED, random))
    return SiteNetwork(
        len(plan.places), len(backbone), tuple(plan.links), tuple(map(plan.length, plan.links))
    )


def transit_stub(transits: int, stubs: int, stub_size: int, random: Randomness) -> Topology:
    """Brokers at the sites of one transit domain with so many stubs at each, without lengths."""
    sites = draw_sites(random, transits=transits, stubs=stubs, stub_size=stub_size)
    return Topology.of(sites.size, sites.links)


class _Plan:
    """Where sites lie and which are linked, while that is drawn."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.links: list[Pair] = []

    def add(self, places: Iterable[Place]) -> list[int]:
        """More sites; their numbers."""
        first = len(self.places)
        self.places += places
        return list(range(first, len(self.places)))

    def link(self, sites: list[int], pairs: Iterable[Pair]) -> None:
        """Links among some sites, given by their order."""
        for one, other in pairs:
            self.join(sites[one], sites[other])

    def join(self, one: int, other: int) -> None:
        """One link."""
        self.links.append((one, other))

    def length(self, link: Pair) -> int:
        """As the crow flies, and never nothing."""
        (x, y), (other_x, other_y) = (self.places[end] for end in link)
        return max(1, round(hypot(x - other_x, y - other_y)))


def _places(count: int, side: int, corner: Place, random: Randomness) -> list[Place]:
    x, y = corner
    return [(x + side * random.uniform(), y + side * random.uniform()) for _ in range(count)]


def _connected(size: int, chance: float, random: Randomness) -> list[Pair]:
    """A random graph, drawn again until there is a way from each site to each other one."""
    pairs = [(one, other) for one in range(size) for other in range(one + 1, size)]
    while True:
        links = [pair for pair in pairs if random.chance(chance)]
        if _is_connected(size, links):
            return links


def _is_connected(size: int, links: Iterable[Pair]) -> bool:
    near: list[list[int]] = [[] for _ in range(size)]
    for one, other in links:
        near[one].append(other)
        near[other].append(one)
    reached, waiting = {0}, [0]
    while waiting:
        for site in near[waiting.pop()]:
            if site not in reached:
                reached.add(site)
                waiting.append(site)
    return len(reached) == size
