"""`Queues`: what waits at one broker, as the fold of the operations that its disk has (L2).

```
Q1  an entry is kept while some queue or stream has it
Q2  offsets of a line only grow, so its order is that of the log
Q3  what is retargeted goes on in the order in which it waited
```

There is a *queue* for each durable subscription that lives here, and a *stream* for each other
broker that is a home. The model is `tests.models.log`.
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
"""Places of what is gone that a line may have beside as many as it holds."""


class Queued(NamedTuple):
    """An entry in the queue of a durable subscription."""

    entry: int
    rows: bytes | None


class Outgoing(NamedTuple):
    """An entry in the stream to a home."""

    entry: int
    shares: tuple[Share, ...]


T = TypeVar("T", Queued, Outgoing)


class Line(Generic[T]):
    """Things in the order of their offsets (Q2).

    >>> line = Line()
    >>> line.put(3, "a"), line.put(5, "b"), line.put(9, "c")
    (None, None, None)
    >>> line.take(5), line.next(3), line.before(9), line.take_to(9), len(line)
    ('b', (9, 'c'), 3, ['a', 'c'], 0)
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._head = 0
        """Places before it are of what is gone: to take out what is first costs no moving."""
        self._items: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        offsets = self._offsets[self._head :]
        return ((offset, self._items[offset]) for offset in offsets if offset in self._items)

    @property
    def last(self) -> int:
        """The last offset that it has had; 0 if that is forgotten."""
        return self._offsets[-1] if self._offsets else 0

    def get(self, offset: int) -> T | None:
        """Return the entry with an offset."""
        return self._items.get(offset)

    def put(self, offset: int, item: T) -> None:
        """Add something behind all others."""
        assert offset > self.last, f"Q2: offset {offset} comes behind {self.last}"
        self._offsets.append(offset)
        self._items[offset] = item

    def change(self, offset: int, item: T) -> None:
        """Put something in the place of what has an offset."""
        assert offset in self._items, f"nothing has offset {offset}"
        self._items[offset] = item

    def next(self, offset: int) -> tuple[int, T] | None:
        """Return the first entry behind an offset."""
        return next(self.following(offset), None)

    def following(self, offset: int) -> Iterator[tuple[int, T]]:
        """All that come behind an offset."""
        for place in range(self._place_after(offset), len(self._offsets)):
            found = self._offsets[place]
            if found in self._items:
                yield found, self._items[found]

    def before(self, offset: int) -> int:
        """The last offset before one; 0 if there is none."""
        end = bisect_left(self._offsets, offset, lo=self._head)
        for place in range(end - 1, self._head - 1, -1):
            if self._offsets[place] in self._items:
                return self._offsets[place]
        return 0

    def take(self, offset: int) -> T | None:
        """Take out what has an offset, if something has."""
        found = self._items.pop(offset, None)
        self._tidy()
        return found

    def take_to(self, offset: int) -> list[T]:
        """Take out all up to an offset."""
        end = self._place_after(offset)
        offsets = self._offsets[self._head : end]
        self._head = end
        gone = [self._items.pop(each) for each in offsets if each in self._items]
        self._tidy()
        return gone

    def _place_after(self, offset: int) -> int:
        return bisect_right(self._offsets, offset, lo=self._head)

    def _tidy(self) -> None:
        if len(self._offsets) > 2 * len(self._items) + STALE:
            self._offsets = [each for each in self._offsets if each in self._items]
            self._head = 0


class HomeStream:
    """The entries that this broker has for one home, in order."""

    def __init__(self) -> None:
        self.log = 0
        """Which log the home has; 0 if that is not known yet."""
        self.base = 0
        """Up to where the home has stored it, as the disk knows."""
        self.line: Line[Outgoing] = Line()
        self._places: dict[str, list[int]] = {}
        self._placed = 0

    def previous(self, offset: int) -> int:
        """The offset that the home has before one that it gets (D1)."""
        return max(self.base, self.line.before(offset))

    def put(self, offset: int, entry: int, shares: tuple[Share, ...]) -> None:
        """Add an entry behind all others."""
        assert offset > self.base, f"Q2: offset {offset} comes behind {self.base}, which is stored"
        self.line.put(offset, Outgoing(entry, shares))
        self._note(offset, shares)

    def count(self, subject: str) -> int:
        """For a durable subscription it has so many shares at most."""
        return len(self._places.get(subject, ()))

    @property
    def subjects(self) -> list[str]:
        """For whom it may have something."""
        return list(self._places)

    def take(self, subject: str, sent: int) -> list[tuple[int, Queued]]:
        """Take out what it has for a durable subscription, but for what may have been sent."""
        taken: list[tuple[int, Queued]] = []
        kept = []
        for offset in self._places.pop(subject, ()):
            found = self.line.get(offset)
            if found is None:
                continue
            if offset <= sent:
                kept.append(offset)
                continue
            mine = next(share for share in found.shares if share.subject == subject)
            others = tuple(share for share in found.shares if share.subject != subject)
            taken.append((offset, Queued(found.entry, mine.rows)))
            if others:
                self.line.change(offset, Outgoing(found.entry, others))
            else:
                self.line.take(offset)
        if kept:
            self._places[subject] = kept
        return taken

    def release(self, upto: int) -> list[Outgoing]:
        """The home has it up to an offset."""
        gone = self.line.take_to(upto)
        self.base = max(self.base, upto)
        if not self.line:
            self._places, self._placed = {}, 0
        elif self._placed > 2 * len(self.line) + STALE:
            self._places, self._placed = {}, 0
            for offset, item in self.line:
                self._note(offset, item.shares)
        return gone

    def _note(self, offset: int, shares: Iterable[Share]) -> None:
        for share in shares:
            self._places.setdefault(share.subject, []).append(offset)
        self._placed += 1


