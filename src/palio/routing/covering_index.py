"""`CoveringIndex`: which filters may cover a filter, and which may it cover?

A conjunction is a *box*. On each attribute that it names it has a *side*: the one kind of value
that it admits (any, where it admits several, or absence) and the bounds of what it admits, measured
on a line of floats; where it admits a single value, that value too. A filter can cover another only
if each side of its box holds a side of the other's box.

A side is found by its *key*: its value, or else its attribute. A box is filed under the rarest of
its keys, so what may hold a box lies under the keys of that box; and under all of its keys, so what
may lie in a box lies under the rarest key of that box. One kernel compares the few boxes there.
Measuring may round (long strings, 2**53 + 1) but never changes the order, so no true answer is
missed; candidates are confirmed by the exact relation, which is the caller's.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.kernels import registry
from palio.routing.normalized import SIDE, Bounds, Box, Key, NormalizedFilter

Floats: TypeAlias = npt.NDArray[np.float64]
Longs: TypeAlias = npt.NDArray[np.int64]

_MOST_SIDES: Final = 6
"""Sides of a box that are compared; one of more may be a candidate in vain."""

_FEW: Final = 8
"""So few candidates are not worth a comparison: the exact relation takes no longer."""

_EVERYTHING: Final = (None, (-math.inf, math.inf))
"""The key, and the bounds, of a box without sides."""


class _Postings:
    """The boxes under one key: their numbers, ascending, and the bounds of what each has there."""

    __slots__ = ("highs", "lows", "rows")

    def __init__(self) -> None:
        self.rows, self.lows, self.highs = array("q"), array("d"), array("d")

    def add(self, row: int, bounds: Bounds) -> None:
        place, (low, high) = bisect_left(self.rows, row), bounds
        self.rows.insert(place, row)
        self.lows.insert(place, low)
        self.highs.insert(place, high)

    def remove(self, row: int) -> None:
        place = bisect_left(self.rows, row)
        del self.rows[place], self.lows[place], self.highs[place]


_Table: TypeAlias = dict[Key | None, _Postings]


class CoveringIndex:
    """Filters by number, and the candidates for covering among them.

    >>> import palio
    >>> from palio.routing.normalized import form_of
    >>> index = CoveringIndex()
    >>> index.add(0, form_of(palio.parse("a > 1")))
    >>> index.add(1, form_of(palio.parse("b = 2 AND a > 5")))
    >>> index.above(form_of(palio.parse("a > 7"))), index.below(form_of(palio.parse("b > 1")))
    ([0], [1])
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}
        """By filter its rows, one a box. A filter without a box matches nothing."""
        self._hollow: dict[int, None] = {}
        self._boxes: list[Box] = []
        self._filters: list[int] = []
        self._rarest: list[Key | None] = []
        """By row the box, its filter, and the key that it is filed under alone."""
        self._free: list[int] = []
        self._sides = np.zeros((16, _MOST_SIDES, SIDE))
        self._marks = np.zeros(16, np.int64)
        self._by_key: _Table = {}
        """One box of each filter: all of them must lie in what covers it."""
        self._by_rarest: _Table = {}

    def add(self, item: int, form: NormalizedFilter) -> None:
        """Index a filter under a number that is new."""
        rows = self._rows[item] = [self._enter(item, box) for box in form.boxes]
        if not rows:
            self._hollow[item] = None
            return
        for entry in form.boxes[0].keys:
            _file(self._by_key, rows[0], *entry)
        for row, box in zip(rows, form.boxes, strict=True):
            rarest = min(box.keys, key=self._count, default=_EVERYTHING)
            self._rarest[row] = rarest[0]
            _file(self._by_rarest, row, *rarest)

    def _enter(self, item: int, box: Box) -> int:
        if not self._free:
            self._free.append(len(self._boxes))
            self._boxes.append(box)
            self._filters.append(item)
            self._rarest.append(None)
            if len(self._boxes) > len(self._sides):
                self._sides = np.concatenate((self._sides, np.zeros_like(self._sides)))
                self._marks = np.concatenate((self._marks, np.zeros_like(self._marks)))
        row, count = self._free.pop(), min(len(box.numbers), _MOST_SIDES)
        self._boxes[row], self._filters[row] = box, item
        self._marks[row] = box.mark
        self._sides[row, :count] = box.numbers[:count]
        self._sides[row, count:] = 0
        return row

    def remove(self, item: int) -> None:
        """Forget a filter."""
        rows = self._rows.pop(item)
        if not rows:
            del self._hollow[item]
            return
        for key, _ in self._boxes[rows[0]].keys:
            _take_out(self._by_key, rows[0], key)
        for row in rows:
            _take_out(self._by_rarest, row, self._rarest[row])
        self._free += rows

    def above(self, form: NormalizedFilter) -> list[int]:
        """Numbers, ascending, among which are all filters that cover this one."""
        if not form.boxes:
            return sorted(self._rows)
        box, rows = form.boxes[0], list[int]()
        for key, bounds in (_EVERYTHING, *box.keys):
            postings = self._by_rarest.get(key)
            if postings is not None:
                rows += self._compared(postings, bounds, box, inside=False)
        filters = self._filters
        return sorted({filters[row] for row in rows})

    def below(self, form: NormalizedFilter) -> list[int]:
        """Numbers, ascending, among which are all filters that this one covers."""
        found, filters = set(self._hollow), self._filters
        for box in form.boxes:
            if not box.keys:
                return sorted(self._rows)
            key, bounds = min(box.keys, key=self._count)
            postings = self._by_key.get(key)
            if postings is not None:
                rows = self._compared(postings, bounds, box, inside=True)
                found.update([filters[row] for row in rows])
        return sorted(found)

    def _count(self, entry: tuple[Key, Bounds]) -> int:
        postings = self._by_key.get(entry[0])
        return 0 if postings is None else len(postings.rows)

    def _compared(
        self, postings: _Postings, bounds: Bounds, box: Box, *, inside: bool
    ) -> list[int]:
        """The rows whose boxes hold a box, or those that lie `inside` it. The bounds are what it
        has under the key.
        """
        if len(postings.rows) <= _FEW:
            return postings.rows.tolist()
        rows = np.frombuffer(postings.rows, np.int64)
        filed = (rows, np.frombuffer(postings.lows), np.frombuffer(postings.highs))
        known, asked = (self._marks, self._sides), (box.mark, box.numbers)
        engine, found = registry.ready(), np.empty(len(rows), np.int64)
        compare = compare_boxes if engine is None else engine.compare_boxes
        count = compare(filed, bounds, known, asked, inside, found)
        fitting: list[int] = found[:count].tolist()
        return fitting


