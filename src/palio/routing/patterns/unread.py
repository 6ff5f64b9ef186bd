"""`Unread`: events that patterns here might need, and that their assemblies have not looked at yet.

An event may concern a thousand patterns, a publication 16,384 events: to hold each of them back for
each of these takes longer than others may be kept waiting. So a publication is noted for each
pattern in one step, and read in slices. What is noted counts as having come: nothing is let go
before all of it is read, so no event is late because it was not read yet.
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
"""Events that the patterns of one subscriber may have yet to read, counted for each pattern: they
are read in about 3 s. Of more the subscriber is informed that they were missed."""

MAX_UNREAD_BYTES: Final = 64 << 20
"""Bytes of all such events."""


class _Part:
    """Events of one publication, and how many patterns have yet to read them."""

    __slots__ = ("left", "parcel", "size")

    def __init__(self, parcel: Parcel, left: int) -> None:
        self.parcel = parcel
        self.left = left
        self.size = parcel.held_bytes


class _Waiting(NamedTuple):
    part: _Part
    mask: RowMask
    events: int
    subscriber: Peer


class Unread:
    """By number of a pattern, what it has yet to read, in the order in which it came.

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
        part = _Part(parcel, 0)
        if self._bytes + part.size > MAX_UNREAD_BYTES:
            return list(needed)
        missed = []
        for number, mask in needed.items():
            count, subscriber = int(mask.sum()), subscribers[number]
            if self._of_subscriber[subscriber] + count > MAX_UNREAD:
                missed.append(number)
                continue
            waiting = self._waiting.setdefault(number, deque())
            waiting.append(_Waiting(part, mask, count, subscriber))
            self._of_subscriber[subscriber] += count
            self._count += count
            part.left += 1
        if part.left:
            self._bytes += part.size
        return missed

    def read(self, most: int) -> Iterator[tuple[int, Parcel]]:
        """Take out the oldest events of each pattern in turn, up to about so many."""
        while self._waiting and most > 0:
            number = next(iter(self._waiting))
            waiting = self._waiting.pop(number)
            first = waiting.popleft()
            if first.events > most:
                first, rest = self._divided(first, most)
                waiting.appendleft(rest)
            if waiting:
                self._waiting[number] = waiting  # after all others
            most -= first.events
            some = first.part.parcel.select(first.mask)
            self._forget(first)
            yield number, some

    def take(self, number: int) -> list[tuple[Parcel, RowMask]]:
        """Take out all that came for one pattern."""
        waiting = self._waiting.pop(number, ())
        for each in waiting:
            self._forget(each)
        return [(each.part.parcel, each.mask) for each in waiting]

    @staticmethod
    def _divided(whole: _Waiting, count: int) -> tuple[_Waiting, _Waiting]:
        """The first events of a part, and the others."""
        later = whole.mask.copy()
        later[np.flatnonzero(whole.mask)[:count]] = False
        whole.part.left += 1
        return (
            whole._replace(mask=whole.mask & ~later, events=count),
            whole._replace(mask=later, events=whole.events - count),
        )

    def _forget(self, waiting: _Waiting) -> None:
        self._count -= waiting.events
        left = self._of_subscriber[waiting.subscriber] - waiting.events
        if left:
            self._of_subscriber[waiting.subscriber] = left
        else:
            del self._of_subscriber[waiting.subscriber]
        waiting.part.left -= 1
        if not waiting.part.left:
            self._bytes -= waiting.part.size
