"""`MemoryStore`: a journal in memory, for tests and simulations.

Operations are applied at once. The caller decides when to write, and so what a crash would lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palio.node.effects import Entry, Heading, Stored
from palio.node.loss_markers import heading_of
from palio.node.operations import (
    Ack,
    Discard,
    DropSubscription,
    Operation,
    Put,
    PutFacts,
    PutSubscription,
    PutTime,
    last_offset_of,
)
from palio.protocol.messages import Fact


class MemoryStore:
    """A `Store` in dictionaries; durable state is kept as the operations of which it is the fold.

    >>> store = MemoryStore()
    >>> store.write([PutTime(7)])
    >>> store.load().time_us
    7
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._last_offset = 0
        self._time_us = 0
        self._operations: list[Operation] = []
        self._entries: dict[int, Entry] = {}
        self._subscriptions: dict[str, PutSubscription] = {}
        self._bookmarks: dict[str, bytes] = {}
        self._facts: dict[tuple[str, str], Fact] = {}

    def write(self, operations: Iterable[Operation]) -> None:
        """Apply the operations of an `Append`."""
        for operation in operations:
            self._last_offset = max(self._last_offset, last_offset_of(operation))
            match operation:
                case PutTime(time_us):
                    self._time_us = time_us
                case PutFacts(facts):
                    self._facts.update({(fact.origin, fact.subject): fact for fact in facts})
                case PutSubscription(subject):
                    self._subscriptions[subject] = operation
                case DropSubscription(subject):
                    self._subscriptions.pop(subject, None)
                    self._bookmarks.pop(subject, None)
                case _:
                    self._fold(operation)

    def _fold(self, operation: Operation) -> None:
        match operation:
            case Put(entry, parcel, wall_us) if parcel is not None:
                self._entries[entry] = Entry(entry, parcel, wall_us)
                operation = operation._replace(parcel=None)
            case Discard(entries):
                for entry in entries:
                    self._entries.pop(entry, None)
            case Ack(subject, bookmark=bookmark) if bookmark:
                self._bookmarks[subject] = bookmark
            case _:
                pass
        self._operations.append(operation)

    def held(self) -> list[Entry]:
        """Return all entries, in order."""
        return [entry for _, entry in sorted(self._entries.items())]

    def facts(self) -> list[Fact]:
        """Return the facts of all brokers."""
        return list(self._facts.values())

    def load(self) -> Stored:
        """Return everything but the events, under the next epoch."""
        self._epoch += 1
        return Stored(
            self._epoch,
            list(self._operations),
            self._last_offset,
            list(self._subscriptions.values()),
            self.facts(),
            self._time_us,
            dict(self._bookmarks),
        )

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """Return the entries that exist, in order."""
        return [self._entries[number] for number in numbers if number in self._entries]

    def heading(self, entry: int) -> Heading | None:
        """Return the heading of an entry; None if it does not exist."""
        held = self._entries.get(entry)
        return None if held is None else heading_of(held.parcel, held.wall_us)