def compare_boxes(
    filed: tuple[Longs, Floats, Floats],
    bounds: Bounds,
    known: tuple[Longs, Floats],
    asked: tuple[int, Floats],
    inside: bool,
    found: Longs,
) -> int:
    """Do as the kernel does (`kernels/boxes.py`), until it is loaded."""
    rows, lows, highs = filed
    low, high = bounds
    marks, boxes = known
    mark, box = asked
    if inside:
        rows = rows[(lows >= low) & (highs <= high) & (mark & ~marks[rows] == 0)]
        sides = boxes[rows]
        held = np.any(_hold(box[:, np.newaxis], sides[:, np.newaxis]), axis=2)
        rows = rows[np.all(held, axis=1) | (sides[:, -1, 0] != 0)]
    else:
        rows = rows[(lows <= low) & (highs >= high) & (marks[rows] & ~mark == 0)]
        sides = boxes[rows]
        held = np.any(_hold(sides[:, :, np.newaxis], box), axis=2)
        rows = rows[np.all(held | (sides[:, :, 0] == 0), axis=1)]
    found[: len(rows)] = rows
    return len(rows)


def _hold(outer: Floats, inner: Floats) -> npt.NDArray[np.bool_]:
    """Compare sides with sides: which hold which."""
    name, kind, value, low, high = (outer[..., place] for place in range(SIDE))
    held: npt.NDArray[np.bool_] = (
        (name == inner[..., 0])
        & ((kind < 0) | (kind == inner[..., 1]))
        & ((value == 0) | (value == inner[..., 2]))
        & (low <= inner[..., 3])
        & (inner[..., 4] <= high)
    )
    return held


def _file(table: _Table, row: int, key: Key | None, bounds: Bounds) -> None:
    postings = table.get(key)
    if postings is None:
        postings = table[key] = _Postings()
    postings.add(row, bounds)


def _take_out(table: _Table, row: int, key: Key | None) -> None:
    postings = table[key]
    postings.remove(row)
    if not postings.rows:
        del table[key]
