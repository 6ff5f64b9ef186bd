"""`Log`: what the disk of a broker keeps, and what is under way to it.

Durable state is the fold of the operations that were stored, and of nothing else, so nothing is
ever undone. What is under way is one `Overlay` over it: decisions about what comes in are made by
that, and it is thrown away as a whole when the disk refuses.

```
L1  what is on the disk is a prefix of what was appended, but for what only lets go
L2  durable state changes on `stored` and nowhere else
L3  what is under way is thrown away as a whole
L4  whoever waits is told after `stored`
```

The model of it is `tests.models.durable`; `palio.node.queues` is the fold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

from palio.node.limits import MAX_RELEASES, RELEASE_S, RIPE_S
from palio.node.operations import (
    Ack,
    Append,
    Claim,
    Close,
    Cursor,
    Discard,
    Forgotten,
    Numbered,
    Open,
    Operation,
    Put,
    Release,
    Releasing,
    Renew,
    Retarget,
)


class Pending(NamedTuple):
    """An append that is under way."""

    operations: tuple[Operation, ...]
    released: tuple[Releasing, ...]
    token: Any
    """Whoever waits for it."""


# --- what is under way ---


class Overlay:
    """Durable state as it will be, beside what it is, if nothing is refused (L3).

    >>> overlay = Overlay()
    >>> overlay.add(1, Cursor("b2", 1, 7))
    >>> overlay.add(2, Cursor("b2", 1, 9))
    >>> overlay.remove(1, Cursor("b2", 1, 7))
    >>> overlay.cursor("b2").offset
    9
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[type[Operation], str], tuple[int, Operation]] = {}
        self.moving: Counter[str] = Counter()
        """Durable subscriptions of which something is retargeted: nothing more of them goes out."""
        self.shares: Counter[str] = Counter()
        """The operations that are put for each."""

    def add(self, ticket: int, operation: Operation) -> None:
        """An operation is under way."""
        key = _key(operation)
        if key is not None:
            self._newest[key] = ticket, operation
        self._count(operation, 1)

    def remove(self, ticket: int, operation: Operation) -> None:
        """It is stored."""
        key = _key(operation)
        if key is not None and self._newest[key][0] == ticket:
            del self._newest[key]
        self._count(operation, -1)

    def _count(self, operation: Operation, by: int) -> None:
        counts, subjects = self.moving, tuple[str, ...]()
        match operation:
            case Retarget(subject) | Close(subject):
                subjects = (subject,)
            case Put():
                counts = self.shares
                subjects = tuple(s.subject for target in operation.targets for s in target.shares)
            case _:
                pass
        for subject in subjects:
            counts[subject] += by
            assert counts[subject] >= 0, f"more is stored of {subject} than was appended"
            if not counts[subject]:
                del counts[subject]

    def claim(self, subject: str) -> Claim | None:
        """The newest of a durable subscription that is under way."""
        found = self._newest.get((Open, subject), (0, None))[1]
        return found.claim if isinstance(found, Open) else None

    @property
    def claimed(self) -> list[str]:
        """Those durable subscriptions."""
        return [name for kind, name in self._newest if kind is Open]

    def cursor(self, origin: str) -> Cursor | None:
        """The same of an origin."""
        found = self._newest.get((Cursor, origin), (0, None))[1]
        return found if isinstance(found, Cursor) else None

    def published(self, publisher: str) -> int:
        """The same of what a publisher has sent; -1 for nothing."""
        found = self._newest.get((Numbered, publisher), (0, None))[1]
        return found.last if isinstance(found, Numbered) else -1

    def log_of(self, home: str) -> int:
        """The same of the log of a home; 0 for none."""
        found = self._newest.get((Renew, home), (0, None))[1]
        return found.log if isinstance(found, Renew) else 0


def _key(operation: Operation) -> tuple[type[Operation], str] | None:
    match operation:
        case Open(claim):
            return Open, claim.subject
        case Cursor(origin):
            return Cursor, origin
        case Renew(home):
            return Renew, home
        case Numbered(publisher):
            return Numbered, publisher
        case _:
            return None


