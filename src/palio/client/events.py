"""Events as subscribers receive them, and the gaps where some were lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palio.errors import InvalidInput
from palio.model.events import DEDUP_ID, EXPIRES, PAYLOAD, SEQ, TIME
from palio.model.payloads import data_of
from palio.protocol.limits import MAX_REASON_CHARS, check_seconds

if TYPE_CHECKING:
    from palio.protocol.receipts import Receipt

ANY_PUBLISHER: Final = "*"
"""The publisher that a gap names when nobody knows whose events were lost, if any."""


class Event(Mapping[str, Any]):
    """A received event: a mapping of its attributes, and where it came from.

    For a pattern, the event is the last of the sequence and `parts` holds all of them. Lists and
    nested data are in its `payload`.

    >>> from datetime import UTC, datetime
    >>> event = Event({"price": 9.5}, "ticker", 1, datetime(2026, 1, 1, tzinfo=UTC))
    >>> event["price"], event.publisher, event.seq
    (9.5, 'ticker', 1)
    """

    __slots__ = ("_attributes", "expires", "packed", "parts", "publisher", "receipt", "seq", "time")

    def __init__(
        self,
        attributes: dict[str, Any],
        publisher: str,
        seq: int,
        time: datetime,
        parts: tuple[Event, ...] = (),
        receipt: Receipt | None = None,
        packed: object = None,
    ) -> None:
        self._attributes = attributes
        self.publisher = publisher
        self.seq = seq
        self.time = time
        self.parts = parts
        self.receipt = receipt
        self.expires: datetime | None = None
        """The time from which on it is not delivered, if its publisher gave one."""
        self.packed = packed
        """The payload as it travels, if there is one."""

    @classmethod
    def of(cls, row: Mapping[str, Any], publisher: str, receipt: Receipt | None = None) -> Event:
        """The event of a row with its system columns, which others may share."""
        attributes = dict(row)
        seq, time = attributes.pop(SEQ), attributes.pop(TIME)
        packed = attributes.pop(PAYLOAD, None)
        event = cls(attributes, publisher, seq, time, receipt=receipt, packed=packed)
        event.expires = attributes.pop(EXPIRES, None)
        attributes.pop(DEDUP_ID, None)
        return event

    @property
    def payload(self) -> Any:
        """The data as they were published, lists and nested data too: those of a CloudEvent, or all
        that was given to `publish`. `InvalidEvent` if they cannot be read, or are not those of the
        attributes.
        """
        if self.packed is None:
            return dict(self._attributes)
        return data_of(self.packed, self._attributes)

    def ack(self) -> None:
        """Acknowledge this event: it is handled and need not come again.

        It means something for what a durable subscription receives, and nothing for other events.
        """
        if self.receipt is not None:
            self.receipt.give()

    def nack(self, delay: float = 0.0, reason: str = "") -> None:
        """Reject this event of a durable subscription: it is delivered again, to this consumer or
        to another one, after `delay` seconds at least.
        """
        if self.receipt is None:
            raise InvalidInput(
                "only what a durable subscription keeps can be rejected; publish(durable=True) "
                "such events, and subscribe with durable_name="
            )
        self.receipt.reject(check_seconds(delay, "delay"), str(reason)[:MAX_REASON_CHARS])

    @property
    def attempt(self) -> int:
        """How often it was tried, this time included; 1 if it is not from a durable subscription's
        queue.
        """
        return 1 if self.receipt is None else self.receipt.entry.attempt

    def __getitem__(self, name: str) -> Any:
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __repr__(self) -> str:
        return f"Event({self._attributes!r}, publisher={self.publisher!r}, seq={self.seq})"


class Gap(msgspec.Struct, frozen=True):
    """Events of one publisher that a subscriber lost: how many, and within which numbers.

    If the publisher is `*` and the count 0, events of any publisher may have been lost: the session
    with the broker ended, or a broker or a link on the way was away, and nobody knows what was
    published meanwhile. The gap is reported when the path is lost, and again once it is whole.
    Durable events of a durable subscription are not among them, unless its broker's disk has lost
    some. The count of a damaged entry may be that of all its numbers.
    """

    publisher: str
    first_seq: int
    last_seq: int
    count: int
    reason: str = ""
    """Why events of any publisher may have been lost: which broker reports it, and what it saw."""

    @property
    def is_certain(self) -> bool:
        """True if events were lost, false if they may have been."""
        return self.count > 0

    def __str__(self) -> str:
        if not self.is_certain:
            reason = self.reason or "the broker, or one on their way, was away"
            # Of durable events only those before the history of `since=` are uncertain.
            kind = "durable" if reason.startswith("the history of ") else "live"
            return f"{kind} events may have been lost: {reason}"
        return f"lost {self._events()}"

    def _events(self) -> str:
        span = (
            f"{self.first_seq}"
            if self.first_seq == self.last_seq
            else f"{self.first_seq} to {self.last_seq}"
        )
        events, numbers = ("event", "number") if self.count == 1 else ("events", "numbers")
        return f"{self.count} {events} of {self.publisher!r}, {numbers} {span}"


class LateGap(Gap, frozen=True):
    """Events that came too late for a pattern: others, published after them, had taken their part.

    They took none, so the pattern may have missed sequences or found others than there were. A
    larger `reorder_timeout` waits longer for such events.
    """

    def __str__(self) -> str:
        return f"too late for the pattern: {self._events()}; a larger reorder_timeout waits longer"


class PublishReceipt(msgspec.Struct, frozen=True):
    """The receipt of a publication: its numbers, and how many deliveries it made.

    `level` is what was promised. In one process, events are in the queues of those who match;
    on a network they are held by the broker: in `memory`, or on its disk (`durable`), or on the
    disks of all homes, too (`home`). How many deliveries they make is known in one process only.
    """

    first_seq: int
    last_seq: int
    deliveries: int | None = None
    level: str = "memory"
