"""`Lines`: what lies between virtual brokers and clients, and what breaks there."""

from __future__ import annotations

from collections.abc import Callable

from palio.protocol.messages import Message
from palio.simulation.agenda import US
from palio.simulation.pipes import Pipe, Planner


class Lines:
    """Open connections, and the delays and faults of the ways that they take."""

    def __init__(self, planner: Planner, latency_s: float) -> None:
        self.planner = planner
        self.latency_us = round(latency_s * US)
        self.spoils: Callable[[str, Message], bool] = lambda _sender, _message: False
        """Chooses messages that arrive as bytes that nobody can read."""
        self._pipes: dict[Pipe, None] = {}
        """Those that are open, in the order in which they were opened."""
        self._cut: dict[frozenset[str], None] = {}
        self._delays_us: dict[frozenset[str], int] = {}
        self._held_us: dict[tuple[str, str], int] = {}
        """Until when what the first sends to the second is held up."""

    def cut(self, one: str, other: str) -> None:
        """A link fails, between brokers or a client and a broker, until `heal`."""
        self._cut[frozenset((one, other))] = None
        self.drop(one, other)

    def drop(self, one: str, other: str) -> None:
        """A connection breaks; it may be made again at once."""
        for pipe in self._between(one, other):
            pipe.break_off()

    def half_open(self, one: str, other: str) -> None:
        """Their connection breaks, but only the first is notified."""
        for pipe in self._between(one, other):
            pipe.half_open(pipe.names.index(one))

    def damage(self, sender: str, receiver: str) -> None:
        """A bit of what the one sends to the other next turns round on its way."""
        for pipe in self._between(sender, receiver):
            pipe.damage(pipe.names.index(receiver))

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Everything between two takes so long from now on."""
        self._delays_us[frozenset((one, other))] = round(seconds * US)

    def delay_us(self, one: str, other: str) -> int:
        """Return the delay of everything between two."""
        return self._delays_us.get(frozenset((one, other)), self.latency_us)

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether there can be no new connection between two."""
        held = max(self._held_for(one, other), self._held_for(other, one))
        return frozenset((one, other)) in self._cut or held > 0

    def _held_for(self, sender: str, receiver: str) -> int:
        return max(0, self._held_us.get((sender, receiver), 0) - self.planner.now_us)

    def _way_us(self, sender: str, receiver: str) -> int:
        return max(self.delay_us(sender, receiver), self._held_for(sender, receiver))

    def is_linked(self, one: str, other: str) -> bool:
        """Return whether each has received from the other through a connection that is open."""
        return any(pipe.is_open and pipe.is_used for pipe in self._between(one, other))

    def _between(self, one: str, other: str) -> list[Pipe]:
        return [pipe for pipe in self._pipes if pipe.joins(one, other)]

    def _is_spoilt(self, sender: str, message: Message) -> bool:
        return self.spoils(sender, message)
