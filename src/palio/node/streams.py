"""`Stream`: a session's messages in both directions, across any number of connections.

Counted messages are kept until the other end has seen them. After a break each end says how many
arrived, the rest is sent again, and so nothing is lost or doubled as long as both ends remember the
session. A receiver that does not say what it has seen closes the window: what waits beyond it is
its owner's to bound (see `Outbox`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from palio.errors import IllegalMessage
from palio.node.limits import SEEN_EVERY_BYTES, WINDOW_BYTES
from palio.node.messages import UNCOUNTED, Answer, EventMessage, Message, Seen

__all__ = ["Stream", "size_of"]

_CONTROL_BYTES = 128
"""What a message without events is taken to weigh."""


def size_of(message: Message) -> int:
    """About how many bytes of memory a message takes."""
    if isinstance(message, EventMessage):
        return message.parcel.held_bytes
    if isinstance(message, Answer):
        return _CONTROL_BYTES + len(msgspec.msgpack.encode(message.data))
    return _CONTROL_BYTES


class Stream:
    """What was sent and not yet seen, and what arrived.

    >>> from palio.node.messages import Done
    >>> here, there = Stream(), Stream()
    >>> for number in range(3):
    ...     here.send(Done(number))
    >>> there.arrive(Done(0))
    >>> here.resume(there.received)  # after a break: the first arrived, the others go again
    [Done(id=1, unreached=()), Done(id=2, unreached=())]
    """

    def __init__(self, window: int = WINDOW_BYTES) -> None:
        self.window = window
        self.received = 0
        """Counted messages that arrived."""
        self.sent = 0
        """Counted messages that were sent, arrived or not."""
        self.unseen_bytes = 0
        """What was sent and not yet seen."""
        self._unseen: deque[tuple[Message, int]] = deque()
        self._since_said = 0
        self._said = 0

    @property
    def has_room(self) -> bool:
        """Whether more may be sent before the other end says what it has seen."""
        return self.unseen_bytes < self.window

    @property
    def owes_word(self) -> bool:
        """Whether messages arrived that the other end was not told of."""
        return self._said < self.received

    def send(self, message: Message) -> None:
        """Count and keep a message that is about to be written."""
        size = size_of(message)
        self._unseen.append((message, size))
        self.unseen_bytes += size
        self.sent += 1

    def arrive(self, message: Message) -> None:
        """Count a message that was read."""
        if not isinstance(message, UNCOUNTED):
            self.received += 1
            self._since_said += size_of(message)

    def word(self, *, now: bool = False) -> Seen | None:
        """What to tell the other end of what arrived: when much did, or right `now`."""
        if self.owes_word and (now or self._since_said >= SEEN_EVERY_BYTES):
            self._said = self.received
            self._since_said = 0
            return Seen(self.received)
        return None

    def seen(self, count: int) -> None:
        """The other end has everything up to a count; it need not be kept."""
        fresh = count - (self.sent - len(self._unseen))
        if not 0 <= fresh <= len(self._unseen):
            raise IllegalMessage(
                "the other end", f"it has seen {count} messages, {self.sent} were sent"
            )
        for _ in range(fresh):
            self.unseen_bytes -= self._unseen.popleft()[1]

    def resume(self, count: int) -> list[Message]:
        """The messages to write again on a new connection, when so many had arrived."""
        self.seen(count)
        self._said = self.received
        self._since_said = 0
        return [message for message, _ in self._unseen]

    def knows(self, count: int) -> bool:
        """Whether a session can be resumed by someone with so many messages."""
        return self.sent - len(self._unseen) <= count <= self.sent

    def unseen(self) -> Iterable[Message]:
        """What was sent and perhaps never arrived."""
        return (message for message, _ in self._unseen)
