"""Successor sets: where a search goes on when it is blocked (gryphon 4, second optimization).

Without them a search that comes to the end of a path goes back to every node it passed and enters
its `*` edge, only to repeat tests whose results it has seen. With them it follows one path without
looking back, and where that ends, at a leaf or at a node without an edge for the event, it jumps on
to the *successors* of that place: where the `*` branches pending on the path resume.

The path of a place, from its last `*` edge on, is its *run*. Its successors come from the `*`
branch of each node of the run. A branch is entered statically as far as the path has decided its
tests, so a successor is the first place that either has an undecided test or is a leaf; and if a
branch is blocked on the way, its own pending branches take its place. Branches before the last `*`
edge belong to the run of another place: thus every place that an event reaches is reached once.

What a path has decided is `Knowledge`: the results on its edges, whatever follows from them for
other tests of the same attributes and, where the place is a node that blocked the search, that the
result is none of those on its edges.
"""

from __future__ import annotations

from typing import Any, Final

from palio.model.values import Kind
from palio_studies.tree.attribute_tests import (
    STAR,
    UNBOUNDED,
    Bounds,
    ElementaryTest,
    Result,
    Value,
    ValueSource,
    of_label,
)
from palio_studies.tree.nodes import TreeNode, TreePlace

UNDECIDED: Final = STAR
"""What `Knowledge` says of a test it cannot decide: any result may come, or none."""


class Knowledge:
    """What is certain of an event that has reached a place."""

    def __init__(self) -> None:
        self._results: dict[tuple[Any, ...], Result] = {}
        self._labels: dict[str, Result] = {}
        self._kinds: dict[str, Kind] = {}
        self._bounds: dict[ValueSource, Bounds] = {}
        self._blocked: TreeNode | None = None

    @classmethod
    def at(cls, place: TreePlace) -> Knowledge:
        """What the path to a place has decided; at a node, for a search that it blocks."""
        known = cls()
        step = place
        while step.parent is not None:
            if step.taken is not STAR:
                known.learn(step.parent.test, step.taken)
            step = step.parent
        if isinstance(place, TreeNode):
            known._blocked = place
        return known

    def learn(self, test: ElementaryTest, result: Result) -> None:
        """Take note of a result."""
        source = test.source
        self._results[test.order] = result
        if isinstance(test, Value):
            self._labels[source.attribute] = result
            self._kinds[source.attribute] = of_label(result)[0]
        else:
            assert source.kind is not None
            self._kinds[source.attribute] = source.kind
        self._bounds[source] = self._bounds.get(source, UNBOUNDED).narrowed(test, result)

    def decide(self, node: TreeNode) -> Result:
        """The edge the event takes at a node besides `*` (None: no edge), or `UNDECIDED`."""
        test = node.test
        attribute = test.source.attribute
        blocked = self._blocked
        if not node.edges or (
            blocked is not None
            and blocked.test.order == test.order
            and node.edges.keys() <= blocked.edges.keys()
        ):
            return None
        if test.order in self._results:
            return self._results[test.order]
        if attribute in self._labels:
            return test.result_for(self._labels[attribute])
        kind = self._kinds.get(attribute)
        if kind is not None and test.source.kind not in (None, kind):
            return None
        return test.implied(self._bounds)


def successors(place: TreePlace) -> tuple[TreePlace, ...]:
    """The successor set of a place, found once."""
    if place.successors is not None:
        return place.successors
    run, top = [], place
    while top.parent is not None and top.taken is not STAR:
        top = top.parent
        run.append(top)
    if isinstance(place, TreeNode):
        run.append(place)
    known = Knowledge.at(place)
    found: list[TreePlace] = []
    pending = _stars(run)
    while pending:
        here: TreePlace | None = pending.pop()
        passed: list[TreeNode] = []
        while isinstance(here, TreeNode):
            result = known.decide(here)
            if result is UNDECIDED:
                break
            passed.append(here)
            here = here.edges.get(result)
        if here is None:
            pending += _stars(passed)
        else:
            found.append(here)
    place.successors = tuple(found)
    return place.successors


def _stars(nodes: list[TreeNode]) -> list[TreePlace]:
    return [node.star for node in nodes if node.star is not None]
