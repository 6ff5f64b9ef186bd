"""`Unread`: events that patterns here may need, and that their assemblies have yet to read.

An event may concern a thousand patterns, and a publication has up to 16,384 events: to hold each of
them back for each pattern at once would block the broker. So a publication is noted for each
pattern in one step, and read in slices. No event is released before all unread ones are read, so
none is late because of that.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.protocol import Peer

MAX_UNREAD: Final = 1_000_000
"""Unread events of one subscriber's patterns, counted for each pattern: they are read in about 3 s.
More are reported to the subscriber as missed."""

MAX_UNREAD_BYTES: Final = 64 << 20
"""Bytes of all unread events."""


class _Publication:
    """Events of one publication, and the number of patterns that have yet to read them."""

    __slots__ = ("left", "parcel", "size")

    def __init__(self, parcel: Parcel, left: int) -> None:
        self.parcel = parcel
        self.left = left
        self.size = parcel.held_bytes


class _Waiting(NamedTuple):
    publication: _Publication
    mask: RowMask
    events: int
    subscriber: Peer


class Unread:
    """The events that each pattern has yet to read, in the order in which they came.

    >>> import numpy as np
    >>> from palio.model.row_parcels import RowParcel
    >>> unread, alice = Unread(), Peer.client("alice")
    >>> unread.note(RowParcel("p", [{"a": 1}, {"a": 2}]), {7: np.array([True, False])}, {7: alice})
    []
    >>> len(unread), [(number, some.rows) for number, some in unread.read(most=10)], len(unread)
    (1, [(7, ({'a': 1},))], 0)
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._of_subscriber: Counter[Peer] = Counter()
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Events yet to be read, counted for each pattern."""
        return self._count

    def note(
        self, parcel: Parcel, needed: dict[int, RowMask], subscribers: dict[int, Peer]
    ) -> list[int]:
        """Add events, some for each of these patterns; return patterns without space for them."""
        publication = _Publication(parcel, 0)
        if self._bytes + publication.size > MAX_UNREAD_BYTES:
            return list(needed)
        missed = []
        # By subscriber, so that one with many patterns leaves space for the others.
        for number, mask in needed.items():
            count, subscriber = int(mask.sum()), subscribers[number]
            if self._of_subscriber[subscriber] + count > MAX_UNREAD:
                missed.append(number)
                continue
            waiting = self._waiting.setdefault(number, deque())
            waiting.append(_Waiting(publication, mask, count, subscriber))
            self._of_subscriber[subscriber] += count
            self._count += count
            publication.left += 1
        if publication.left:  # patterns share its memory: it is counted once
            self._bytes += publication.size
        return missed

    def read(self, most: int) -> Iterator[tuple[int, Parcel]]:
        """Take the earliest publication of each pattern in turn, about `most` events in all."""
        while self._waiting and most > 0:
            # Round robin: a pattern with a large backlog delays others by one slice.
            number = next(iter(self._waiting))
            waiting = self._waiting.pop(number)
            first = waiting.popleft()
            if first.events > most:
                first, rest = self._divided(first, most)
                waiting.appendleft(rest)
            if waiting:
                self._waiting[number] = waiting  # behind all others
            most -= first.events
            some = first.publication.parcel.select(first.mask)
            self._remove(first)
            yield number, some

    def take(self, number: int) -> list[tuple[Parcel, RowMask]]:
        """Take all events of one pattern."""
        entries = self._waiting.pop(number, ())
        for entry in entries:
            self._remove(entry)
        return [(entry.publication.parcel, entry.mask) for entry in entries]

    @staticmethod
    def _divided(whole: _Waiting, count: int) -> tuple[_Waiting, _Waiting]:
        """Divide an entry into its first events and the others."""
        later = whole.mask.copy()
        later[np.flatnonzero(whole.mask)[:count]] = False
        whole.publication.left += 1
        return (
            whole._replace(mask=whole.mask & ~later, events=count),
            whole._replace(mask=later, events=whole.events - count),
        )

    def _remove(self, waiting: _Waiting) -> None:
        self._count -= waiting.events
        left = self._of_subscriber[waiting.subscriber] - waiting.events
        if left:
            self._of_subscriber[waiting.subscriber] = left
        else:
            del self._of_subscriber[waiting.subscriber]
        waiting.publication.left -= 1
        if not waiting.publication.left:
            self._bytes -= waiting.publication.size
