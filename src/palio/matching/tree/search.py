"""The search: which leaves an event reaches, with or without successor sets (gryphon 2, 4)."""

from __future__ import annotations

import msgspec

from palio.matching.tree.events import Row
from palio.matching.tree.nodes import Leaf, TreeNode, TreePlace
from palio.matching.tree.successors import successors

__all__ = ["Work", "reached", "reached_by_jumps"]


class Work(msgspec.Struct):
    """What matching did since these counters were last set to zero."""

    events: int = 0
    visited: int = 0
    tests: int = 0
    residuals: int = 0


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
