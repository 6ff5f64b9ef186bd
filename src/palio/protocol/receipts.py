"""Track the pending acks of a durable subscription, and the events it has received.

A broker numbers the entries that it delivers. An acknowledgement covers all entries up to one, so
it is sent once every event of the oldest entry, and of those after it, was handled.

An event can come again: in a new session, where the broker redelivers unacknowledged entries; from
another broker after a move, under other entry numbers and perhaps by another filter; and in the
very session, where its publisher moved and retransmitted it to a second broker. So duplicates are
detected by the publisher's number as soon as an event arrives, not only once it was handled
(`came`). The first copy keeps its place in the queue; the entry of the second is acked after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.protocol.dedup_window import DedupWindow

Numbers: TypeAlias = npt.NDArray[np.int64]


class Entry:
    """Events of one publisher that one ack covers."""

    __slots__ = ("is_here", "number", "open", "publisher", "seqs")

    def __init__(self, number: int, publisher: str, seqs: Numbers, count: int) -> None:
        self.number = number
        """The entry to ack; 0 if a redelivered entry behind it has the number."""
        self.publisher = publisher
        self.seqs = seqs
        self.open = count
        self.is_here = True
        """True if the broker of this session has delivered some of it."""

    def identities(self) -> list[tuple[str, int]]:
        """Return the identities of its events, which do not depend on the entry's number."""
        return [(self.publisher, seq) for seq in self.seqs.tolist()]


class Receipt:
    """A handle to finish some events of an entry; only its first use counts."""

    __slots__ = ("_count", "_entry", "_owner")

    def __init__(self, owner: Receipts, entry: Entry, count: int) -> None:
        self._owner = owner
        self._entry = entry
        self._count = count

    def give(self) -> None:
        """Mark these events as handled."""
        count, self._count = self._count, 0
        self._entry.open -= count
        if count and not self._entry.open:
            self._owner._closed(self._entry)


class Receipts:
    """The delivered entries without an ack.

    >>> acks = []
    >>> receipts = Receipts(acks.append)
    >>> one, two = (receipts.expect(entry, "p", np.array([entry]), 1) for entry in (7, 8))
    >>> receipts.make(two, 1).give()  # the older one is still open
    >>> receipts.make(one, 1).give()
    >>> acks
    [8]
    """

    def __init__(self, send_ack: Callable[[int], None]) -> None:
        self._send_ack: Final = send_ack
        self._entries: deque[Entry] = deque()
        self._awaited: dict[tuple[str, int], Entry] = {}
        """By publisher and number, unhandled events that a new session may redeliver."""
        self._taken: list[Receipt] = []
        self._came = DedupWindow()

    @property
    def open(self) -> int:
        """The number of entries without an ack."""
        return len(self._entries)

    def came(self, publisher: str, seqs: Numbers) -> npt.NDArray[np.bool_]:
        """Return a mask of the events that came for the first time. Call `expect` next."""
        if self._awaited:
            for seq in seqs.tolist():
                entry = self._awaited.get((publisher, seq))
                if entry is not None and not entry.is_here:  # it goes before its redelivery
                    entry.number, entry.is_here = 0, True
                    self._entries.append(entry)
        return self._came.fresh(publisher, seqs)

    def expect(self, number: int, publisher: str, seqs: Numbers, count: int) -> Entry:
        """Register an entry of which `count` events of `seqs` go into the queue."""
        entry = Entry(number, publisher, seqs, count)
        self._entries.append(entry)
        if len(seqs):
            # What `came` let through, and nothing else: no event is delivered twice.
            assert self._came.fresh(publisher, seqs).all()
            self._came.add(publisher, seqs)
        if not count:
            self._closed(entry)
        return entry

    def make(self, entry: Entry, count: int = 1) -> Receipt:
        """Return the receipt for some events of an entry."""
        return Receipt(self, entry, count)

    def take(self, receipt: Receipt) -> None:
        """Record that the consumer took events, until `finish` gives their receipts."""
        self._taken.append(receipt)

    def finish(self) -> None:
        """Give the receipts of all events that the consumer took."""
        taken, self._taken = self._taken, []
        for receipt in taken:
            receipt.give()

    def renew(self) -> None:
        """Expect the redelivery of all unacked entries, as the session is lost."""
        entries, self._entries = self._entries, deque()
        for entry in entries:
            entry.is_here = False
            if entry.open:
                self._awaited.update(dict.fromkeys(entry.identities(), entry))

    def _closed(self, entry: Entry) -> None:
        """Ack the oldest entries up to the first unfinished one."""
        if self._awaited:
            for identity in entry.identities():
                self._awaited.pop(identity, None)
        last = 0
        while self._entries and not self._entries[0].open:
            last = self._entries.popleft().number or last
        if last:
            self._send_ack(last)


def _refuse_ack(_entry: int) -> None:
    raise AssertionError("only a durable subscription has entries")


NO_RECEIPTS: Final = Receipts(_refuse_ack)
"""The receipts of a subscription that is not durable: always empty."""
