"""The matching tree itself: nodes, leaves, and how paths enter and leave it (gryphon 2).

The tree is a function of the set of its paths, whatever the order in which they came or went. Rule
1 says which node stands where, rule 2 which way a path goes there:

1. A node stands where some path below it asks for its test, and it is the first such test in order.
2. A path takes the edge of the result it asks for; else of the result that its ranges imply; else
   the edge `*`.

Adding follows the path and hangs the rest of it where the tree ends. A test that comes before a
node's moves that node below its `*`. Removing drops the leaf, then what no path needs any more.

The nodes of one attribute's cuts that hang together are a *region*; the subtrees where paths leave
it are its *exits*, one for each range. Only in a region does rule 2 use implications, so only there
do a new test and one given up move what is below them. `_grow` builds the region anew from its
exits, whole subtrees each, from the place of that test down: a few nodes, as in a treap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from palio_studies.tree.attribute_tests import (
    STAR,
    UNBOUNDED,
    Bounds,
    Cut,
    ElementaryTest,
    Path,
    PathStep,
    Result,
    TotalOrder,
    Value,
    ValueSource,
)
from palio_studies.tree.events import SourceSlots


class TreePlace:
    """A node or a leaf: where it hangs, and what the second optimization remembers of it."""

    __slots__ = ("parent", "successors", "taken", "watched", "watchers")

    def __init__(self) -> None:
        self.parent: TreeNode | None = None
        self.taken: Result = STAR
        self.successors: tuple[TreePlace, ...] | None = None
        self.watched: tuple[TreePlace, ...] = ()
        self.watchers: set[TreePlace] | None = None

    def remember(self, successors: tuple[TreePlace, ...], watched: set[TreePlace]) -> None:
        """Keep the successor set, until one of the places changes from which it was found."""
        self.successors, self.watched = successors, tuple(watched)
        for place in watched:
            if place.watchers is None:
                place.watchers = set()
            place.watchers.add(self)

    def forget(self) -> None:
        """Drop the successor set."""
        for place in self.watched:
            if place.watchers is not None:
                place.watchers.discard(self)
        self.successors, self.watched = None, ()

    def changed(self) -> None:
        """The edges here are no longer what they were."""
        if self.watchers:
            for place in tuple(self.watchers):
                place.forget()
        self.watchers = None


class Leaf(TreePlace):
    """The keys whose whole path leads here; equal ones share the leaf.

    They are counted: in a factored tree two paths of one key may have become one.
    """

    __slots__ = ("keys",)

    def __init__(self) -> None:
        super().__init__()
        self.keys: Counter[int] = Counter()

    def remove(self, key: int) -> None:
        """Let a key go; it must be here."""
        self.keys[key] -= 1
        if not self.keys[key]:
            del self.keys[key]


class TreeNode(TreePlace):
    """A test, an edge for each result that some path asks for or implies, and the edge `*`."""

    __slots__ = ("edges", "exits_asking", "result", "slot", "star", "test")

    def __init__(self, test: ElementaryTest, slot: int) -> None:
        super().__init__()
        self.test = test
        self.slot = slot
        self.result = None if isinstance(test, Value) else test.result
        """What makes a result of what the slot holds; None where it is one already."""
        self.edges: dict[Result, TreePlace] = _NO_EDGES
        self.star: TreePlace | None = None
        self.exits_asking = 0
        """In a region: how many of its exits have this cut as a bound."""

    def child(self, result: Result) -> TreePlace | None:
        """What an edge leads to."""
        return self.star if result is STAR else self.edges.get(result)

    @property
    def children(self) -> Iterator[TreePlace]:
        """What all edges lead to, `*` last."""
        yield from self.edges.values()
        if self.star is not None:
            yield self.star

    def put(self, result: Result, child: TreePlace | None) -> None:
        """Point an edge at a place, or drop it."""
        if child is not None:
            child.parent, child.taken = self, result
        if result is STAR:
            self.star = child
        elif child is None:
            del self.edges[result]
        elif self.edges:
            self.edges[result] = child
        else:
            self.edges = {result: child}
        self.changed()


_NO_EDGES: Final[dict[Result, TreePlace]] = {}
"""Shared by all nodes without edges, which are most of a tree whose chains are not collapsed."""


class Exit(NamedTuple):
    """Where one range leaves a region: the range, its cuts still to come, the subtree."""

    bounds: Bounds
    cuts: tuple[Cut, ...]
    subtree: TreePlace


class MatchingTree:
    """Paths in, places out. It knows nothing of filters, keys of the same filter, or events."""

    def __init__(self, order: TotalOrder, slots: SourceSlots) -> None:
        self.root: TreePlace | None = None
        self._order = order
        self._slots = slots

    def add(self, path: Path, key: int) -> None:
        """Enter a key at the end of a path."""
        steps, at = path.steps, 0
        parent: TreeNode | None = None
        taken: Result = STAR
        place = self.root
        while place is not None and not (at == len(steps) and isinstance(place, Leaf)):
            node = place if isinstance(place, TreeNode) else None
            if node is None or (at < len(steps) and steps[at].test.order < node.test.order):
                node = self._insert(steps[at].test, place)
            assert node is not None
            parent = node
            taken, at = _way(node, path, at)
            place = node.child(taken)
        if place is None:
            place = self._hang(parent, taken, steps[at:])
            if parent is not None:
                for node in _asked_in_region(parent, path):
                    node.exits_asking += 1
        assert isinstance(place, Leaf)
        place.keys[key] += 1

    def remove(self, path: Path, key: int) -> None:
        """Take a key away from the end of its path."""
        place, at = self.root, 0
        while isinstance(place, TreeNode):
            taken, at = _way(place, path, at)
            place = place.child(taken)
        assert isinstance(place, Leaf)
        place.remove(key)
        if not place.keys:
            self._prune(place, path)

    def places(self) -> Iterator[TreePlace]:
        """Every node and leaf, parents first."""
        stack = [] if self.root is None else [self.root]
        while stack:
            place = stack.pop()
            yield place
            if isinstance(place, TreeNode):
                stack.extend(place.children)

    def path_to(self, leaf: Leaf) -> Path:
        """The path that leads to a leaf, without what is only implied on the way."""
        steps: list[PathStep] = []
        bounds: dict[ValueSource, Bounds] = {}
        place: TreePlace = leaf
        while place.parent is not None:
            test, taken = place.parent.test, place.taken
            if isinstance(test, Cut):
                if taken is not STAR:
                    known = bounds.get(test.source, UNBOUNDED)
                    bounds[test.source] = known.narrowed(test, taken)
            elif taken is not STAR or self._order.is_level(test):
                steps.append(PathStep(test, taken))
            place = place.parent
        for source, known in bounds.items():
            steps += self._order.steps(source, known)
        return Path.of(steps, bounds)

    def _node(self, test: ElementaryTest) -> TreeNode:
        return TreeNode(test, self._slots[test.source])

    def _attach(self, parent: TreeNode | None, taken: Result, child: TreePlace | None) -> None:
        if parent is not None:
            parent.put(taken, child)
            return
        self.root = child
        if child is not None:
            child.parent, child.taken = None, STAR

    def _hang(self, parent: TreeNode | None, taken: Result, steps: tuple[PathStep, ...]) -> Leaf:
        """A chain of nodes for the rest of a path, and its leaf."""
        for step in steps:
            node = self._node(step.test)
            node.exits_asking = 1
            self._attach(parent, taken, node)
            parent, taken = node, step.result
        leaf = Leaf()
        self._attach(parent, taken, leaf)
        return leaf

    def _insert(self, test: ElementaryTest, place: TreePlace) -> TreeNode:
        """A node for a test where a place was that comes after it in order."""
        parent, taken = place.parent, place.taken
        node = self._node(test)
        if isinstance(test, Cut) and isinstance(place, TreeNode) and _in_region(place, test.source):
            parts: dict[Result, list[Exit]] = {}
            for each in self._exits(place, test.source):
                parts.setdefault(test.decide(each.bounds), []).append(each)
            for result, exits in parts.items():
                self._grow(node, result, exits)
        else:
            node.put(STAR, place)
        self._attach(parent, taken, node)
        return node

    def _prune(self, gone: TreePlace, path: Path) -> None:
        """Drop a place that nothing leads through any more, and what was there for its sake."""
        node = gone.parent
        while node is not None:
            gone.forget()
            node.put(gone.taken, None)
            if node.edges or node.star is not None:
                break
            gone, node = node, node.parent
        if node is None:
            self.root = None
        elif isinstance(node.test, Cut):
            self._give_up_exit(node, path)
        elif not node.edges and not self._order.is_level(node.test):
            self._attach(node.parent, node.taken, node.star)
            _dispose(node)

    def _give_up_exit(self, node: TreeNode, path: Path) -> None:
        """A path's exit from a region is gone: so are cuts that were there for it alone."""
        asked = list(_asked_in_region(node, path))
        for each in asked:
            each.exits_asking -= 1
        for each in reversed(asked):  # the upper one first: growing it anew covers the lower
            if not each.exits_asking:
                exits = self._exits(each, each.test.source)
                self._grow(each.parent, each.taken, exits)
                return

    def _exits(self, top: TreeNode, source: ValueSource) -> list[Exit]:
        """Take apart a region from a node down to its exits."""
        cuts: dict[Any, Cut] = {}
        ends: list[tuple[Bounds, TreePlace]] = []
        stack: list[tuple[TreePlace, Bounds]] = [(top, _bounds_at(top, source))]
        while stack:
            place, bounds = stack.pop()
            if not _in_region(place, source):
                ends.append((bounds, place))
                continue
            assert isinstance(place, TreeNode)
            assert isinstance(place.test, Cut)
            cuts[place.test.place] = place.test
            stack += [(each, bounds.narrowed(place.test, each.taken)) for each in place.children]
            _dispose(place)
        exits = []
        for bounds, place in ends:
            # A bound that is no cut of these nodes was asked for above them.
            later = sorted((cuts[each] for each in bounds if each in cuts), key=_order)
            exits.append(Exit(bounds, tuple(later), place))
        return exits

    def _grow(self, parent: TreeNode | None, taken: Result, exits: list[Exit]) -> None:
        """The part of a region that leads from an edge to some exits (rules 1 and 2)."""
        stack = [(parent, taken, exits)]
        while stack:
            parent, taken, leading = stack.pop()
            asked = [each.cuts[0] for each in leading if each.cuts]
            if not asked:
                (only,) = leading
                self._attach(parent, taken, only.subtree)
                continue
            first = min(asked, key=_order)
            node = self._node(first)
            self._attach(parent, taken, node)
            parts: dict[Result, list[Exit]] = {}
            for bounds, cuts, subtree in leading:
                later = cuts
                if cuts and cuts[0].order == first.order:
                    node.exits_asking += 1
                    later = cuts[1:]
                part = parts.setdefault(first.decide(bounds), [])
                part.append(Exit(bounds, later, subtree))
            stack.extend((node, result, part) for result, part in parts.items())


