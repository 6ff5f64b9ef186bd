"""Durability by itself, over a journal that writes at once."""

from __future__ import annotations

from typing import Any

from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.node.authority import OpenAuthority
from palio.node.durability import Durability
from palio.node.effects import Moment, Operation, PutFacts
from palio.node.identity import NOBODY
from palio.node.memory import MemoryStore
from palio.node.sessions import Durable
from palio.node.vouching import Vouching
from palio.protocol.messages import NO_VISIT, Fact, Facts, Parcel, Visit


class Place:
    """Durability over a journal that writes at once."""

    def __init__(self, store: MemoryStore | None = None, name: str = "b1") -> None:
        self.store = store or MemoryStore()
        self.durability = Durability(
            name, self.store, Index, Vouching(name, NOBODY, OpenAuthority())
        )
        self.learn()

    def write(self, operations: list[Operation]) -> None:
        self.store.write(operations)

    def learn(self) -> list[tuple[str, str]]:
        """Take up what the registry has heard, as a node does after each input."""
        registry = self.durability.registry
        moved: list[tuple[str, str]] = []
        while registry.news:
            news, registry.news = registry.news, []
            operations, gone = self.durability.learn(news)
            self.write([PutFacts(tuple(news)), *operations])
            moved += gone
        return moved

    def put(
        self, subject: str, text: str, wall_us: int = 1, visit: Visit = NO_VISIT, **values: Any
    ) -> Durable:
        durable, operations = self.durability.put(
            subject, parse_filter(text), values, 60.0, wall_us, visit
        )
        self.write(operations)
        self.learn()
        return durable

    def hear(self, fact: Fact) -> list[tuple[str, str]]:
        """A neighbour tells something: what has moved."""
        self.durability.registry.receive("b2", Facts((fact,)), Moment(0.0, 1_000))
        return self.learn()

    def drop(self, subject: str, *, moved_to: str = "") -> None:
        self.write(self.durability.drop(subject, moved_to=moved_to))
        self.learn()

    def homes(self, events: Parcel) -> dict[str, list[bool]]:
        return {
            home: mask.tolist() for home, mask in self.durability.addressees(events).homes.items()
        }

    def take(self, events: Parcel) -> tuple[int, tuple[str, ...]]:
        taken = self.durability.take(events, ("b1",), 0)
        self.write(taken.writes)
        self.durability.custody.release(taken.entry, taken.assigned)
        return taken.entry, taken.assigned
