"""`Tree`: the matching tree of gryphon, for a set of filters.

Filters become paths of elementary tests (attribute_tests.py), one for each conjunction and for each
value of a short list; paths are kept in a tree (nodes.py) that events descend. The three
optimizations of the paper are switches: `collapse` leaves out nodes that nobody asks for,
`successors` lets a search jump (successors.py), `factored` names index attributes
(factoring.py). `space` and `work` count what the paper counts.

This is the classic algorithm, kept readable and comparable; `palio.matching.Index` is the engine
for production: its filters come and go, and may have other tests too. One thread at a time may use
a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from palio.matching.protocol import Matches
from palio.model.events import conform
from palio.model.filters import Filter
from palio_studies.tree.attribute_tests import TotalOrder, ValueSource
from palio_studies.tree.events import Row, TreeEvents
from palio_studies.tree.factoring import Forest
from palio_studies.tree.nodes import Leaf, TreeNode, TreePlace, places
from palio_studies.tree.successors import successors
from palio_studies.tree.survey import Space, draw, space

__all__ = ["Space", "Tree", "Work", "reached", "reached_by_jumps"]


class Work(msgspec.Struct):
    """What matching did since these counters were last set to zero."""

    events: int = 0
    visited: int = 0
    tests: int = 0


class Tree:
    """Filters by key, matched by descending a tree of their tests. Filters have no variables.

    `schema` lists the attributes of events in the order in which they are tested; popular ones
    belong first. Attributes that are not listed come after those, by name. Without `collapse` every
    path has a level for every attribute of the schema, as in the paper's analysis.

    >>> import palio
    >>> from palio.model import to_batch
    >>> texts = {1: "city = 'New York' AND temperature < 40", 2: "temperature < 32"}
    >>> engine = Tree({key: palio.parse_filter(text) for key, text in texts.items()}, ["city"])
    >>> engine.match(to_batch({"city": "New York", "temperature": 30})).keys.tolist()
    [1, 2]
    >>> print(engine)
    city
      'New York': temperature < 40
        yes: [1]
      *: temperature < 32
        yes: [2]
    """

    def __init__(
        self,
        filters: Mapping[int, Filter],
        schema: Sequence[str] = (),
        *,
        collapse: bool = True,
        successors: bool = True,
        factored: Sequence[str] = (),
    ) -> None:
        self.work = Work()
        self._successors = successors
        order = TotalOrder(schema, levels=not collapse, factored=factored)
        paths = [
            (path, key)
            for key, filter in filters.items()
            for conjunction in filter.conjunctions
            for path in order.paths(conjunction)
        ]
        self._index = [ValueSource(name, None) for name in factored]
        tested = [step.test.source for path, _ in paths for step in path.steps]
        self._slots = {
            source: slot for slot, source in enumerate(dict.fromkeys([*self._index, *tested]))
        }
        """By what tests read of events, the place in a row that has it."""
        self._forest = Forest(factored, paths, self._slots)

    def match(self, events: pa.RecordBatch) -> Matches:
        """All pairs (row, key) of an event and a filter it matches, sorted."""
        search = reached_by_jumps if self._successors else reached
        index = [self._slots[source] for source in self._index]
        rows: list[int] = []
        keys: list[int] = []
        for number, row in enumerate(TreeEvents(conform(events)).rows(self._slots)):
            root = self._forest.root_for(tuple(row[slot] for slot in index))
            found = sorted(set().union(*(leaf.keys for leaf in search(root, row, self.work))))
            keys += found
            rows += [number] * len(found)
            self.work.events += 1
        return Matches(np.array(rows, np.int64), np.array(keys, np.int64))

    def space(self) -> Space:
        """Nodes, edges and entries of successor sets, for which all sets are found."""
        if self._successors:
            for root in self._forest.trees.values():
                for place in places(root):
                    successors(place)
        return space(self._forest.trees.values())

    def __str__(self) -> str:
        return "\n".join(draw(self._forest))


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
