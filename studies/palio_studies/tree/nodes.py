"""The matching tree itself: nodes and leaves, grown from paths (gryphon 2).

The tree is a function of the set of its paths:

1. A node stands where some path below it asks for its test, and it is the first such test in order.
2. A path takes the edge of the result it asks for; else of the result that its ranges imply; else
   the edge `*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from palio_studies.tree.attribute_tests import (
    STAR,
    ElementaryTest,
    Path,
    Result,
    Value,
    ValueSource,
)

KeyedPath: TypeAlias = tuple[Path, int]
"""A path, and the key of its filter."""


class TreePlace:
    """A node or a leaf: where it hangs, and its successor set once it was found."""

    __slots__ = ("parent", "successors", "taken")

    def __init__(self) -> None:
        self.parent: TreeNode | None = None
        self.taken: Result = STAR
        self.successors: tuple[TreePlace, ...] | None = None


class Leaf(TreePlace):
    """The keys whose whole path leads here; equal ones share the leaf."""

    __slots__ = ("keys",)

    def __init__(self, keys: set[int]) -> None:
        super().__init__()
        self.keys = keys


class TreeNode(TreePlace):
    """A test, an edge for each result that some path asks for or implies, and the edge `*`."""

    __slots__ = ("edges", "result", "slot", "star", "test")

    def __init__(self, test: ElementaryTest, slot: int) -> None:
        super().__init__()
        self.test = test
        self.slot = slot
        self.result = None if isinstance(test, Value) else test.result
        """What makes a result of what the slot holds; None where it is one already."""
        self.edges: dict[Result, TreePlace] = _NO_EDGES
        self.star: TreePlace | None = None

    @property
    def children(self) -> Iterator[TreePlace]:
        """What all edges lead to, `*` last."""
        yield from self.edges.values()
        if self.star is not None:
            yield self.star

    def put(self, result: Result, child: TreePlace) -> None:
        """Point an edge at a place."""
        child.parent, child.taken = self, result
        if result is STAR:
            self.star = child
        elif self.edges:
            self.edges[result] = child
        else:
            self.edges = {result: child}


_NO_EDGES: Final[dict[Result, TreePlace]] = {}
"""Shared by all nodes without edges, which are most of a tree whose chains are not collapsed."""


def grow(paths: Iterable[KeyedPath], slots: Mapping[ValueSource, int]) -> TreePlace | None:
    """Return the root of the tree of some paths; None for none."""
    root: TreePlace | None = None
    whole = [(path, 0, key) for path, key in paths]
    stack: list[tuple[TreeNode | None, Result, list[tuple[Path, int, int]]]] = []
    if whole:
        stack.append((None, STAR, whole))
    while stack:
        parent, taken, some = stack.pop()
        asked = [path.steps[at].test for path, at, _ in some if at < len(path.steps)]
        place: TreePlace
        if not asked:
            place = Leaf({key for _, _, key in some})
        else:
            first = min(asked, key=_order)
            place = node = TreeNode(first, slots[first.source])
            parts: dict[Result, list[tuple[Path, int, int]]] = {}
            for path, at, key in some:
                result, after = _way(first, path, at)
                parts.setdefault(result, []).append((path, after, key))
            stack.extend((node, result, part) for result, part in parts.items())
        if parent is None:
            root = place
        else:
            parent.put(taken, place)
    return root


def places(root: TreePlace | None) -> Iterator[TreePlace]:
    """Yield every node and leaf, parents first."""
    stack = [] if root is None else [root]
    while stack:
        place = stack.pop()
        yield place
        if isinstance(place, TreeNode):
            stack.extend(place.children)


def _way(test: ElementaryTest, path: Path, at: int) -> tuple[Result, int]:
    """Rule 2: the edge that a path takes at a test, and which of its steps comes next."""
    if at < len(path.steps) and path.steps[at].test.order == test.order:
        return path.steps[at].result, at + 1
    return test.implied(path.bounds), at


def _order(test: ElementaryTest) -> tuple[Any, ...]:
    return test.order
