"""`Stream`: a session's messages in both directions, across any number of connections.

The sender keeps sequenced messages until the other end acks them. After a break each end states its
count, and the other retransmits the rest. So nothing is lost or duplicated while both ends keep the
session. Without acks the window closes. The owner of a stream bounds the backlog beyond the window
(see `Outbox`).

A message that was damaged in transit has not arrived, and is retransmitted. A message that the
receiver must refuse ends the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, get_args

import msgspec

from palio.errors import IllegalMessage
from palio.model.parcels import event_bytes
from palio.model.patterns import Occurrence
from palio.protocol.limits import (
    ACK_EVERY_BYTES,
    ACK_EVERY_ROUTES,
    DAMAGE_TRIES,
    WINDOW_BYTES,
)
from palio.protocol.messages import (
    UNCOUNTED,
    Answer,
    Assembled,
    Done,
    EventMessage,
    Message,
    Route,
    StreamAck,
    SubscribeAll,
)
from palio.routing.patterns.messages import WithEvents, events_of

_WITH_PARCEL: Final = frozenset(get_args(EventMessage))

EVENTS: Final = _WITH_PARCEL | {Assembled}
"""The messages of events, which alone a full window holds back."""

_CONTROL_BYTES = 128
"""The weight of a message without events."""

_NUMBER_BYTES = 8
"""The weight of a number in a list."""


def size_of(message: Message) -> int:
    """Return the approximate memory of a message in bytes."""
    if type(message) in _WITH_PARCEL:
        held_bytes: int = message.parcel.held_bytes  # type: ignore[union-attr]  # it has one
        return held_bytes
    if isinstance(message, Assembled):
        return _CONTROL_BYTES + _weight_of(message.parts)
    if isinstance(message, Route) and isinstance(message.control, WithEvents):
        return _CONTROL_BYTES + _weight_of(events_of(message.control))
    if isinstance(message, Answer):
        return _CONTROL_BYTES + len(msgspec.msgpack.encode(message.data))
    if isinstance(message, SubscribeAll):
        return _CONTROL_BYTES * len(message.requests)
    if isinstance(message, Done):
        return _CONTROL_BYTES + _NUMBER_BYTES * len(message.others)
    return _CONTROL_BYTES


def _weight_of(events: Sequence[Occurrence]) -> int:
    return sum(event_bytes(occurrence.event) for occurrence in events)


class Stream:
    """Messages sent and not yet acknowledged, and the count of those that arrived.

    >>> from palio.protocol.messages import Done
    >>> here, there = Stream(), Stream()
    >>> for number in range(3):
    ...     _ = here.send(Done(number))
    >>> there.arrive(Done(0))  # too little for an ack
    False
    >>> again = here.resume(there.received)  # after a break: only the first arrived
    >>> again == [Done(1), Done(2)]
    True
    """

    def __init__(self, window: int = WINDOW_BYTES) -> None:
        self.window = window
        self.received = 0
        """Sequenced messages that arrived."""
        self.sent = 0
        """Sequenced messages that were sent, arrived or not."""
        self.unseen_bytes = 0
        """Bytes in flight: sent and not yet acked."""
        self._unseen_events = 0
        """Bytes of events among them."""
        self.unseen_routes = 0
        """The number of unacked messages of the router."""
        self.rows_begun = 0
        """Rows of the next message that were taken already."""
        self._mark: object = None
        """The identity of that message."""
        self._damaged_after = -1
        self._damages = 0
        self._unseen: deque[tuple[Message, int]] = deque()
        # Received since the last ack.
        self._received_bytes = 0
        self._received_routes = 0
        self._acked = 0
        # The other end has such a window, too: an ack must be due before that is full.
        self._ack_every_bytes = min(ACK_EVERY_BYTES, window // 2)

    @property
    def has_room(self) -> bool:
        """True if more may be sent before the next ack."""
        return self.unseen_bytes < self.window

    @property
    def unseen_answers(self) -> int:
        """Bytes in flight that are no events."""
        return self.unseen_bytes - self._unseen_events

    def send(self, message: Message) -> int:
        """Count and keep a message that is about to be written, and return its size."""
        size = size_of(message)
        self._unseen.append((message, size))
        self._note(message, size)
        self.sent += 1
        return size

    def _note(self, message: Message, size: int) -> None:
        """Account for an unacked message, or (size below 0) for an acked one."""
        self.unseen_bytes += size
        kind = type(message)
        if kind in EVENTS:
            self._unseen_events += size
        elif kind is Route:
            self.unseen_routes += 1 if size > 0 else -1

    def arrive(self, message: Message) -> bool:
        """Count a message that arrived, and return whether an `ack` is due."""
        if type(message) not in UNCOUNTED:
            self.received += 1
            self.rows_begun = 0
            self._received_bytes += size_of(message)
            self._received_routes += type(message) is Route
        is_much = self._received_bytes >= self._ack_every_bytes
        return is_much or self._received_routes >= ACK_EVERY_ROUTES

    def begun(self, mark: object) -> int:
        """Return the rows of the next message that were taken already. If its connection breaks
        before the rest, the retransmission skips them. `mark` identifies the message: only a
        hostile end replaces it by another.
        """
        return self.rows_begun if mark == self._mark else 0

    def begin(self, mark: object, rows: int) -> None:
        """Record that some rows of the next message were taken, with others to follow."""
        self._mark, self.rows_begun = mark, rows

    def ack(self) -> StreamAck | None:
        """Return the ack of all messages that arrived; None if it was sent."""
        if self._acked == self.received:
            return None
        self._mark_acked()
        return StreamAck(self.received)

    def _mark_acked(self) -> None:
        """Record that the present count was sent."""
        self._acked = self.received
        self._received_bytes = self._received_routes = 0

    def seen(self, count: int) -> None:
        """Drop the messages up to the count that the other end has acked."""
        fresh = count - (self.sent - len(self._unseen))
        if not 0 <= fresh <= len(self._unseen):
            raise IllegalMessage(
                "the other end", f"it acks {count} messages, {self.sent} were sent"
            )
        for _ in range(fresh):
            message, size = self._unseen.popleft()
            self._note(message, -size)

    def take_up(self, sent: int) -> None:
        """Continue a session of another process, which sent so many messages."""
        self.sent = sent

    def resume(self, count: int) -> list[Message]:
        """Return the messages to retransmit to an end where `count` messages arrived."""
        self.seen(count)
        self._mark_acked()
        return [message for message, _ in self._unseen]

    def damaged(self) -> bool:
        """Note that the next message arrived damaged; return whether that happened too often."""
        self._damages = self._damages + 1 if self._damaged_after == self.received else 1
        self._damaged_after = self.received
        return self._damages >= DAMAGE_TRIES

    def knows(self, count: int) -> bool:
        """Return whether an end with this count of messages can resume the session."""
        return self.sent - len(self._unseen) <= count <= self.sent

    def unseen(self) -> Iterable[Message]:
        """Return the sent messages without an ack, which may not have arrived."""
        return (message for message, _ in self._unseen)