def _way(node: TreeNode, path: Path, at: int) -> tuple[Result, int]:
    """Rule 2: the edge that a path takes, and which of its steps comes next."""
    if at < len(path.steps) and path.steps[at].test.order == node.test.order:
        return path.steps[at].result, at + 1
    return node.test.implied(path.bounds), at


def _order(test: ElementaryTest) -> tuple[Any, ...]:
    return test.order


def _in_region(place: TreePlace, source: ValueSource) -> bool:
    return (
        isinstance(place, TreeNode) and isinstance(place.test, Cut) and place.test.source == source
    )


def _asked_in_region(node: TreeNode, path: Path) -> Iterator[TreeNode]:
    """The nodes of a region, from one of them up, whose cuts a path asks for itself."""
    source = node.test.source
    above: TreeNode | None = node
    while above is not None and _in_region(above, source):
        assert isinstance(above.test, Cut)
        if above.test.place in path.bounds.get(source, ()):
            yield above
        above = above.parent


def _bounds_at(node: TreeNode, source: ValueSource) -> Bounds:
    """The range that the region's edges above a node leave."""
    bounds, taken, above = UNBOUNDED, node.taken, node.parent
    while above is not None and _in_region(above, source):
        bounds = bounds.narrowed(above.test, taken)
        taken, above = above.taken, above.parent
    return bounds


def _dispose(node: TreeNode) -> None:
    node.forget()
    node.changed()
