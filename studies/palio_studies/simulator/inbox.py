"""What waits for a busy broker, and how long that works: waiting batches of a sender are joined."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from palio.model.row_parcels import RowParcel
from palio.routing.messages import Batch, Control
from palio.routing.parameters import WaitingBatch
from palio.routing.protocol import Peer


class Envelope:
    """A message and where it came from: `epoch` tells a link from the same one before a failure."""

    __slots__ = ("epoch", "message", "sender", "source")

    def __init__(self, source: str, sender: Peer, epoch: int, message: Control | RowParcel) -> None:
        self.source = source
        self.sender = sender
        self.epoch = epoch
        self.message = message


class Service(Protocol):
    """What a network asks when a message comes to a broker."""

    def line(self, letter: Envelope) -> int:
        """The line in which it waits. A broker works on one message of each line at a time, so two
        lines are two processors.
        """

    def time_us(self, broker: str, letter: Envelope) -> int:
        """How long the broker works on it, asked once, when that begins."""


class Inbox:
    """The letters of one broker, which works on one at a time.

    With `joining`, a batch that comes while the last letter of the same sender still waits, a batch
    too, becomes one with it: of a variable that swings to and fro only the last value costs work.

    >>> from palio.routing.messages import Update
    >>> inbox, alice = Inbox(joining=True), Peer.client("alice")
    >>> for version, value in enumerate((5, 7, 9), 1):
    ...     inbox.put(Envelope("alice", alice, 0, Batch((Update(0, {"x": value}, version),))))
    >>> len(inbox), inbox.take().message.requests[0].values
    (1, {'x': 9})
    """

    def __init__(self, *, joining: bool) -> None:
        self.is_busy = False
        self._joining = joining
        self._waiting: deque[Envelope] = deque()
        self._last: dict[Peer, Envelope] = {}
        self._joined: dict[Envelope, WaitingBatch] = {}
        """What has become of letters that others were joined with."""

    def put(self, letter: Envelope) -> None:
        """Add a letter, behind all others of its sender."""
        if self._joining:
            last = self._last.get(letter.sender)
            if last is not None and last.epoch == letter.epoch and self._join(last, letter.message):
                return
            self._last[letter.sender] = letter
        self._waiting.append(letter)

    def _join(self, last: Envelope, message: Control | RowParcel) -> bool:
        if not isinstance(last.message, Batch) or not isinstance(message, Batch):
            return False
        joined = self._joined.get(last)
        if joined is None:
            joined = WaitingBatch()
            if not joined.add(last.message):
                return False
            self._joined[last] = joined
        return joined.add(message)

    def take(self) -> Envelope:
        """The next letter."""
        letter = self._waiting.popleft()
        if self._last.get(letter.sender) is letter:
            del self._last[letter.sender]
        joined = self._joined.pop(letter, None)
        if joined is not None:
            letter.message = joined.batch
        return letter

    def __len__(self) -> int:
        return len(self._waiting)
