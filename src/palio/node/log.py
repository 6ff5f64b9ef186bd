"""`Log`: the write-ahead log of a broker, its appends in flight, and batches of releases.

Durable state is the fold of the operations that are stored, and of nothing else, so it needs no
undo. The appends in flight form one `Overlay` over it. Inputs are judged by stored state and
overlay together; when the disk refuses an append, the overlay is discarded as a whole.

```
L1  the disk has a prefix of all appends, releases excepted
L2  durable state changes on `stored` and nowhere else
L3  appends in flight are discarded as a whole
L4  callers are notified after `stored`
```

A *release* only removes: an acknowledgement, an entry that is no longer needed. Releases commute
with all other operations, so they wait to be written together with later appends.

The model is `tests.models.durable`; `palio.node.queues` is the fold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
    Place,
    Put,
    Release,
    Releasing,
    Renew,
    Retarget,
)


class Pending(NamedTuple):
    """An append in flight; `token` identifies the caller that waits for it."""

    operations: tuple[Operation, ...]
    released: tuple[Releasing, ...]
    token: Any


# --- appends in flight ---


class Overlay:
    """The changes to durable state by appends in flight, if none is refused (L3).

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
        """Durable subscriptions with a `Retarget` or `Close` in flight. None of their entries is
        sent for the first time now: it would reach the old home and the new one."""
        self.shares: Counter[str] = Counter()
        """By durable subscription, the entries put for it that are in flight."""

    def add(self, ticket: int, operation: Operation) -> None:
        """Add an operation that was appended."""
        key = _key(operation)
        if key is not None:
            self._newest[key] = ticket, operation
        self._count(operation, 1)

    def remove(self, ticket: int, operation: Operation) -> None:
        """Remove an operation that is stored."""
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
            case Place():
                counts = self.shares
                subjects = tuple(share.subject for share in operation.shares)
            case _:
                pass
        for subject in subjects:
            counts[subject] += by
            assert counts[subject] >= 0, f"{subject}: more operations stored than appended"
            if not counts[subject]:
                del counts[subject]

    def claim(self, subject: str) -> Claim | None:
        """Return the newest claim of a durable subscription that is in flight."""
        operation = self._newest.get((Open, subject), (0, None))[1]
        return operation.claim if isinstance(operation, Open) else None

    @property
    def claimed(self) -> list[str]:
        """The durable subscriptions with a claim in flight."""
        return [name for kind, name in self._newest if kind is Open]

    def cursor(self, origin: str) -> Cursor | None:
        """Return the newest cursor of an origin that is in flight."""
        operation = self._newest.get((Cursor, origin), (0, None))[1]
        return operation if isinstance(operation, Cursor) else None

    def published(self, publisher: str) -> int:
        """Return the last number of a publisher that is in flight; -1 for none."""
        operation = self._newest.get((Numbered, publisher), (0, None))[1]
        return operation.last if isinstance(operation, Numbered) else -1

    def log_of(self, home: str) -> int:
        """Return the newest log number of a home that is in flight; 0 for none."""
        operation = self._newest.get((Renew, home), (0, None))[1]
        return operation.log if isinstance(operation, Renew) else 0


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


class _Acks:
    """The acknowledgements of one durable subscription that are to be written together."""

    def __init__(self) -> None:
        self.upto = 0
        self.others: set[int] = set()
        self.bookmark = b""

    def ack(self, subject: str) -> Ack:
        """Return them as one operation."""
        above = tuple(sorted(each for each in self.others if each > self.upto))
        return Ack(subject, self.upto, above, self.bookmark)


