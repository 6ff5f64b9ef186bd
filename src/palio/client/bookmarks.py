"""`PatternReceipts`: the pending acks of a durable pattern, and its bookmark at the broker.

A pattern processes events in the order of publication, and its broker delivers entries in the order
of arrival. So an ack has two parts: a *bookmark*, which is the place of the last processed event
and the partial match there; and the number of an entry up to which all events are at that place or
before, so that they need not be redelivered.

While occurrences are unhandled, the bookmark stays at the end of the last handled one: they are
found again from there. A client that resumes the subscription receives the bookmark and all unacked
events, and drops events at the bookmark's place or before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, Self

import msgspec

from palio.client.events import Event
from palio.client.sequences import Sequences
from palio.errors import InvalidInput, NotSupported
from palio.model.events import SEQ, TIME
from palio.model.patterns import Occurrence, Pattern, Place
from palio.protocol.dedup_window import DedupWindow
from palio.protocol.limits import MAX_BOOKMARK_BYTES, WINDOW_BYTES
from palio.protocol.messages import Acknowledge, Nack
from palio.protocol.receipts import Entry, Receipts

HELD_BYTES: Final = WINDOW_BYTES // 4
"""Bytes held here at which the broker is notified, so that it continues to send."""

_NO_NACK: Final = (
    "an occurrence of a pattern cannot be rejected, as its events may be part of others; "
    "acknowledge it"
)

NO_NUMBERS: Final = ()
"""The numbers of an entry without events, or whose events have other numbers."""


class Bookmark(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a pattern.

    >>> import palio
    >>> from datetime import UTC, datetime
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> pattern = palio.parse("a = 1 THEN b = 2")
    >>> taken = (Occurrence(noon, "p", 5, {"a": 1}),)
    >>> mark = Bookmark(digest(pattern), (noon, "p", 7), taken, 1.0)
    >>> Bookmark.read(mark.packed()) == mark
    True
    """

    pattern: bytes
    """The digest of the pattern: another one under the same name starts over."""
    after: Place
    taken: tuple[Occurrence, ...]
    reorder_s: float
    """The window in force: an event that was in time for it must not be late when redelivered."""

    @classmethod
    def read(cls, packed: bytes) -> Self:
        """Decode a packed bookmark; `InvalidInput` if it is none."""
        try:
            return msgspec.msgpack.decode(packed, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
            raise InvalidInput(f"this is no bookmark of a pattern: {error}") from None

    def packed(self) -> bytes:
        """Return the bytes that a broker stores."""
        return msgspec.msgpack.encode(self)


class PatternReceipts:
    """The unacknowledged entries of a durable pattern, and its matches.

    An `Occurrence` is one event; `occurrences` are complete matches of the pattern.
    """

    def __init__(
        self, sequences: Sequences, queue_size: int, send: Callable[[int, int, bytes], None]
    ) -> None:
        self.follow(sequences)
        self.occurrences = Receipts(self._dealt_with)
        """The occurrences that were not dealt with, numbered as if each were an entry."""
        self._queue_size: Final = queue_size
        self._send: Final = send
        self._unhandled: deque[tuple[int, Place]] = deque()
        """Their numbers, and where they end."""
        self._found = 0
        self._handled_until: Place | None = None
        self._entries: deque[tuple[int, Place | None]] = deque()
        """What was not acknowledged: the number, and the last place at which a step wants it."""
        self._gaps_to_report: dict[int, None] = {}
        """Lost entries whose gap the application has not received yet."""
        self._last_entry = 0
        self._bytes_since_ack = 0
        """Bytes received since the broker was last told what is held here."""
        self._seen = DedupWindow()
        self._last_bookmark: Place | None = None
        self._resumed_at: Place | None = None

    def follow(self, sequences: Sequences) -> None:
        """Use these sequences from now on."""
        self._sequences = sequences
        self._digest = digest(sequences.pattern)

    @property
    def is_full(self) -> bool:
        """True if the broker is not to send more, as so many occurrences are unacknowledged."""
        return len(self._unhandled) >= self._queue_size

    def receive(
        self, events: Sequence[dict[str, Any]], publisher: str, entry: int, size: int
    ) -> list[dict[str, Any]]:
        """Record an entry (0: none) of `size` bytes, and return those of its events that have not
        been received before. Some step of the pattern wants each of these events.
        """
        if entry:
            last = max(((event[TIME], publisher, event[SEQ]) for event in events), default=None)
            self._entries.append((entry, last))
            self._last_entry = entry
            self._bytes_since_ack += size
        if not events:
            return []
        numbers = [event[SEQ] for event in events]
        fresh = self._seen.fresh(publisher, numbers)
        self._seen.add(publisher, numbers)
        return [
            event
            for event, is_fresh in zip(events, fresh, strict=True)
            if is_fresh and not self._is_over((event[TIME], publisher, event[SEQ]))
        ]

    def receive_gap(self, entry: int) -> Callable[[], None]:
        """Record an entry without events; call the result once its gap was reported."""
        self._entries.append((entry, None))
        self._last_entry, self._gaps_to_report[entry] = entry, None

        def reported() -> None:
            self._gaps_to_report.pop(entry, None)
            self.report()

        return reported

    def _is_over(self, place: Place) -> bool:
        return self._resumed_at is not None and place <= self._resumed_at

    def expect(self, occurrences: Iterable[Event]) -> Entry | None:
        """Give each match that is to be queued its receipt; return the entry of the last one."""
        entry = None
        for occurrence in occurrences:
            self._found += 1
            place = (occurrence.time, occurrence.publisher, occurrence.seq)
            self._unhandled.append((self._found, place))
            received = self.occurrences.came(self._found, occurrence.publisher, NO_NUMBERS)
            entry = self.occurrences.expect(received, 1)
            occurrence.receipt = self.occurrences.make(entry, seq=occurrence.seq)
        return entry

    def _dealt_with(self, outcome: Acknowledge | Nack) -> None:
        """Note that all occurrences up to one were handled."""
        if isinstance(outcome, Nack):
            raise NotSupported(_NO_NACK)
        number = outcome.entry
        was_handled = False
        while self._unhandled and self._unhandled[0][0] <= number:
            _, self._handled_until = self._unhandled.popleft()
            was_handled = True
        self.report(was_handled=was_handled)

    def report(self, *, was_handled: bool = False) -> None:
        """Send the broker an ack and a bookmark, if an entry can be acknowledged, a match was
        handled (`was_handled`), or the broker needs the ack in order to send more.
        """
        sequences = self._sequences
        after = self._handled_until if self._unhandled else sequences.after
        is_ack_due = self._bytes_since_ack >= HELD_BYTES and not self.is_full
        if not (was_handled or is_ack_due or self._is_passed(after)):
            return
        taken = () if self._unhandled else sequences.taken
        packed = self._packed(after, taken)
        if len(packed) > MAX_BOOKMARK_BYTES:
            # The bookmark stays at the last handled match, without the partial match, whose events
            # are redelivered.
            after = self._handled_until if was_handled else None
            packed = self._packed(after, ())
        entry = 0
        while self._is_passed(after):
            entry, _ = self._entries.popleft()
        held = 0
        if not self.is_full:
            held, self._bytes_since_ack = self._last_entry, 0
        if entry or was_handled or is_ack_due:
            self._last_bookmark = after or self._last_bookmark
            self._send(entry, held, packed)

    def _is_passed(self, after: Place | None) -> bool:
        """True if the oldest entry can be acknowledged with the bookmark at this place."""
        if not self._entries:
            return False
        entry, last = self._entries[0]
        if last is None:
            return entry not in self._gaps_to_report
        return after is not None and last <= after

    def _packed(self, after: Place | None, taken: tuple[Occurrence, ...]) -> bytes:
        if after is None:
            return b""
        return Bookmark(self._digest, after, taken, self._sequences.reorder_s).packed()

    def resume(self, mark: Bookmark, sequences: Sequences) -> bool:
        """Resume from the broker's bookmark and return True, unless the last bookmark sent from
        here is further on. `sequences` must not have received any event yet.

        Matches found here are then found again, or were found by the client that left the bookmark.
        """
        if self._last_bookmark is not None and mark.after <= self._last_bookmark:
            return False
        self.follow(sequences)
        taken = mark.taken if mark.pattern == self._digest else ()
        sequences.resume(mark.after, taken, mark.reorder_s)
        self._resumed_at = self._last_bookmark = mark.after
        self._seen = DedupWindow()  # later events come again
        self._unhandled.clear()
        self.occurrences = Receipts(self._dealt_with)
        return True

    def renew(self) -> None:
        """Forget the entries of a lost session: the broker redelivers them under other numbers."""
        self._entries.clear()
        self._gaps_to_report.clear()
        self._last_entry = self._bytes_since_ack = 0


def digest(pattern: Pattern) -> bytes:
    """The identity of a pattern, whatever values its parameters have."""
    return blake2b(str(pattern).encode(), digest_size=16).digest()
