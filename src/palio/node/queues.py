"""`Queues`: the durable backlog of one broker, as the fold of the operations on its disk (L2).

It has a *queue* for each durable subscription whose home is here, and a *stream* for each other
broker that is a home.

```
Q1  an entry is stored while some queue or stream has it
Q2  offsets of a queue or stream only grow, so its order is that of the log
Q3  a retargeted backlog keeps its order
```

The model is `tests.models.log`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from palio.node.operations import (
    Ack,
    CaughtUp,
    Close,
    Cursor,
    Forgotten,
    Numbered,
    Operation,
    Place,
    Put,
    Release,
    Renew,
    Retarget,
    Target,
)
from palio.protocol.messages import Share

STALE: Final = 64
"""Removed offsets that a queue may hold, beside as many as it has entries, before it is compacted:
so removal takes constant time on average."""


class Queued(NamedTuple):
    """An entry in the queue of a durable subscription."""

    entry: int
    rows: bytes | None


class Outgoing(NamedTuple):
    """An entry in the stream to a home."""

    entry: int
    shares: tuple[Share, ...]


T = TypeVar("T", Queued, Outgoing)


class OffsetQueue(Generic[T]):
    """Entries in the order of their offsets (Q2).

    >>> queue = OffsetQueue()
    >>> queue.put(3, "a"), queue.put(5, "b"), queue.put(9, "c")
    (None, None, None)
    >>> queue.take(5), queue.next(3), queue.before(9), queue.take_to(9), len(queue)
    ('b', (9, 'c'), 3, ['a', 'c'], 0)
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._head = 0
        """The index of the first offset in use: removing at the front moves no others."""
        self._items: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        offsets = self._offsets[self._head :]
        return ((offset, self._items[offset]) for offset in offsets if offset in self._items)

    @property
    def last(self) -> int:
        """The last offset ever put, or 0 after compaction of an empty queue."""
        return self._offsets[-1] if self._offsets else 0

    def get(self, offset: int) -> T | None:
        """Return the entry with an offset."""
        return self._items.get(offset)

    def put(self, offset: int, item: T) -> None:
        """Add an entry behind all others."""
        assert offset > self.last, f"Q2: offset {offset} comes behind {self.last}"
        self._offsets.append(offset)
        self._items[offset] = item

    def change(self, offset: int, item: T) -> None:
        """Replace the entry at an offset."""
        assert offset in self._items, f"no entry at offset {offset}"
        self._items[offset] = item

    def next(self, offset: int) -> tuple[int, T] | None:
        """Return the first entry behind an offset."""
        return next(self.following(offset), None)

    def following(self, offset: int) -> Iterator[tuple[int, T]]:
        """Yield the entries behind an offset."""
        for index in range(self._index_after(offset), len(self._offsets)):
            later = self._offsets[index]
            if later in self._items:
                yield later, self._items[later]

    def before(self, offset: int) -> int:
        """Return the last offset before one; 0 if there is none."""
        end = bisect_left(self._offsets, offset, lo=self._head)
        for index in range(end - 1, self._head - 1, -1):
            if self._offsets[index] in self._items:
                return self._offsets[index]
        return 0

    def take(self, offset: int) -> T | None:
        """Remove and return the entry at an offset, if there is one."""
        item = self._items.pop(offset, None)
        self._compact()
        return item

    def take_to(self, offset: int) -> list[T]:
        """Remove and return all entries up to an offset."""
        end = self._index_after(offset)
        offsets = self._offsets[self._head : end]
        self._head = end
        items = [self._items.pop(each) for each in offsets if each in self._items]
        self._compact()
        return items

    def _index_after(self, offset: int) -> int:
        return bisect_right(self._offsets, offset, lo=self._head)

    def _compact(self) -> None:
        if len(self._offsets) > 2 * len(self._items) + STALE:
            self._offsets = [each for each in self._offsets if each in self._items]
            self._head = 0


