"""`MemoryStore`: what a node reads of a journal, kept in memory, for tests and simulations.

Operations are applied as they are handed over; what that is worth when a broker stops is up to
whoever keeps the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import starmap

from palio.node.effects import (
    AddNumbers,
    Assign,
    DropEntries,
    DropNumbers,
    DropSubscription,
    Entry,
    Forget,
    ForgetNumbers,
    Heading,
    Operation,
    PutEntry,
    PutFacts,
    PutSubscription,
    PutTime,
    Stored,
)
from palio.node.notices import heading_of
from palio.protocol.messages import Fact
from palio.protocol.seen_numbers import united

__all__ = ["MemoryStore"]


class MemoryStore:
    """A `Store` that keeps everything in dictionaries.

    >>> store = MemoryStore()
    >>> store.write([AddNumbers("p#0", b"x"), AddNumbers("p#0", b"\x01")])
    >>> store.load().windows
    [AddNumbers(key='p#0', bits=b'y')]
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._last_entry = 0
        self._time_us = 0
        self._entries: dict[int, Entry] = {}
        self._subscriptions: dict[str, PutSubscription] = {}
        self._assigned: dict[str, dict[int, bytes | None]] = {}
        self._bookmarks: dict[str, bytes] = {}
        self._windows: dict[str, bytes] = {}
        self._facts: dict[tuple[str, str], Fact] = {}

    def write(self, operations: Iterable[Operation]) -> None:
        """Apply the operations of an `Append`."""
        for operation in operations:
            if isinstance(operation, PutTime):
                self._time_us = operation.time_us
            else:
                self._write(operation)

    def _write(self, operation: Operation) -> None:
        match operation:
            case PutEntry():
                self._entries[operation.entry] = Entry(*operation)
                self._last_entry = max(self._last_entry, operation.entry)
            case Assign(subscription, entry, rows):
                self._assigned.setdefault(subscription, {})[entry] = rows
            case DropEntries(entries):
                for entry in entries:
                    self._entries.pop(entry, None)
            case Forget():
                self._forget(operation)
            case PutSubscription():
                self._subscriptions[operation.subscription] = operation
            case DropSubscription(subscription):
                self._subscriptions.pop(subscription, None)
                self._assigned.pop(subscription, None)
                self._bookmarks.pop(subscription, None)
            case AddNumbers() | DropNumbers() | ForgetNumbers():
                self._write_numbers(operation)
            case PutFacts(facts):
                self._facts.update({(fact.origin, fact.subject): fact for fact in facts})

    def _write_numbers(self, operation: AddNumbers | DropNumbers | ForgetNumbers) -> None:
        match operation:
            case AddNumbers(key, bits):
                self._windows[key] = united(self._windows.get(key, b""), bits)
            case DropNumbers(key):
                self._windows.pop(key, None)
            case ForgetNumbers(prefix):
                for key in [each for each in self._windows if each.startswith(prefix)]:
                    del self._windows[key]

    def _forget(self, over: Forget) -> None:
        lines = self._assigned.get(over.subscription, {})
        for each in [each for each in lines if each <= over.entry]:
            del lines[each]
        if over.bookmark:
            self._bookmarks[over.subscription] = over.bookmark

    def held(self) -> list[Entry]:
        """All entries, in order."""
        return [entry for _, entry in sorted(self._entries.items())]

    def facts(self) -> list[Fact]:
        """What is known of all brokers."""
        return list(self._facts.values())

    def load(self) -> Stored:
        """See `Store`."""
        self._epoch += 1
        return Stored(
            self._epoch,
            self._last_entry,
            [(entry.entry, entry.homes) for _, entry in sorted(self._entries.items())],
            list(self._subscriptions.values()),
            {name: sorted(lines) for name, lines in self._assigned.items()},
            list(starmap(AddNumbers, self._windows.items())),
            self.facts(),
            self._time_us,
            dict(self._bookmarks),
            {entry.entry: entry.subjects for entry in self._entries.values() if entry.subjects},
        )

    def entries(self, numbers: Sequence[int]) -> list[Entry]:
        """See `Store`."""
        return [self._entries[number] for number in numbers if number in self._entries]

    def assigned(self, subscription: str, numbers: Sequence[int]) -> list[bytes | None]:
        """See `Store`."""
        lines = self._assigned.get(subscription, {})
        return [lines.get(number) for number in numbers]

    def heading(self, entry: int) -> Heading | None:
        """See `Store`."""
        held = self._entries.get(entry)
        return None if held is None else heading_of(held.parcel, held.wall_us)
