"""`Lines`: the connections between virtual brokers and clients, and their faults."""

from __future__ import annotations

from collections.abc import Callable

from palio.protocol.messages import Message
from palio.simulation.agenda import US
from palio.simulation.pipes import Pipe, Planner


class Lines:
    """Open connections, and the delays and faults of links."""

    def __init__(self, planner: Planner, latency_s: float) -> None:
        self.planner = planner
        self.latency_us = round(latency_s * US)
        self.spoils: Callable[[str, Message], bool] = lambda _sender, _message: False
        """A predicate that picks messages to arrive as unreadable bytes."""
        self._pipes: dict[Pipe, None] = {}
        """The open connections, in order of opening."""
        self._cut: dict[frozenset[str], None] = {}
        self._delays_us: dict[frozenset[str], int] = {}
        self._held_us: dict[tuple[str, str], int] = {}
        """By sender and receiver, the time until which messages are held."""

    def cut(self, one: str, other: str) -> None:
        """Cut a link, between brokers or a client and a broker, until `heal`."""
        self._cut[frozenset((one, other))] = None
        self.drop(one, other)

    def drop(self, one: str, other: str) -> None:
        """Break a connection; it may be reopened at once."""
        for pipe in self._between(one, other):
            pipe.break_off()

    def half_open(self, one: str, other: str) -> None:
        """Break a connection, but notify only the first end."""
        for pipe in self._between(one, other):
            pipe.half_open(pipe.names.index(one))

    def damage(self, sender: str, receiver: str) -> None:
        """Flip a bit of the next message of one direction."""
        for pipe in self._between(sender, receiver):
            pipe.damage(pipe.names.index(receiver))

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Set the delay between two ends."""
        self._delays_us[frozenset((one, other))] = round(seconds * US)

    def delay_us(self, one: str, other: str) -> int:
        """Return the delay between two ends."""
        return self._delays_us.get(frozenset((one, other)), self.latency_us)

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether new connections between two ends fail."""
        held = max(self._held_for(one, other), self._held_for(other, one))
        return frozenset((one, other)) in self._cut or held > 0

    def _held_for(self, sender: str, receiver: str) -> int:
        return max(0, self._held_us.get((sender, receiver), 0) - self.planner.now_us)

    def _way_us(self, sender: str, receiver: str) -> int:
        return max(self.delay_us(sender, receiver), self._held_for(sender, receiver))

    def is_linked(self, one: str, other: str) -> bool:
        """Return whether two ends have received from each other through an open connection."""
        return any(pipe.is_open and pipe.is_used for pipe in self._between(one, other))

    def _between(self, one: str, other: str) -> list[Pipe]:
        return [pipe for pipe in self._pipes if pipe.joins(one, other)]

    def _is_spoilt(self, sender: str, message: Message) -> bool:
        return self.spoils(sender, message)
