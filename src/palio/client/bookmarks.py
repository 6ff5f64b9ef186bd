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
    """The window that was in force: what it had time for is not to be late when it comes again."""

    @classmethod
    def read(cls, packed: bytes) -> Self:
        """`packed` undone; `InvalidInput` if it is no bookmark."""
        try:
            return msgspec.msgpack.decode(packed, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
            raise InvalidInput(f"this is no bookmark of a pattern: {error}") from None

    def packed(self) -> bytes:
        """As a broker keeps it."""
        return msgspec.msgpack.encode(self)


class PatternReceipts:
    """The entries of a durable pattern that were not acknowledged, and its occurrences."""

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
        self._unreported: dict[int, None] = {}
        """Lost entries whose gap the application has not received yet."""
        self._last_entry = 0
        self._unreported_bytes = 0
        """Bytes that came since the last acknowledgement of what is held."""
        self._seen = DedupWindow()
        self._last_bookmark: Place | None = None
        self._resumed_at: Place | None = None

    def follow(self, sequences: Sequences) -> None:
        """These are the sequences from now on."""
        self._sequences = sequences
        self._digest = digest(sequences.pattern)

    @property
    def is_full(self) -> bool:
        """True if the broker is not to send more, as so many occurrences are unacknowledged."""
        return len(self._unhandled) >= self._queue_size

    def came(
        self, events: Sequence[dict[str, Any]], publisher: str, entry: int, size: int
    ) -> list[dict[str, Any]]:
        """Events that some step wants came in an entry (0: in none) of so many bytes: those that
        did not come before.
        """
        if entry:
            last = max(((event[TIME], publisher, event[SEQ]) for event in events), default=None)
            self._entries.append((entry, last))
            self._last_entry = entry
            self._unreported_bytes += size
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

    def lost(self, entry: int) -> Callable[[], None]:
        """An entry came without events; call the result once the gap for it was reported."""
        self._entries.append((entry, None))
        self._last_entry, self._unreported[entry] = entry, None

        def reported() -> None:
            self._unreported.pop(entry, None)
            self.report()

        return reported

    def _is_over(self, place: Place) -> bool:
        return self._resumed_at is not None and place <= self._resumed_at

    def expect(self, occurrences: Iterable[Event]) -> Entry | None:
        """Occurrences go into the queue, each with its receipt: the entry of the last one."""
        entry = None
        for occurrence in occurrences:
            self._found += 1
            place = (occurrence.time, occurrence.publisher, occurrence.seq)
            self._unhandled.append((self._found, place))
            came = self.occurrences.came(self._found, occurrence.publisher, NO_NUMBERS)
            entry = self.occurrences.expect(came, 1)
            occurrence.receipt = self.occurrences.make(entry, seq=occurrence.seq)
        return entry

    def _dealt_with(self, outcome: Acknowledge | Nack) -> None:
        """Note that all occurrences up to one were handled."""
        if isinstance(outcome, Nack):
            raise NotSupported(_NO_NACK)
        number = outcome.entry
        is_news = False
        while self._unhandled and self._unhandled[0][0] <= number:
            _, self._handled_until = self._unhandled.popleft()
            is_news = True
        self.report(is_news=is_news)

    def report(self, *, is_news: bool = False) -> None:
        """Acknowledge what the broker need not keep, if there is any, or other news."""
        sequences = self._sequences
        after = self._handled_until if self._unhandled else sequences.after
        is_held = self._unreported_bytes >= HELD_BYTES and not self.is_full
        if not (is_news or is_held or self._is_passed(after)):
            return
        taken = () if self._unhandled else sequences.taken
        packed = self._packed(after, taken)
        if len(packed) > MAX_BOOKMARK_BYTES:  # then it stays where it was
            after = self._handled_until if is_news else None
            packed = self._packed(after, ())
        entry = 0
        while self._is_passed(after):
            entry, _ = self._entries.popleft()
        held = 0
        if not self.is_full:
            held, self._unreported_bytes = self._last_entry, 0
        if entry or is_news or is_held:
            self._last_bookmark = after or self._last_bookmark
            self._send(entry, held, packed)

    def _is_passed(self, after: Place | None) -> bool:
        """True if the oldest entry can be acknowledged with the bookmark at this place."""
        if not self._entries:
            return False
        entry, last = self._entries[0]
        if last is None:
            return entry not in self._unreported
        return after is not None and last <= after

    def _packed(self, after: Place | None, taken: tuple[Occurrence, ...]) -> bytes:
        if after is None:
            return b""
        return Bookmark(self._digest, after, taken, self._sequences.reorder_s).packed()

    def resume(self, mark: Bookmark, sequences: Sequences) -> bool:
        """The broker has a bookmark. Whether to resume from there with these sequences, to which
        nothing has come: else the last one sent from here is further on.

        Occurrences found here are then found again, or were by the client that left it.
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
        """The session is lost: what was not acknowledged will come again, under other numbers."""
        self._entries.clear()
        self._unreported.clear()
        self._last_entry = self._unreported_bytes = 0


def digest(pattern: Pattern) -> bytes:
    """The identity of a pattern, whatever values its parameters have."""
    return blake2b(str(pattern).encode(), digest_size=16).digest()
