"""`Durability`: durable subscriptions of the whole network, and custody of what they must get.

It answers three questions with the matching engine: which homes an event goes to, which durable
subscriptions of this broker an event that came home is for, and which of its numbers came before.
What it decides about the journal it returns as operations; the node writes and sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from palio.errors import InvalidInput
from palio.language.parsing import parse_filter
from palio.matching.protocol import Matcher, RowMask
from palio.model.events import SEQ
from palio.model.filters import Filter
from palio.node.custody import Custody
from palio.node.effects import (
    DropSubscription,
    Operation,
    PutFacts,
    PutSubscription,
    Store,
)
from palio.node.messages import Fact, Parcel, unpack_mask
from palio.node.registry import LINKS, Registry
from palio.node.sessions import Durable
from palio.node.windows import Windows

__all__ = ["Durability", "MatcherFactory"]

MatcherFactory: TypeAlias = Callable[[], Matcher]


class Durability:
    """Registry, custody and windows of one broker, and the engines over them."""

    def __init__(self, name: str, store: Store, matcher: MatcherFactory) -> None:
        stored = store.load()
        self.name = name
        self.epoch = stored.epoch
        self.registry = Registry(name, stored.facts)
        self.custody = Custody(name, store, stored)
        self.here: dict[str, Durable] = {}
        self._windows = Windows(stored.windows)
        self._everywhere = matcher()
        self._local = matcher()
        self._numbers: dict[tuple[str, str], int] = {}
        self._homes: list[str] = []
        self._home_numbers: dict[str, int] = {}
        self._subjects: dict[int, str] = {}
        self._indexed: set[int] = set()
        self._next_number = 0
        for each in stored.subscriptions:
            values = msgspec.msgpack.decode(each.values)
            self._enter(
                Durable(
                    each.subscription, each.owner, parse_filter(each.filter), values, each.lease_s
                )
            )
        for fact in stored.facts:
            self._index(fact)

    # --- the subscriptions of this broker ---

    def put(
        self,
        subject: str,
        owner: str,
        filter: Filter,
        values: Mapping[str, Any],
        lease_s: float,
        wall_us: int,
    ) -> tuple[Durable, list[Operation]]:
        """Register a durable subscription here, or change one, and tell the network.

        `wall_us` is when its owner came to claim it for this broker.
        """
        durable = self.here.get(subject)
        if durable is None:
            durable = Durable(subject, owner, filter, values, lease_s)
        else:
            durable.filter, durable.values, durable.lease_s = filter, dict(values), lease_s
        self._enter(durable)
        text = str(durable.bound)
        known = self.registry.fact(self.name, subject)
        if known is None or known.filter != text or self._is_elsewhere(subject):
            self.registry.announce(subject, filter=text, claimed_us=wall_us)
        packed = msgspec.msgpack.encode(durable.values)
        return durable, [PutSubscription(subject, owner, str(filter), packed, lease_s)]

    def drop(self, subject: str) -> list[Operation]:
        """End a durable subscription of this broker, and all that waits for it."""
        self.custody.close(subject)
        self._leave(subject)
        self.registry.announce(subject)
        return [DropSubscription(subject)]

    def was_here(self, subject: str) -> bool:
        """Whether a durable subscription of this name lived here once and has ended."""
        fact = self.registry.fact(self.name, subject)
        return fact is not None and not fact.filter

    def _enter(self, durable: Durable) -> None:
        if durable.subject in self.here:
            self._leave(durable.subject)
        self.here[durable.subject] = durable
        self.custody.open(durable.subject)
        number = self._number((self.name, durable.subject))
        self._subjects[number] = durable.subject
        self._local.add(number, durable.bound)

    def _leave(self, subject: str) -> None:
        number = self._number((self.name, subject))
        del self.here[subject], self._subjects[number]
        self._local.remove(number)

    # --- events ---

    def homes(self, parcel: Parcel) -> dict[str, RowMask]:
        """The brokers whose durable subscriptions some of these events match, with the rows."""
        found = self._everywhere.route(parcel.batch)
        return {self._homes[number]: mask for number, mask in sorted(found.items())}

    def take(
        self, parcel: Parcel, homes: tuple[str, ...], wall_us: int
    ) -> tuple[int, tuple[str, ...], list[Operation]]:
        """Take events into custody: the entry (0 if nobody needs them), the durable subscriptions
        of this broker that they are for, and what to write.
        """
        assigned: dict[str, RowMask] = {}
        operations: list[Operation] = []
        if self.name in homes:
            assigned, windows = self._assign(parcel)
            operations += windows
        if not assigned and all(home == self.name for home in homes):
            return 0, (), operations
        entry, puts = self.custody.take(parcel, homes, assigned, wall_us)
        return entry, tuple(assigned), [*puts, *operations]

    def _assign(self, parcel: Parcel) -> tuple[dict[str, RowMask], list[Operation]]:
        numbers = parcel.batch.column(SEQ).to_numpy()
        fresh = self._windows.fresh(parcel.publisher, numbers)
        if not fresh.any():
            return {}, []
        operations: list[Operation] = [*self._windows.add(parcel.publisher, numbers)]
        assigned = {}
        for number, mask in sorted(self._local.route(parcel.batch).items()):
            wanted = mask & fresh
            if wanted.any():
                assigned[self._subjects[number]] = wanted
        return assigned, operations

    # --- news of the network ---

    def learn(self, facts: list[Fact]) -> tuple[list[Operation], list[tuple[str, str]]]:
        """Facts are new: what to write, and durable subscriptions that have moved, with whereto."""
        moved = []
        for fact in facts:
            self._index(fact)
            mine = self.registry.fact(self.name, fact.subject)
            if mine is None or fact.subject not in self.here or not fact.filter:
                continue
            if (fact.claimed_us, fact.origin) > (mine.claimed_us, self.name):
                moved.append((fact.subject, fact.origin))
        return [PutFacts(tuple(facts))], moved

    def _is_elsewhere(self, subject: str) -> bool:
        """Whether another broker claims a durable subscription too."""
        claims = (self.registry.fact(broker, subject) for broker in self.registry.brokers)
        return any(fact and fact.filter and fact.origin != self.name for fact in claims)

    def hand_over(self, subject: str, home: str, wall_us: int) -> tuple[list[int], list[Operation]]:
        """A durable subscription lives at `home` now: what waits for it here goes there."""
        entries: list[int] = []
        operations: list[Operation] = []
        for waiting in self.custody.waiting(subject):
            rows = unpack_mask(self.custody.rows(subject, waiting.entry), len(waiting.parcel))
            parcel = waiting.parcel.select(rows)
            entry, puts = self.custody.take(parcel, (home,), {}, wall_us)
            entries.append(entry)
            operations += puts
        return entries, [*operations, *self.drop(subject)]

    def _index(self, fact: Fact) -> None:
        """Keep the engine that finds homes in step with the facts."""
        if fact.subject == LINKS:
            return
        number = self._number((fact.origin, fact.subject))
        filter = _readable(fact.filter)
        if filter is not None:
            self._everywhere.add(number, filter, destination=self._home_number(fact.origin))
            self._indexed.add(number)
        elif number in self._indexed:
            self._everywhere.remove(number)
            self._indexed.remove(number)

    def _number(self, place: tuple[str, str]) -> int:
        if place not in self._numbers:
            self._numbers[place] = self._next_number
            self._next_number += 1
        return self._numbers[place]

    def _home_number(self, home: str) -> int:
        if home not in self._home_numbers:
            self._home_numbers[home] = len(self._homes)
            self._homes.append(home)
        return self._home_numbers[home]


def _readable(text: str) -> Filter | None:
    """A fact's filter. One that this broker cannot read matches everything: better too much."""
    if not text:
        return None
    try:
        return parse_filter(text)
    except InvalidInput:
        return parse_filter("TRUE")
