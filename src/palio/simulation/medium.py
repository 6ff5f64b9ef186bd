"""`Medium`: the simulated way of datagrams (docs/concepts/multicast.md, "On the network").

A datagram that is cast to a group travels as the packets of the real codec, and reaches the brokers
that have joined the group, each by itself: one broker's copy of a packet may be lost, doubled or
late while another's is not. A broker may also be deaf for a while, and two brokers may be cut off
from each other. Links know nothing of all that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from palio.multicast.datagrams import Datagram
from palio.protocol.datagrams import SALT_BYTES, UNSHARED, Opener, Sealer
from palio.simulation.agenda import MESSAGE, US
from palio.simulation.pipes import Planner
from palio.simulation.randomness import Randomness


class Weather(NamedTuple):
    """Chances of faults of each copy of a packet; none by default."""

    loss: float = 0.0
    """Chance of loss."""
    doubled: float = 0.0
    """Chance of duplication."""
    late: float = 0.0
    """Chance of up to double latency, so that others overtake it."""


class Port:
    """A broker's port to its groups (see `node.host.MulticastPort`), for one incarnation."""

    def __init__(self, medium: Medium, name: str, salt: bytes) -> None:
        self.name = name
        self.groups: dict[int, frozenset[int]] = {}
        """The joined groups, by plan."""
        self.listener: Callable[[Datagram], object] = lambda _: None
        """Receives the datagrams."""
        self._medium = medium
        self._sealer = Sealer(UNSHARED, salt=salt)
        self.opener = Opener(UNSHARED, name)
        """Opens packets, and counts those that it drops."""

    def cast(self, datagram: Datagram) -> None:
        """Send a datagram to its group."""
        for packet in self._sealer.seal(datagram):
            self._medium.carry(self.name, (datagram.plan, datagram.group), packet)

    def tune(self, plan: int, groups: tuple[int, ...]) -> None:
        """Join these groups of a plan, and leave the others."""
        self.groups[plan] = frozenset(groups)
        if not groups:
            del self.groups[plan]

    def receive(self, packet: bytes, now: float) -> None:
        """Open a packet and pass its datagram to the listener."""
        datagram = self.opener.open(packet, now)
        if datagram is not None:
            self.listener(datagram)


class Medium:
    """Carries datagrams between the brokers of a `Cluster`.

    >>> from palio.simulation.agenda import Agenda
    >>> agenda, received = Agenda(), []
    >>> medium = Medium(agenda, Randomness(1), latency_s=0.001)
    >>> near, far = medium.port("b1"), medium.port("b2")
    >>> far.listener = received.append
    >>> far.tune(7, (0,))
    >>> near.cast(Datagram("b1", 1, 7, 0, 1, bytes(8)))
    >>> agenda.run(), [datagram.source for datagram in received]
    (1, ['b1'])
    """

    def __init__(
        self,
        planner: Planner,
        random: Randomness,
        *,
        latency_s: float,
        weather: Weather | None = None,
    ) -> None:
        self._planner = planner
        self._random = random
        self._latency_us = round(latency_s * US)
        self._ports: dict[str, Port] = {}
        self._ways: dict[tuple[str, str], Randomness] = {}
        self._deaf: dict[str, None] = {}
        self._cut: dict[frozenset[str], None] = {}
        self._weather = weather or Weather()

    @property
    def weather(self) -> Weather:
        """The faults of packets from now on."""
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        self._ways.clear()

    def port(self, name: str) -> Port:
        """Return the port of a broker that starts. Its earlier port receives nothing more."""
        salt = bytes([self._random.below(256) for _ in range(SALT_BYTES)])
        self._ports[name] = Port(self, name, salt)
        return self._ports[name]

    def leave(self, name: str) -> None:
        """Remove a broker."""
        self._ports.pop(name, None)

    # --- faults ---

    def deafen(self, name: str) -> None:
        """Have a broker receive nothing, though it still sends."""
        self._deaf[name] = None

    def undeafen(self, name: str) -> None:
        """End `deafen`."""
        self._deaf.pop(name, None)

    def cut(self, one: str, other: str) -> None:
        """Have two brokers not receive each other, until `heal`."""
        self._cut[frozenset((one, other))] = None

    def heal(self, one: str, other: str) -> None:
        """End `cut`."""
        self._cut.pop(frozenset((one, other)), None)

    # --- packets ---

    def carry(self, sender: str, group: tuple[int, int], packet: bytes) -> None:
        """Send a packet to all receivers of a plan's group, except its sender."""
        for name, port in self._ports.items():
            if name != sender and self._hears(port, sender, group):
                way = self._ways.get((sender, name))
                if way is None:
                    way = self._ways[sender, name] = self._random.branch()
                for delay_us in self._delays_us(way):
                    at_us = self._planner.now_us + delay_us
                    self._planner.at(
                        at_us, MESSAGE, partial(self._bring, port, sender, group, packet)
                    )

    def _delays_us(self, random: Randomness) -> list[int]:
        """Draw the delays of the copies of a packet that arrive."""
        weather, deliveries = self._weather, []
        for _ in range(2 if weather.doubled and random.chance(weather.doubled) else 1):
            if weather.loss and random.chance(weather.loss):
                continue
            delay_us = self._latency_us
            if weather.late and random.chance(weather.late):
                delay_us += round(delay_us * random.uniform())
            deliveries.append(delay_us)
        return deliveries

    def _hears(self, port: Port, sender: str, group: tuple[int, int]) -> bool:
        plan, number = group
        return (
            number in port.groups.get(plan, ())
            and port.name not in self._deaf
            and frozenset((sender, port.name)) not in self._cut
        )

    def _bring(self, port: Port, sender: str, group: tuple[int, int], packet: bytes) -> None:
        if self._ports.get(port.name) is port and self._hears(port, sender, group):
            port.receive(packet, self._planner.now_us / US)
