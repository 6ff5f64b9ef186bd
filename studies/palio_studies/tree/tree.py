"""`Tree`: the matching tree of gryphon, in full and incremental.

Filters become paths of elementary tests (attribute_tests.py), one for each conjunction and for each
value of a short list; paths are kept in a tree (nodes.py) that events descend. The three
optimizations of the paper are switches: `collapse` leaves out nodes that nobody asks for,
`successors` lets a search jump (successors.py), `factored` names index attributes
(factoring.py). `space` and `work` count what the paper counts.

This is the classic algorithm, kept readable and comparable; `palio.matching.Index` is the engine
for production. One thread at a time may use a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from palio.errors import InvalidBinding, LimitExceeded
from palio.matching.protocol import Matches
from palio.model.events import conform
from palio.model.filters import Filter, Residual
from palio.model.values import NO_VALUES, Bindings
from palio_studies.tree.attribute_tests import Path, TotalOrder, ValueSource
from palio_studies.tree.events import Row, SourceSlots, TreeEvents
from palio_studies.tree.factoring import Forest
from palio_studies.tree.nodes import Leaf, TreeNode, TreePlace, TreeSubscriber
from palio_studies.tree.successors import successors
from palio_studies.tree.survey import Space, draw, space

__all__ = ["Space", "Tree", "Work", "reached", "reached_by_jumps"]

_Identity: TypeAlias = tuple[Any, ...]
_Found: TypeAlias = tuple[set[int], list[tuple[int, Callable[[], bool]]]]


class Work(msgspec.Struct):
    """What matching did since these counters were last set to zero."""

    events: int = 0
    visited: int = 0
    tests: int = 0
    residuals: int = 0


class _Entry(msgspec.Struct, frozen=True):
    filter: Filter
    values: Bindings
    bound: Filter


class Tree:
    """Filters by key, matched by descending a tree of their tests.

    `schema` lists the attributes of events in the order in which they are tested; popular ones
    belong first. Attributes that are not listed come after those, by name. Without `collapse` every
    path has a level for every attribute of the schema, as in the paper's analysis.

    >>> import palio
    >>> from palio.model import to_batch
    >>> engine = Tree(["city"])
    >>> engine.add(1, palio.parse("city = 'New York' AND temperature < :limit"), {"limit": 40})
    >>> engine.add(2, palio.parse("temperature < 32"))
    >>> engine.match(to_batch({"city": "New York", "temperature": 30})).keys.tolist()
    [1, 2]
    >>> engine.bind(1, {"limit": 20})
    >>> print(engine)
    city
      'New York': temperature < 20
        yes: [1]
      *: temperature < 32
        yes: [2]
    """

    def __init__(
        self,
        schema: Sequence[str] = (),
        *,
        collapse: bool = True,
        successors: bool = True,
        factored: Sequence[str] = (),
    ) -> None:
        self.work = Work()
        self._order = TotalOrder(schema, levels=not collapse, factored=factored)
        self._successors = successors
        self._slots = SourceSlots()
        self._index = [ValueSource(name, None) for name in factored]
        for source in (*self._index, *self._order.level_sources):
            self._slots.acquire(source)
        self._forest = Forest(factored, self._order, self._slots)
        self._entries: dict[int, _Entry] = {}

    def add(self, key: int, filter: Filter, values: Bindings = NO_VALUES) -> None:
        """Add or replace the filter of a key."""
        entry = _Entry(filter, dict(values), filter.bind(values))
        self._exchange(key, self._entries.get(key), entry)

    def remove(self, key: int) -> None:
        """Forget a key; one that is not there is a `KeyError`."""
        self._exchange(key, self._entries[key], None)

    def bind(self, key: int, values: Bindings) -> None:
        """Change some of a filter's parameters; only paths that differ are touched."""
        entry = self._entries[key]
        for name in values:
            if name not in entry.filter.variables:
                raise InvalidBinding(f"filter {key} has no parameter :{name}", name=name)
        now = {**entry.values, **values}
        bound = entry.filter.bind(now)
        self._exchange(key, entry, _Entry(entry.filter, now, bound))

    def match(self, events: pa.RecordBatch) -> Matches:
        """All pairs (row, key) of an event and a filter it matches, sorted."""
        rows: list[int] = []
        keys: list[int] = []
        for row, found in enumerate(self._keys(events)):
            keys += sorted(found)
            rows += [row] * len(found)
        return Matches(np.array(rows, np.int64), np.array(keys, np.int64))

    def space(self) -> Space:
        """Nodes, edges and entries of successor sets, those sets found that were not needed yet."""
        if self._successors:
            for tree in self._forest.trees.values():
                for place in tree.places():
                    successors(place)
        return space(self._forest.trees.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __str__(self) -> str:
        return "\n".join(draw(self._forest))

    def _exchange(self, key: int, old: _Entry | None, new: _Entry | None) -> None:
        """Leave the paths of one entry and enter those of another, as far as they differ."""
        leaving = {} if old is None else self._paths(key, old)
        entering = {} if new is None else self._paths(key, new)
        entered = []
        try:
            for place, (path, subscriber) in entering.items():
                if place not in leaving:
                    self._enter(path, subscriber)
                    entered.append((path, subscriber))
        except LimitExceeded:
            for path, subscriber in entered:
                self._leave(path, subscriber)
            raise
        for place, (path, subscriber) in leaving.items():
            if place not in entering:
                self._leave(path, subscriber)
        if new is None:
            del self._entries[key]
        else:
            self._entries[key] = new

    def _paths(self, key: int, entry: _Entry) -> dict[_Identity, tuple[Path, TreeSubscriber]]:
        """Where an entry stands in the tree; equal paths of two conjunctions are one."""
        found = {}
        for conjunction in entry.bound.conjunctions:
            subscriber = TreeSubscriber(key, conjunction.residuals)
            for path in self._order.paths(conjunction):
                found[path.identity, conjunction.residuals] = path, subscriber
        return found

    def _enter(self, path: Path, subscriber: TreeSubscriber) -> None:
        self._forest.check_size(path)
        for step in path.steps:
            self._slots.acquire(step.test.source)
        self._forest.add(path, subscriber)

    def _leave(self, path: Path, subscriber: TreeSubscriber) -> None:
        self._forest.remove(path, subscriber)
        for step in path.steps:
            self._slots.release(step.test.source)

    def _keys(self, events: pa.RecordBatch) -> Iterator[set[int]]:
        """For each event, the keys of the filters it matches."""
        for keys, guarded in self._search(events):
            for key, holds in guarded:
                if key not in keys and holds():
                    keys.add(key)
            yield keys

    def _search(self, events: pa.RecordBatch) -> Iterator[_Found]:
        """For each event, keys that match, and keys whose residuals remain to be asked."""
        search = reached_by_jumps if self._successors else reached
        batch = TreeEvents(conform(events))
        index = [self._slots[source] for source in self._index]
        trees, work = self._forest, self.work
        for number, row in enumerate(batch.rows(self._slots)):
            tree = trees.tree_for(tuple(row[slot] for slot in index))
            keys: set[int] = set()
            guarded: list[tuple[int, Callable[[], bool]]] = []
            for leaf in search(tree.root, row, work):
                keys.update(leaf.plain)
                for key, residuals in leaf.guarded:
                    guarded.append((key, partial(self._holds, residuals, batch, number)))
            work.events += 1
            yield keys, guarded

    def _holds(self, residuals: tuple[Residual, ...], events: TreeEvents, row: int) -> bool:
        """Whether all residuals of a conjunction are true of an event; all variables are bound."""
        for residual in residuals:
            self.work.residuals += 1
            if residual.truth(events.values(row, residual.attributes)) is not True:
                return False
        return True


# --- the search: which leaves an event reaches (gryphon 2, 4) ---


def reached(root: TreePlace | None, row: Row, work: Work) -> list[Leaf]:
    """The leaves whose path the event satisfies, by entering every edge that agrees with it."""
    leaves: list[Leaf] = []
    stack = [] if root is None else [root]
    visited = 0
    while stack:
        place = stack.pop()
        visited += 1
        if not isinstance(place, TreeNode):
            leaves.append(place)  # type: ignore[arg-type]  # what is no node is a leaf
            continue
        value = row[place.slot]
        if place.result is not None:
            value = place.result(value)
        child = place.edges.get(value)
        if place.star is not None:
            stack.append(place.star)
        if child is not None:
            stack.append(child)
    work.visited += visited
    work.tests += visited - len(leaves)
    return leaves


def reached_by_jumps(root: TreePlace | None, row: Row, work: Work) -> list[Leaf]:
    """The same leaves, by following one path to its end and going on at the successors of that."""
    leaves: list[Leaf] = []
    stack = [] if root is None else [root]
    visited = 0
    while stack:
        place = stack.pop()
        visited += 1
        if isinstance(place, TreeNode):
            value = row[place.slot]
            if place.result is not None:
                value = place.result(value)
            child = place.edges.get(value)
            if child is not None:
                stack.append(child)
                continue
        else:
            leaves.append(place)  # type: ignore[arg-type]  # what is no node is a leaf
        known = place.successors
        stack += successors(place) if known is None else known
    work.visited += visited
    work.tests += visited - len(leaves)
    return leaves
