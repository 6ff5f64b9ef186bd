"""Track the pending acks of a durable subscription, and the events it has received.

A broker numbers the entries that it delivers. An entry is acknowledged once every event of it was
handled: together with all before it, or by itself if one of these is still open or it was sent
again behind later ones.

An event can come again: after it was rejected, or its deadline was over; in a new session, where
the broker redelivers unacknowledged entries; from another broker after a move, under other entry
numbers and perhaps by another filter; and in the very session, where its publisher moved and
retransmitted it to a second broker. The first two are to be handled again. For the others an event
counts as known by its publisher's number from the moment that it came, and not only once it was
handled (`came`). Its first copy keeps its place in the queue; the entry of the second one is
acknowledged after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Final

from palio.protocol.dedup_window import DedupWindow
from palio.protocol.messages import Acknowledge, Nack


class Entry:
    """Events of one publisher that one ack covers."""

    __slots__ = (
        "attempt",
        "behind",
        "done",
        "fresh",
        "in_order",
        "is_part",
        "number",
        "open",
        "publisher",
        "rejected",
        "seqs",
    )

    def __init__(
        self, number: int, publisher: str, seqs: Sequence[int], attempt: int, *, is_part: bool
    ) -> None:
        self.number = number
        """The entry to ack; 0 if it is of a session that is lost."""
        self.publisher = publisher
        self.seqs = seqs
        self.attempt = attempt
        """How often its events were tried, this time included."""
        self.is_part = is_part
        """True if other events of the broker's entry are delivered apart: it is acknowledged by the
        numbers of its events."""
        self.fresh: list[bool]
        """The events that are to be handled; the others came before."""
        self.open = 0
        """The events that are not handled, and the earlier entries that it waits for."""
        self.in_order = True
        """True if no later entry came before it."""
        self.behind: list[Entry] = []
        """Entries of this session that have some of its events and wait for it."""
        self.done: list[int] = []
        """Of several events, those that were handled and that were not reported to the broker."""
        self.rejected: set[int] = set()
        """The events that were rejected: they come again by themselves."""

    def with_copies(self) -> Iterator[Entry]:
        """Yield the entry, and all that wait for it."""
        yield self
        for each in self.behind:
            yield from each.with_copies()


class Receipt:
    """A handle to finish some events of an entry; only its first use counts."""

    __slots__ = ("_count", "_owner", "_seq", "entry")

    def __init__(self, owner: Receipts, entry: Entry, count: int, seq: int | None) -> None:
        self._owner = owner
        self._count = count
        self._seq = seq
        self.entry = entry

    @property
    def is_used(self) -> bool:
        """True if its events were handled or rejected."""
        return not self._count

    def give(self) -> None:
        """Mark these events as handled."""
        count, self._count = self._count, 0
        if not count:
            return
        entry = self.entry
        entry.open -= count
        if not entry.open:
            self._owner.closed(entry)
        elif self._seq is not None:
            entry.done.append(self._seq)

    def reject(self, delay_s: float, reason: str) -> None:
        """Have the event delivered again."""
        if self._count and self._seq is not None:
            self._owner.reject(self.entry, self._seq, delay_s, reason)
            self._count = 0


class Receipts:
    """The delivered entries without an ack.

    >>> reports = []
    >>> receipts = Receipts(reports.append, key=1)
    >>> one, two = (receipts.came(entry, "p", [entry]) for entry in (7, 8))
    >>> one, two = receipts.expect(one, 1), receipts.expect(two, 1)
    >>> receipts.make(two).give()  # the older one is still open
    >>> receipts.make(one).give()
    >>> [(each.entry, each.others) for each in reports]
    [(0, (8,)), (8, ())]
    """

    def __init__(self, report: Callable[[Acknowledge | Nack], None], key: int = 0) -> None:
        self._report: Final = report
        self._key: Final = key
        self._entries: deque[Entry] = deque()
        """Those of this session that came in order, but for the first ones that are handled."""
        self._again: dict[Entry, None] = {}
        """Those of this session that came out of order and are open."""
        self._last = 0
        self._awaited: dict[tuple[str, int], Entry] = {}
        """By publisher and number, unhandled events that a new session may redeliver."""
        self._taken: deque[Receipt] = deque()
        self._came = DedupWindow()

    @property
    def open(self) -> int:
        """The number of entries without an ack."""
        return len(self._entries) + len(self._again)

    def came(
        self,
        number: int,
        publisher: str,
        seqs: Sequence[int],
        attempt: int = 1,
        *,
        is_part: bool = False,
    ) -> Entry:
        """Return the entry for events that came: `fresh` are those to be handled. Call `expect`
        next.
        """
        entry = Entry(number, publisher, seqs, attempt, is_part=is_part)
        entry.fresh = self._came.fresh(publisher, seqs)
        entry.in_order = number > self._last
        self._last = max(self._last, number)
        if self._awaited:
            first_copies = [self._awaited.get((publisher, seq)) for seq in seqs]
            for first in dict.fromkeys(each for each in first_copies if each is not None):
                first.behind.append(entry)
                entry.open += 1
        if not all(entry.fresh):
            self._came_again(entry)
        self._came.add(publisher, list(compress(seqs, entry.fresh)))
        return entry

    def _came_again(self, entry: Entry) -> None:
        """Handle an entry that may be open here. If its deadline is over, the application is to
        have it once more; if it was only taken back, it waits for the first copy.
        """
        for first in (*self._entries, *self._again):
            if first.number != entry.number or not first.open:
                continue
            if entry.attempt > first.attempt:
                again = set(first.seqs)
                entry.fresh = [
                    is_fresh or seq in again
                    for seq, is_fresh in zip(entry.seqs, entry.fresh, strict=True)
                ]
            else:
                first.behind.append(entry)
                entry.open += 1

    def expect(self, entry: Entry, count: int) -> Entry:
        """Await that `count` events of an entry are handled, which go into the queue."""
        if entry.in_order:
            self._entries.append(entry)
        else:
            self._again[entry] = None
        entry.open += count
        if not entry.open:
            self.closed(entry)
        return entry

    def make(self, entry: Entry, count: int = 1, seq: int | None = None) -> Receipt:
        """Return the receipt for some events of an entry; `seq` is the number of a single one."""
        return Receipt(self, entry, count, seq)

    def take(self, receipt: Receipt) -> None:
        """Record that the consumer took events, until `finish` gives their receipts."""
        while self._taken and self._taken[0].is_used:
            self._taken.popleft()
        self._taken.append(receipt)

    def finish(self) -> None:
        """Give the receipts of all events that the consumer took."""
        taken, self._taken = self._taken, deque()
        for receipt in taken:
            receipt.give()

    def reject(self, entry: Entry, seq: int, delay_s: float, reason: str) -> None:
        """Have an event delivered again. It is new when it comes."""
        copies = [each for each in entry.with_copies() if seq in each.seqs]
        for copy in {each.number: each for each in copies if each.number}.values():
            seqs = (seq,) if copy.is_part or len(copy.seqs) > 1 else ()
            self._report(Nack(self._key, copy.number, seqs, delay_s, reason))
        for copy in copies:
            copy.rejected.add(seq)
        self._came.discard(entry.publisher, seq)
        self._awaited.pop((entry.publisher, seq), None)
        entry.open -= 1
        if not entry.open:
            self.closed(entry)

    def flush(self) -> None:
        """Ack the handled events of entries that are open: another consumer gets the rest."""
        for entry in (*self._entries, *self._again):
            if entry.open and entry.done:
                self._ack_some(entry, tuple(entry.done))
                entry.done.clear()

    def renew(self) -> None:
        """Expect the redelivery of all unacked entries, as the session is lost."""
        for entry in (*self._entries, *self._again):
            entry.number = 0
            if entry.open:
                open_seqs = set(entry.seqs).difference(entry.done, entry.rejected)
                self._awaited.update(((entry.publisher, seq), entry) for seq in open_seqs)
        self._entries.clear()
        self._again.clear()
        self._last = 0

    def closed(self, entry: Entry) -> None:
        """Ack an entry: all up to it if none before it is open."""
        if self._awaited:
            for seq in entry.seqs:
                if self._awaited.get((entry.publisher, seq)) is entry:
                    del self._awaited[entry.publisher, seq]
        for each in entry.behind:
            each.open -= 1
            if not each.open:
                self.closed(each)
        if not entry.number:
            return
        if not entry.in_order:
            del self._again[entry]
            self._ack_alone(entry)
        elif self._entries[0] is entry:
            self._ack_in_order()
        else:
            self._ack_alone(entry)

    def _ack_in_order(self) -> None:
        """Ack the first entry, which has just closed, and those behind it that had before."""
        entry, last = self._entries[0], 0
        while self._entries and not self._entries[0].open:
            first = self._entries.popleft()
            if not first.rejected:
                last = first.number
            elif first is entry:  # the others were acknowledged by themselves as they closed
                self._ack_alone(entry)
        if last:
            self._report(Acknowledge(self._key, last))

    def _ack_alone(self, entry: Entry) -> None:
        """Ack an entry by itself, without events that were rejected: these may be here again."""
        if not entry.rejected and not entry.is_part:
            self._ack_some(entry, ())
        else:
            handled = tuple(seq for seq in entry.seqs if seq not in entry.rejected)
            if handled:
                self._ack_some(entry, handled)

    def _ack_some(self, entry: Entry, seqs: tuple[int, ...]) -> None:
        self._report(Acknowledge(self._key, 0, others=(entry.number,), seqs=seqs))


def _unsaid(_outcome: Acknowledge | Nack) -> None:
    raise AssertionError("what is not durable has no entries")


NO_RECEIPTS: Final = Receipts(_unsaid)
"""The receipts of a subscription that is not durable: always empty."""
