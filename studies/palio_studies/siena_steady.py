"""A run of siena's study in which nobody comes or goes.

Objects advertise and parties ask. When all of that has come to rest, notifications are published at
a steady rate, by chance (Poisson), each by any object. So what links carry is notifications alone,
and how long these take depends on the rate and on what a link can carry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from palio.model.row_parcels import RowParcel
from palio.simulation.agenda import US
from palio.simulation.randomness import Randomness
from palio_studies.siena_scenario import Crowd, Interests, sites_of
from palio_studies.siena_sites import Architecture, Sites, lay
from palio_studies.siena_tally import CostClass, CostTally
from palio_studies.simulator.clients import Client
from palio_studies.simulator.network import Network, size_of

__all__ = ["NOTIFICATION_BYTES", "Ask", "BusiestLink", "Flow", "SteadyPlan", "busiest_link", "flow"]

NOTIFICATION_BYTES: Final = size_of(RowParcel("o", [{"kind": 1, "value": 1}]))
"""Of a notification with a kind and a value."""

Ask: TypeAlias = Callable[[Client, int, Randomness], object]
"""What a party does, which has a number: it subscribes to something."""


class SteadyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: all but the seed."""

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


class Flow(msgspec.Struct, frozen=True):
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


class BusiestLink(msgspec.Struct, frozen=True):
    """The direction of a link that most notifications crossed."""

    ends: tuple[str, str]
    share: float
    """What came for it while notifications were published, of what it can carry: above 1 they
    wait, longer and longer."""


def flow(plan: SteadyPlan, seed: int, interests: Interests, ask: Ask) -> Flow:
    """Run it. Sites, places and what is published are the same for all architectures of a seed."""
    random = Randomness(seed)
    sites = sites_of(plan.sites, random.branch())
    places, moods, tastes = random.branch(), random.branch(), random.branch()
    bytes_per_ms = None if plan.capacity is None else plan.capacity * NOTIFICATION_BYTES / 1000
    network = lay(plan.architecture, sites, seed=seed, bytes_per_ms=bytes_per_ms)
    tally = CostTally(sites)
    network.on_crossing = tally.crossed
    crowd = Crowd(network, sites, tally, places)
    objects = [crowd.client(f"o{number}") for number in range(plan.objects)]
    parties = [crowd.client(f"p{number}") for number in range(plan.parties)]
    for number, client in enumerate(objects):
        client.advertise(interests.advertisement(number, tastes))
    network.run()
    for number, client in enumerate(parties):
        ask(client, number, tastes)
    network.run()
    stream = _Stream(plan, network, tally, objects, interests, moods)
    network.after(0, stream.publish)
    network.run()
    return Flow(plan, sites, network, tally, parties, stream.published_us)


def busiest_link(run: Flow) -> BusiestLink:
    """Of a run with a capacity and two publications or more."""
    crossed = run.tally.by_direction(CostClass.NOTIFICATION)
    ends = max(crossed, key=lambda link: (crossed[link], link))
    assert run.plan.capacity is not None
    return BusiestLink(ends, crossed[ends] / run.seconds / run.plan.capacity)


class _Stream:
    """Publishes one notification after the other."""

    def __init__(
        self,
        plan: SteadyPlan,
        network: Network,
        tally: CostTally,
        objects: list[Client],
        interests: Interests,
        random: Randomness,
    ) -> None:
        self.published_us: dict[tuple[str, int], int] = {}
        self._plan = plan
        self._network = network
        self._tally = tally
        self._objects = objects
        self._interests = interests
        self._random = random
        self._counts = [0] * len(objects)

    def publish(self) -> None:
        """The next one, and the one after it later."""
        thing = self._random.below(len(self._objects))
        client, number = self._objects[thing], self._counts[thing]
        self._counts[thing] += 1
        self.published_us[client.name, number] = self._network.agenda.now_us
        self._tally.published(client.name, number)
        client.publish(self._interests.event(thing, number, self._random))
        if len(self.published_us) < self._plan.publications:
            self._network.after(self._random.exponential(1000 / self._plan.rate), self.publish)