class HomeStream:
    """The entries of this broker for one home, in order."""

    def __init__(self) -> None:
        self.log = 0
        """The number of the home's log; 0 if it is not known yet."""
        self.base = 0
        """The offset up to which the home has stored the stream, by our disk."""
        self.entries: OffsetQueue[Outgoing] = OffsetQueue()
        self._offsets_of: dict[str, list[int]] = {}
        self._indexed = 0

    def previous(self, offset: int) -> int:
        """Return the offset that the home must have before it takes this one (D1)."""
        return max(self.base, self.entries.before(offset))

    def put(self, offset: int, entry: int, shares: tuple[Share, ...]) -> None:
        """Add an entry behind all others."""
        assert offset > self.base, f"Q2: offset {offset} comes behind {self.base}, which was acked"
        self.entries.put(offset, Outgoing(entry, shares))
        self._index(offset, shares)

    def count(self, subject: str) -> int:
        """Return an upper bound of the entries for a durable subscription."""
        return len(self._offsets_of.get(subject, ()))

    @property
    def subjects(self) -> list[str]:
        """The durable subscriptions that may have entries."""
        return list(self._offsets_of)

    def take(self, subject: str, sent: int) -> list[tuple[int, Queued]]:
        """Remove and return the entries for a durable subscription behind the offset `sent`."""
        taken: list[tuple[int, Queued]] = []
        kept = []
        for offset in self._offsets_of.pop(subject, ()):
            item = self.entries.get(offset)
            if item is None:
                continue
            if offset <= sent:
                kept.append(offset)
                continue
            mine = next(share for share in item.shares if share.subject == subject)
            others = tuple(share for share in item.shares if share.subject != subject)
            taken.append((offset, Queued(item.entry, mine.rows)))
            if others:
                self.entries.change(offset, Outgoing(item.entry, others))
            else:
                self.entries.take(offset)
        if kept:
            self._offsets_of[subject] = kept
        return taken

    def release(self, upto: int) -> list[Outgoing]:
        """Remove and return the entries that the home has stored."""
        stored = self.entries.take_to(upto)
        self.base = max(self.base, upto)
        if not self.entries:
            self._offsets_of, self._indexed = {}, 0
        elif self._indexed > 2 * len(self.entries) + STALE:
            self._offsets_of, self._indexed = {}, 0
            for offset, item in self.entries:
                self._index(offset, item.shares)
        return stored

    def _index(self, offset: int, shares: Iterable[Share]) -> None:
        for share in shares:
            self._offsets_of.setdefault(share.subject, []).append(offset)
        self._indexed += 1