class Log:
    """The appends of one broker, in order, and whether its disk refuses them."""

    def __init__(self, last_offset: int = 0) -> None:
        self.last_offset = last_offset
        """The last offset that was assigned."""
        self._next_ticket = 1
        self._in_flight: dict[int, Pending] = {}
        self._acks: dict[str, _Acks] = {}
        self._releases: dict[str, Release] = {}
        self._over: list[int] = []
        self._forgotten: list[str] = []
        self._batch_at = inf
        self.due_at = inf
        """When to write the releases, even if there is no other append to carry them."""
        self.term = 0
        self.is_refusing = False
        self.overlay = Overlay()

    @property
    def in_flight(self) -> Iterator[Operation]:
        """The operations in flight to the disk, in order."""
        return (each for pending in self._in_flight.values() for each in pending.operations)

    def offsets(self, count: int = 1) -> int:
        """Assign new offsets and return the first. None is used twice, even if it is not stored."""
        first = self.last_offset + 1
        self.last_offset += count
        return first

    def append(
        self, now: float, operations: Sequence[Operation], token: Any = None
    ) -> Append | None:
        """Append operations other than releases; None, without effect, if the disk refuses (L1)."""
        assert operations, "an append needs operations; use barrier()"
        # An ack is among them if what stands for its entry must be stored with it.
        assert not any(isinstance(each, Releasing) for each in operations if type(each) is not Ack)
        if self.is_refusing:
            return None
        # Acks are written before their subscription moves: the owner must not get those events
        # again at its new home.
        is_claim = any(isinstance(operation, Open | Retarget | Close) for operation in operations)
        is_ripe = now >= self._batch_at
        return self._write(tuple(operations), token, with_released=is_ripe or is_claim)

    def barrier(self, token: Any) -> Append | None:
        """Append nothing behind all appends in flight, to learn their outcome; None without any."""
        if not self._in_flight:
            return None
        return self._write((), token, with_released=False)

    def release(self, now: float, operation: Releasing) -> None:
        """Record a release, to be written with an append soon."""
        match operation:
            case Ack(subject, upto, others, bookmark):
                before = self._acks.setdefault(subject, _Acks())
                before.upto = max(upto, before.upto)
                before.others.update(others)
                before.bookmark = bookmark or before.bookmark
            case Release(home):
                self._releases[home] = max(operation, self._releases.get(home, operation))
            case Discard(entries):
                self._over += entries
            case Forgotten(publishers):
                self._forgotten += publishers
        are_many = len(self._over) >= MAX_RELEASES
        self._batch_at = min(self._batch_at, now + RIPE_S)
        self.due_at = min(self.due_at, now if are_many else now + RELEASE_S)

    def flush(self, now: float) -> Append | None:
        """Append the releases if they are due. A disk that refuses is tried, too: releases free
        its space.
        """
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
            acks = (each.ack(subject) for subject, each in self._acks.items())
            released = (*acks, *self._releases.values(), *over, *gone)
            self._acks, self._releases, self._over, self._forgotten = {}, {}, [], []
            self._batch_at = self.due_at = inf
        ticket = self._next_ticket
        self._next_ticket += 1
        self._in_flight[ticket] = Pending(operations, released, token)
        for operation in operations:
            self.overlay.add(ticket, operation)
        return Append(ticket, self.term, operations, released)

    def stored(self, ticket: int) -> Pending:
        """Remove an append that is on the disk from the overlay, and return it (L2)."""
        first = next(iter(self._in_flight), None)
        assert first == ticket, f"L1: append {ticket} is stored, and {first} is before it"
        pending = self._in_flight.pop(ticket)
        for operation in pending.operations:
            self.overlay.remove(ticket, operation)
        return pending

    def refused(self, now: float, ticket: int) -> list[Pending]:
        """Discard a refused append with all behind it, and return them (L3).

        Appends stop until the disk accepts writes; releases are recorded for another attempt.
        """
        if ticket not in self._in_flight:
            return []  # it was discarded with an earlier append
        first = next(iter(self._in_flight))
        assert first == ticket, f"L1: append {ticket} is refused, and {first} is before it"
        discarded = list(self._in_flight.values())
        self._in_flight.clear()
        self.overlay = Overlay()
        self.term += 1
        self.is_refusing = True
        for pending in discarded:
            for operation in pending.released:
                self.release(now, operation)
        return discarded

    def writable(self) -> None:
        """Accept appends from now on: the disk takes writes."""
        self.is_refusing = False
