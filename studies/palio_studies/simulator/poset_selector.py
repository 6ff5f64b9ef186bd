"""`PosetSelector`: matching by walking the poset of filters, as siena's servers do (siena 5.1).

Filters are a forest: each lies beneath one that covers it, and those beneath one filter are a
*level*. An event is tried on the top level, and on the filters beneath each that it matches. What
it does not match it cannot match beneath. One coverer is enough for that, so no filter has two
places, and none needs all its immediate edges.

What a change costs is bounded. A filter sinks through `MOST_LEVELS` levels at the most, and on each
a few candidates are compared with it in vain, then no more; it takes `MOST_TAKEN` others beneath it
at the most. At the end of a bound it stays beside filters that cover it or that it covers. Events
are then tried on it in vain sometimes, and the answer is the same. A filter that nobody asks for
any more stays as long as two or more lie beneath it, so that they need no other place; there are
always more filters that somebody asks for than such.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from palio.model.filters import Filter
from palio.routing.normalized import NormalizedFilter
from palio.routing.poset import Poset
from palio.routing.reference_selector import RowSelector

MOST_LEVELS: Final = 32
"""A filter sinks no deeper when it comes: in a long chain each level holds one filter."""

MOST_TAKEN: Final = 1_024
"""Filters that a new one takes beneath it: 20 us each."""

_MOST_VAIN: Final = 8
"""Candidates that a filter is compared with in vain: 90 us each if they test texts."""


class _Level:
    """Filters beneath one, which covers them all, or beneath none."""

    __slots__ = ("nodes", "owner", "poset")

    def __init__(self, owner: _Node | None) -> None:
        self.owner = owner
        self.nodes: dict[Filter, _Node] = {}
        self.poset = Poset()

    def add(self, node: _Node) -> None:
        self.nodes[node.form.filter] = node
        self.poset.add(node.form.filter)
        node.level = self

    def remove(self, node: _Node) -> None:
        del self.nodes[node.form.filter]
        self.poset.discard(node.form.filter)


class _Node:
    """One filter, who asks for it, and the filters beneath it."""

    __slots__ = ("asked", "below", "form", "level")

    def __init__(self, form: NormalizedFilter) -> None:
        self.form = form
        self.asked: dict[int, int] = {}
        """Destinations by key."""
        self.below: _Level | None = None
        self.level: _Level


class PosetSelector(RowSelector):
    """Tries a filter only if one above it matches.

    >>> import palio
    >>> walk = PosetSelector()
    >>> walk.add(1, palio.parse("x > 1"), {}, destination=7)
    >>> walk.add(2, palio.parse("x > :low"), {"low": 5}, destination=8)
    >>> walk.match_event({"x": 3}), walk.tried({"x": 3}), walk.tried({"x": 0})
    ([1], 2, 1)
    """

    def __init__(self) -> None:
        super().__init__()
        self._top = _Level(None)
        self._nodes: dict[Filter, _Node] = {}
        self._by_key: dict[int, _Node] = {}

    def tried(self, event: Mapping[str, Any]) -> int:
        """How many filters an event is tried on, equal ones counted once."""
        self._refresh()
        levels = [self._top, *(each.below for each in self._walk(event))]
        return sum(len(level.nodes) for level in levels if level is not None)

    def _file(self, key: int, form: NormalizedFilter) -> None:
        node = self._nodes.get(form.filter)
        if node is None:
            node = self._nodes[form.filter] = _Node(form)
            self._place(node)
        node.asked[key] = self.destinations[key]
        self._by_key[key] = node

    def _take_out(self, key: int) -> None:
        known = self._by_key.pop(key, None)
        if known is None:
            return
        del known.asked[key]
        node: _Node | None = known
        while node is not None and not node.asked:
            beneath = [] if node.below is None else list(islice(node.below.nodes.values(), 2))
            if len(beneath) > 1:
                break
            del self._nodes[node.form.filter]
            node.level.remove(node)
            for only in beneath:
                node.level.add(only)
            node = node.level.owner

    def _place(self, node: _Node) -> None:
        """Put a filter as far down as it is covered, and beneath it what it covers there."""
        filter, level = node.form.filter, self._top
        for _ in range(MOST_LEVELS):
            above = next(level.poset.coverers(filter, _MOST_VAIN), None)
            if above is None:
                break
            coverer = level.nodes[above]
            if coverer.below is None:
                coverer.below = _Level(coverer)
            level = coverer.below
        covered = list(islice(level.poset.covered(filter, _MOST_VAIN), MOST_TAKEN))
        level.add(node)
        if covered:
            node.below = below = _Level(node)
            for each in covered:
                taken = level.nodes[each]
                level.remove(taken)
                below.add(taken)

    def _walk(self, row: Mapping[str, Any]) -> list[_Node]:
        """The filters that match, from the top."""
        found: list[_Node] = []
        levels = [self._top]
        while levels:
            for node in levels.pop().nodes.values():
                if node.form.test(row):
                    found.append(node)
                    if node.below is not None:
                        levels.append(node.below)
        return found

    def _matching(self, row: Mapping[str, Any]) -> list[int]:
        return [key for node in self._walk(row) for key in node.asked]

    def _destinations(self, row: Mapping[str, Any]) -> dict[int, None]:
        return {to: None for node in self._walk(row) for to in node.asked.values()}