class Log:
    """Appends of one broker, in order, and whether its disk takes them."""

    def __init__(self, last_offset: int = 0) -> None:
        self.last_offset = last_offset
        """The last that was given away."""
        self._next_ticket = 1
        self._under_way: dict[int, Pending] = {}
        self._acks: dict[str, Ack] = {}
        self._releases: dict[str, Release] = {}
        self._over: list[int] = []
        self._forgotten: list[str] = []
        self._ripe_at = inf
        self.due_at = inf
        """When to write what is let go, though nothing else is written."""
        self.term = 0
        self.is_refusing = False
        self.overlay = Overlay()

    def offsets(self, count: int = 1) -> int:
        """The first of some that nobody has: they are used once, also if they are never stored."""
        first = self.last_offset + 1
        self.last_offset += count
        return first

    def append(
        self, now: float, operations: Sequence[Operation], token: Any = None
    ) -> Append | None:
        """Append operations that grow; None if the disk refuses, and nothing has changed (L1)."""
        assert operations, "an append of nothing"
        assert not any(isinstance(each, Releasing) for each in operations)
        if self.is_refusing:
            return None
        # What an owner has dealt with does not follow it, and does not come to it again.
        is_claim = any(isinstance(each, Open | Retarget | Close) for each in operations)
        is_ripe = now >= self._ripe_at
        return self._write(tuple(operations), token, with_released=is_ripe or is_claim)

    def barrier(self, token: Any) -> Append | None:
        """Append nothing, behind all that is under way; None if that is nothing."""
        if not self._under_way:
            return None
        return self._write((), token, with_released=False)

    def release(self, now: float, operation: Releasing) -> None:
        """Let go of something, with what is written soon."""
        match operation:
            case Ack(subject, upto, others, bookmark):
                known = self._acks.get(subject, Ack(subject, 0))
                upto = max(upto, known.upto)
                above = tuple(sorted({each for each in known.others + others if each > upto}))
                self._acks[subject] = Ack(subject, upto, above, bookmark or known.bookmark)
            case Release(home):
                self._releases[home] = max(operation, self._releases.get(home, operation))
            case Discard(entries):
                self._over += entries
            case Forgotten(publishers):
                self._forgotten += publishers
        are_many = len(self._over) >= MAX_RELEASES
        self._ripe_at = min(self._ripe_at, now + RIPE_S)
        self.due_at = min(self.due_at, now if are_many else now + RELEASE_S)

    def flush(self, now: float) -> Append | None:
        """Append what is let go if it is time: that the disk refuses is no reason not to try."""
        if now < self.due_at or self.due_at == inf:
            return None
        return self._write((), None, with_released=True)

    def _write(
        self, operations: tuple[Operation, ...], token: Any, *, with_released: bool
    ) -> Append:
        released: tuple[Releasing, ...] = ()
        if with_released:
            over = [Discard(tuple(self._over))] if self._over else []
            gone = [Forgotten(tuple(self._forgotten))] if self._forgotten else []
            released = (*self._acks.values(), *self._releases.values(), *over, *gone)
            self._acks, self._releases, self._over, self._forgotten = {}, {}, [], []
            self._ripe_at = self.due_at = inf
        ticket = self._next_ticket
        self._next_ticket += 1
        self._under_way[ticket] = Pending(operations, released, token)
        for each in operations:
            self.overlay.add(ticket, each)
        return Append(ticket, self.term, operations, released)

    @property
    def under_way(self) -> int:
        """How many appends are not answered."""
        return len(self._under_way)

    def stored(self, ticket: int) -> Pending:
        """An append is on the disk: durable state may change (L2)."""
        first = next(iter(self._under_way), None)
        assert first == ticket, f"L1: append {ticket} is stored, and {first} is before it"
        pending = self._under_way.pop(ticket)
        for each in pending.operations:
            self.overlay.remove(ticket, each)
        return pending

    def refused(self, now: float, ticket: int) -> list[Pending]:
        """An append is not on the disk, and so none behind it is: all of them (L3).

        Nothing is appended until the disk takes writes again; what is let go is tried again.
        """
        if ticket not in self._under_way:
            return []  # it was behind another
        first = next(iter(self._under_way))
        assert first == ticket, f"L1: append {ticket} is refused, and {first} is before it"
        thrown = list(self._under_way.values())
        self._under_way.clear()
        self.overlay = Overlay()
        self.term += 1
        self.is_refusing = True
        for pending in thrown:
            for each in pending.released:
                self.release(now, each)
        return thrown

    def writable(self) -> None:
        """The disk takes writes again."""
        self.is_refusing = False
