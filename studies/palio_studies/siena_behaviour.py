"""What the applications of siena's study do: objects of interest, and interested parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.simulation.randomness import Randomness
from palio_studies.simulator.clients import Client, Delivery
from palio_studies.simulator.network import Network

__all__ = ["Behaviour", "InterestedParty", "ObjectOfInterest"]


class Behaviour(msgspec.Struct, frozen=True):
    """How often each does what (siena 6): an object m x (advertise, n x publish, unadvertise), a
    party p x (subscribe, q x receive, unsubscribe). All begin at once, and nothing but publications
    takes time.
    """

    advertisements: int
    """m"""
    publications: int
    """n"""
    subscriptions: int
    """p"""
    receipts: int
    """q"""
    gap_ms: float = 1000.0
    """The mean time between publications of one object, a Poisson process."""


class ObjectOfInterest:
    """A client that publishes, and advertises what it will publish."""

    def __init__(
        self,
        network: Network,
        client: Client,
        behaviour: Behaviour,
        random: Randomness,
        *,
        advertisement: Advertisement,
        events: Callable[[int], Mapping[str, Any]],
    ) -> None:
        self.client = client
        self.requests = 0
        self.published_us: list[int] = []
        """When each notification was published."""
        self._network = network
        self._behaviour = behaviour
        self._random = random
        self._advertisement = advertisement
        self._events = events
        self._rounds = 0
        self._key = 0
        network.after(0, self._begin)

    def _wait(self) -> None:
        self._network.after(self._random.exponential(self._behaviour.gap_ms), self._publish)

    def _begin(self) -> None:
        self._key = self.client.advertise(self._advertisement)
        self._rounds += 1
        self.requests += 1
        self._wait()

    def _publish(self) -> None:
        self.requests += 1
        self.published_us.append(self._network.agenda.now_us)
        self.client.publish(self._events(len(self.published_us) - 1))
        if len(self.published_us) < self._rounds * self._behaviour.publications:
            self._wait()
            return
        self.client.unadvertise(self._key)
        self.requests += 1
        if self._rounds < self._behaviour.advertisements:
            self._begin()


class InterestedParty:
    """A client that subscribes, waits for some notifications, unsubscribes, and so on."""

    def __init__(
        self,
        network: Network,
        client: Client,
        behaviour: Behaviour,
        *,
        filter: Filter,
        taken: Callable[[Delivery], object],
    ) -> None:
        self.client = client
        self.requests = 0
        self.subscribed = 0
        self._network = network
        self._behaviour = behaviour
        self._filter = filter
        self._taken = taken
        self._missing = 0
        self._key = 0
        client.on_delivery = self._receive
        if behaviour.subscriptions:
            network.after(0, self._subscribe)

    def _subscribe(self) -> None:
        self._key = self.client.subscribe(self._filter)
        self.requests += 1
        self.subscribed += 1
        self._missing = self._behaviour.receipts

    def _receive(self, delivery: Delivery) -> None:
        self._taken(delivery)
        self._missing -= 1
        if not self._missing:
            self._network.after(0, self._unsubscribe)

    def _unsubscribe(self) -> None:
        self.client.unsubscribe(self._key)
        self.requests += 1
        if self.subscribed < self._behaviour.subscriptions:
            self._subscribe()