class Queues:
    """All queues and streams of a broker, with a reference count for each entry (Q1)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.here: dict[str, OffsetQueue[Queued]] = {}
        self.streams: dict[str, HomeStream] = {}
        self.cursors: dict[str, Cursor] = {}
        """By origin, the position up to which this broker, as a home, has stored its stream."""
        self.published: dict[str, int] = {}
        """By publisher, the last number that is stored; the latest publisher is last."""
        self._uses: dict[int, int] = {}

    def stream(self, home: str) -> HomeStream:
        """Return the stream to a home, made if there is none."""
        assert home != self.name, "a broker has no stream to itself"
        return self.streams.setdefault(home, HomeStream())

    @property
    def entries(self) -> int:
        """The number of entries that are stored."""
        return len(self._uses)

    @property
    def carried(self) -> dict[str, int]:
        """By home with a backlog, the number of entries that it has yet to store."""
        return {home: len(each.entries) for home, each in self.streams.items() if each.entries}

    def count(self, subject: str) -> int:
        """Return an upper bound of the backlog of a durable subscription, in queue and streams."""
        there = sum(stream.count(subject) for stream in self.streams.values())
        return there + len(self.here.get(subject, ()))

    def apply(self, operation: Operation) -> list[int]:
        """Apply an operation, and return the entries that are no longer needed (Q1)."""
        match operation:
            case Put(entry, _, _, targets):
                self._put(entry, targets)
            case Place(home, offset, entry, shares):
                self._place(home, offset, entry, shares)
            case Retarget():
                self._retarget(operation)
            case Close(subject, sent):
                return self._used(held.entry for _, held in self._taken(subject, "", dict(sent)))
            case Ack(subject, upto, others):
                return self._used(held.entry for held in self._acknowledged(subject, upto, others))
            case Release(home, log, upto):
                stream = self.stream(home)
                items = stream.release(upto) if log == stream.log else []
                return self._used(item.entry for item in items for _ in item.shares)
            case _:
                self._advance(operation)
        return []

    def _advance(self, operation: Operation) -> None:
        """Advance the positions of origins, publishers and homes."""
        match operation:
            case Cursor(origin, log, offset):
                before = self.cursors.get(origin, Cursor(origin, 0, 0))
                assert (log, offset) > before[1:], f"D1: the cursor of {origin} goes back"
                self.cursors[origin] = operation
            case Numbered(publisher, last):
                before_last = self.published.pop(publisher, -1)
                assert last > before_last, f"D1: the numbers of {publisher} go back"
                self.published[publisher] = last
            case Forgotten(publishers):
                for publisher in publishers:
                    self.published.pop(publisher, None)
            case Renew(home, log):
                stream = self.stream(home)
                assert log > stream.log, f"D7: the log of {home} goes back"
                stream.log, stream.base = log, 0
            case CaughtUp():  # another log: homes start over, and so does this broker as a home
                self.cursors.clear()
                for stream in self.streams.values():
                    stream.base = 0
            case _:
                pass

    def _put(self, entry: int, targets: Iterable[Target]) -> None:
        assert entry not in self._uses, f"entry {entry} is put twice"
        for home, offset, shares in targets:
            self._place(home, offset, entry, shares)

    def _place(self, home: str, offset: int, entry: int, shares: tuple[Share, ...]) -> None:
        """Add an entry to its queues here, or to the stream of another home."""
        self._uses[entry] = self._uses.get(entry, 0) + len(shares)
        if home != self.name:
            self.stream(home).put(offset, entry, shares)
            return
        for share in shares:
            queue = self.here.setdefault(share.subject, OffsetQueue())
            queue.put(offset, Queued(entry, share.rows))

    def _retarget(self, move: Retarget) -> None:
        moved = self._taken(move.subject, move.to, dict(move.sent))
        assert len(moved) <= move.reserved, f"Q3: {len(moved)} take {move.reserved} new offsets"
        for offset, (_, held) in enumerate(moved, move.first):
            if move.to == self.name:
                queue = self.here.setdefault(move.subject, OffsetQueue())
                queue.put(offset, held)
            else:
                share = Share(move.subject, move.number, held.rows)
                self.stream(move.to).put(offset, held.entry, (share,))

    def _taken(self, subject: str, to: str, sent: dict[str, int]) -> list[tuple[int, Queued]]:
        """Remove and return the backlog of a durable subscription, in order, except entries that
        are at `to` already and those that other homes may have (D4).
        """
        taken: list[tuple[int, Queued]] = []
        if to != self.name:
            taken += self.here.pop(subject, OffsetQueue[Queued]())
        for home, stream in self.streams.items():
            if home != to:
                taken += stream.take(subject, sent.get(home, 0))
        return sorted(taken, key=lambda item: item[0])

    def _acknowledged(self, subject: str, upto: int, others: Iterable[int]) -> list[Queued]:
        queue = self.here.get(subject)
        if queue is None:  # it has moved meanwhile
            return []
        return queue.take_to(upto) + [held for held in map(queue.take, others) if held is not None]

    def _used(self, entries: Iterable[int]) -> list[int]:
        unneeded = []
        for entry in entries:
            self._uses[entry] -= 1
            if not self._uses[entry]:
                del self._uses[entry]
                unneeded.append(entry)
        return unneeded
