"""What a durable subscription owes its broker: entries of custody, each until it is dealt with.

A broker numbers what it delivers out of custody. An acknowledgement covers all entries up to one,
so it is said when every event of the oldest entry, and of those after it, has been dealt with.

When a session is lost, the broker delivers again what it has no acknowledgement of, and after a
move another broker does so under numbers of its own. What still waits here, or is being dealt with,
is known by its publisher's numbers: it keeps its place in the queue and takes on the new number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.protocol.seen_numbers import SeenNumbers

__all__ = ["NO_RECEIPTS", "Entry", "Receipt", "Receipts"]

Numbers: TypeAlias = npt.NDArray[np.int64]


class Entry:
    """Events of one publisher that are acknowledged together."""

    __slots__ = ("is_here", "number", "open", "publisher", "seqs")

    def __init__(self, number: int, publisher: str, seqs: Numbers, count: int) -> None:
        self.number = number
        self.publisher = publisher
        self.seqs = seqs
        self.open = count
        self.is_here = True
        """Whether the broker of now has delivered it."""

    @property
    def identity(self) -> tuple[str, bytes]:
        """What is the same under whatever number it comes."""
        return self.publisher, self.seqs.tobytes()


class Receipt:
    """What is given back for some events of an entry, once."""

    __slots__ = ("_count", "_entry", "_owner")

    def __init__(self, owner: Receipts, entry: Entry, count: int) -> None:
        self._owner = owner
        self._entry = entry
        self._count = count

    def give(self) -> None:
        """These events have been dealt with."""
        count, self._count = self._count, 0
        self._entry.open -= count
        if count and not self._entry.open:
            self._owner._closed(self._entry)


class Receipts:
    """The entries that were delivered and not acknowledged.

    >>> said = []
    >>> receipts = Receipts(said.append)
    >>> one, two = (receipts.expect(entry, "p", np.array([entry]), 1) for entry in (7, 8))
    >>> receipts.make(two, 1).give()  # the older one is still open
    >>> receipts.make(one, 1).give()
    >>> said
    [8]
    """

    def __init__(self, say: Callable[[int], None]) -> None:
        self._say: Final = say
        self._entries: deque[Entry] = deque()
        self._awaited: dict[tuple[str, bytes], Entry] = {}
        self._taken: list[Receipt] = []
        self._dealt_with = SeenNumbers()

    @property
    def open(self) -> int:
        """Entries that were not acknowledged."""
        return len(self._entries)

    def again(self, number: int, publisher: str, seqs: Numbers) -> bool:
        """Whether these events wait here already; then it is noted under which number they came."""
        entry = self._awaited.pop((publisher, seqs.tobytes()), None)
        if entry is None:
            return False
        entry.number, entry.is_here = number, True
        self._entries.append(entry)
        return True

    def fresh(self, publisher: str, seqs: Numbers) -> npt.NDArray[np.bool_]:
        """Which events were not dealt with before, under whatever number."""
        return self._dealt_with.fresh(publisher, seqs)

    def expect(self, number: int, publisher: str, seqs: Numbers, count: int) -> Entry:
        """An entry came, of which so many events go into the queue."""
        entry = Entry(number, publisher, seqs, count)
        self._entries.append(entry)
        if not count:
            self._closed(entry)
        return entry

    def make(self, entry: Entry, count: int = 1) -> Receipt:
        """The receipt for some events of an entry."""
        return Receipt(self, entry, count)

    def take(self, receipt: Receipt) -> None:
        """The consumer has taken events: `finish` will give their receipts."""
        self._taken.append(receipt)

    def finish(self) -> None:
        """The consumer has dealt with all it has taken."""
        taken, self._taken = self._taken, []
        for receipt in taken:
            receipt.give()

    def renew(self) -> None:
        """The session is lost: what was not acknowledged will come again."""
        entries, self._entries = self._entries, deque()
        for entry in entries:
            entry.is_here = False
            if entry.open:
                self._awaited[entry.identity] = entry

    def _closed(self, entry: Entry) -> None:
        """All of an entry has been dealt with."""
        if len(entry.seqs):
            self._dealt_with.add(entry.publisher, entry.seqs)
        if not entry.is_here:
            self._awaited.pop(entry.identity, None)
            return
        last = 0
        while self._entries and not self._entries[0].open:
            last = self._entries.popleft().number
        if last:
            self._say(last)


def _unsaid(_entry: int) -> None:
    raise AssertionError("what is not durable has no entries")


NO_RECEIPTS: Final = Receipts(_unsaid)
"""Those of a subscription that is not durable: there never are any."""
