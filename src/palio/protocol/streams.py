"""`Stream`: a session's messages in both directions, across any number of connections.

Counted messages are kept until the other end has seen them. After a break each end says how many
arrived, the rest is sent again, and so nothing is lost or doubled as long as both ends remember the
session. A receiver that does not say what it has seen closes the window: what waits beyond it is
its owner's to bound (see `Outbox`).

What is damaged on its way has not arrived, and is sent again. A message that the receiver cannot
take ends the session.
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
    DAMAGE_TRIES,
    SEEN_EVERY_BYTES,
    SEEN_EVERY_ROUTES,
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
"""The messages of events: a window is for these, and it stops them where it is full."""

_CONTROL_BYTES = 128
"""The weight of a message without events."""

_NUMBER_BYTES = 8
"""The weight of a number in a list."""


def size_of(message: Message) -> int:
    """About how many bytes of memory a message takes."""
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
    return sum(event_bytes(each.event) for each in events)


class Stream:
    """Messages sent and not yet acknowledged, and the count of those that arrived.

    >>> from palio.protocol.messages import Done
    >>> here, there = Stream(), Stream()
    >>> for number in range(3):
    ...     _ = here.send(Done(number))
    >>> there.arrive(Done(0))  # so little need not be said yet
    False
    >>> again = here.resume(there.received)  # after a break: the first arrived, the others go again
    >>> again == [Done(1), Done(2)]
    True
    """

    def __init__(self, window: int = WINDOW_BYTES) -> None:
        self.window = window
        self.received = 0
        """Counted messages that arrived."""
        self.sent = 0
        """Counted messages that were sent, arrived or not."""
        self.unseen_bytes = 0
        """Bytes sent and not yet acknowledged."""
        self._unseen_events = 0
        """The part of them that is events."""
        self.unseen_routes = 0
        """Messages of the router among that."""
        self.rows_begun = 0
        """Rows of the next message that were taken already."""
        self._mark: object = None
        """By which that one is known."""
        self._damaged_after = -1
        self._damages = 0
        self._unseen: deque[tuple[Message, int]] = deque()
        self._since_said = 0
        self._routes_since_said = 0
        self._said = 0

    @property
    def has_room(self) -> bool:
        """True if more may be sent before the other end says what it has seen."""
        return self.unseen_bytes < self.window

    @property
    def unseen_answers(self) -> int:
        """Bytes sent and not yet acknowledged that are no events."""
        return self.unseen_bytes - self._unseen_events

    def send(self, message: Message) -> int:
        """Count and keep a message that is about to be written; what it weighs."""
        size = size_of(message)
        self._unseen.append((message, size))
        self._note(message, size)
        self.sent += 1
        return size

    def _note(self, message: Message, size: int) -> None:
        """A message is to be seen, or (below 0) has been."""
        self.unseen_bytes += size
        kind = type(message)
        if kind in EVENTS:
            self._unseen_events += size
        elif kind is Route:
            self.unseen_routes += 1 if size > 0 else -1

    def arrive(self, message: Message) -> bool:
        """Count a message that was read; whether so much arrived that `ack` is due."""
        if type(message) not in UNCOUNTED:
            self.received += 1
            self.rows_begun = 0
            self._since_said += size_of(message)
            self._routes_since_said += type(message) is Route
        return self._since_said >= SEEN_EVERY_BYTES or self._routes_since_said >= SEEN_EVERY_ROUTES

    def begun(self, mark: object) -> int:
        """Rows of the next message that were taken already. If its connection breaks before the
        rest was, it comes again, and they count as taken. By its `mark` it is known from another
        one, which only a hostile end sends in its stead.
        """
        return self.rows_begun if mark == self._mark else 0

    def begin(self, mark: object, rows: int) -> None:
        """So many rows of the next message were taken; the others follow."""
        self._mark, self.rows_begun = mark, rows

    def ack(self) -> StreamAck | None:
        """Return the acknowledgement of what arrived; None if it was sent."""
        if self._said == self.received:
            return None
        self._say_all()
        return StreamAck(self.received)

    def _say_all(self) -> None:
        """The other end is told of all that arrived."""
        self._said = self.received
        self._since_said = self._routes_since_said = 0

    def seen(self, count: int) -> None:
        """The other end has everything up to a count; it need not be kept."""
        fresh = count - (self.sent - len(self._unseen))
        if not 0 <= fresh <= len(self._unseen):
            raise IllegalMessage(
                "the other end", f"it has seen {count} messages, {self.sent} were sent"
            )
        for _ in range(fresh):
            message, size = self._unseen.popleft()
            self._note(message, -size)

    def take_up(self, sent: int) -> None:
        """Go on with a session that another program began, and that sent so many messages."""
        self.sent = sent

    def resume(self, count: int) -> list[Message]:
        """The messages to write again on a new connection, when so many had arrived."""
        self.seen(count)
        self._say_all()
        return [message for message, _ in self._unseen]

    def damaged(self) -> bool:
        """Note that the next message was damaged on its way; return whether that was so too
        often.
        """
        self._damages = self._damages + 1 if self._damaged_after == self.received else 1
        self._damaged_after = self.received
        return self._damages >= DAMAGE_TRIES

    def knows(self, count: int) -> bool:
        """Return whether a session can be resumed by someone with so many messages."""
        return self.sent - len(self._unseen) <= count <= self.sent

    def unseen(self) -> Iterable[Message]:
        """Return what was sent and perhaps never arrived."""
        return (message for message, _ in self._unseen)