class Queues:
    """All queues and streams of a broker, and who needs which entry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.here: dict[str, Line[Queued]] = {}
        self.streams: dict[str, HomeStream] = {}
        self.cursors: dict[str, Cursor] = {}
        """How far this broker, as a home, has the stream of each origin."""
        self.published: dict[str, int] = {}
        """The last number of each publisher that is kept, the latest publisher last."""
        self._uses: dict[int, int] = {}

    def stream(self, home: str) -> HomeStream:
        """The stream to a home, made if there is none."""
        assert home != self.name, "a broker has no stream to itself"
        return self.streams.setdefault(home, HomeStream())

    @property
    def entries(self) -> int:
        """How many are kept."""
        return len(self._uses)

    @property
    def carried(self) -> dict[str, int]:
        """By home, how many of these it is yet to store."""
        return {home: len(each.line) for home, each in self.streams.items() if each.line}

    def count(self, subject: str) -> int:
        """So much waits for a durable subscription at most, in its queue and in all streams."""
        there = sum(stream.count(subject) for stream in self.streams.values())
        return there + len(self.here.get(subject, ()))

    def apply(self, operation: Operation) -> list[int]:
        """Durable state after one more operation; the entries that nobody needs any more (Q1)."""
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
                gone = stream.release(upto) if log == stream.log else []
                return self._used(item.entry for item in gone for _ in item.shares)
            case _:
                self._count(operation)
        return []

    def _count(self, operation: Operation) -> None:
        """How far origins, publishers and homes are."""
        match operation:
            case Cursor(origin, log, offset):
                before = self.cursors.get(origin, Cursor(origin, 0, 0))
                assert (log, offset) > before[1:], f"D1: the cursor of {origin} goes back"
                self.cursors[origin] = operation
            case Numbered(publisher, last):
                known = self.published.pop(publisher, -1)
                assert last > known, f"D1: the numbers of {publisher} go back"
                self.published[publisher] = last
            case Forgotten(publishers):
                for publisher in publishers:
                    self.published.pop(publisher, None)
            case Renew(home, log):
                stream = self.stream(home)
                assert log > stream.log, f"D7: the log of {home} goes back"
                stream.log, stream.base = log, 0
            case CaughtUp():  # another log: what was sent by the former one counts for nobody
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
        """Somebody needs an entry, here or at another home."""
        self._uses[entry] = self._uses.get(entry, 0) + len(shares)
        if home != self.name:
            self.stream(home).put(offset, entry, shares)
            return
        for share in shares:
            line = self.here.setdefault(share.subject, Line())
            line.put(offset, Queued(entry, share.rows))

    def _retarget(self, what: Retarget) -> None:
        moved = self._taken(what.subject, what.to, dict(what.sent))
        assert len(moved) <= what.reserved, f"Q3: {len(moved)} take {what.reserved} new offsets"
        for offset, (_, held) in enumerate(moved, what.first):
            if what.to == self.name:
                line = self.here.setdefault(what.subject, Line())
                line.put(offset, held)
            else:
                share = Share(what.subject, what.number, held.rows)
                self.stream(what.to).put(offset, held.entry, (share,))

    def _taken(self, subject: str, to: str, sent: dict[str, int]) -> list[tuple[int, Queued]]:
        """Take out what waits for a durable subscription, in order, but for what is in its place
        and what others may have (D4).
        """
        taken: list[tuple[int, Queued]] = []
        if to != self.name:
            taken += self.here.pop(subject, Line[Queued]())
        for home, stream in self.streams.items():
            if home != to:
                taken += stream.take(subject, sent.get(home, 0))
        return sorted(taken, key=lambda item: item[0])

    def _acknowledged(self, subject: str, upto: int, others: Iterable[int]) -> list[Queued]:
        line = self.here.get(subject)
        if line is None:  # it has moved meanwhile
            return []
        gone = line.take_to(upto)
        return gone + [held for held in map(line.take, others) if held is not None]

    def _used(self, entries: Iterable[int]) -> list[int]:
        over = []
        for entry in entries:
            self._uses[entry] -= 1
            if not self._uses[entry]:
                del self._uses[entry]
                over.append(entry)
        return over
