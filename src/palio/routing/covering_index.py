"""`CoveringIndex`: finds candidates for filters that cover a filter, or that it covers.

A conjunction is a *box*. It has a *side* for each attribute that it names: the kind of the admitted
values, and their least and greatest as floats (`measure`). If only one value is admitted, the side
has it too. If several kinds or absence are admitted, the side admits anything. A filter can cover
another only if each side of its box holds a side of the other's box.

A side has one or two *keys*: its attribute, and its single value. Boxes are filed twice:

- under the rarest key alone: a box that holds another has all its keys in the other, so a search
  for holders visits the keys of the box asked about, and misses none;
- under all keys: a box inside another has all keys of the other, so a search for the inside visits
  one key, the rarest.

One kernel compares the few boxes under a key. Measuring may round (long strings, 2**53 + 1) but
never changes the order. So no true answer is missed, and the caller confirms candidates by the
exact relation.
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
"""Sides of a box that are compared: rows have one width. Others only make needless candidates."""

_FEW: Final = 8
"""Candidates that are returned uncompared: to call the kernel takes as long as to confirm them."""

_EVERYTHING: Final = (None, (-math.inf, math.inf))
"""The key, and the bounds, of a box without sides."""


class _Postings:
    """The boxes under one key: their rows, ascending, and the bounds of their sides there."""

    __slots__ = ("highs", "lows", "rows")

    def __init__(self) -> None:
        self.rows, self.lows, self.highs = array("q"), array("d"), array("d")

    def add(self, row: int, bounds: Bounds) -> None:
        index, (low, high) = bisect_left(self.rows, row), bounds
        self.rows.insert(index, row)
        self.lows.insert(index, low)
        self.highs.insert(index, high)

    def remove(self, row: int) -> None:
        index = bisect_left(self.rows, row)
        del self.rows[index], self.lows[index], self.highs[index]


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
        self._rows: dict[int, list[int]] = {}  # by filter, a row for each of its boxes
        self._hollow: dict[int, None] = {}  # filters without a box: they match nothing
        # By row: the box, its filter, and the one key that it is filed under alone.
        self._boxes: list[Box] = []
        self._filters: list[int] = []
        self._rarest: list[Key | None] = []
        self._free: list[int] = []
        self._sides = np.zeros((16, _MOST_SIDES, SIDE))
        self._marks = np.zeros(16, np.int64)
        # The first box of each filter alone: a coverer has to hold all boxes, so also that one.
        self._by_key: _Table = {}
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
            # Remembered: by the time the row is removed, another of its keys may be the rarest.
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
        """Return numbers, ascending, among which are all filters that cover this one."""
        if not form.boxes:  # it matches nothing, so all filters cover it
            return sorted(self._rows)
        box, rows = form.boxes[0], list[int]()
        for key, bounds in (_EVERYTHING, *box.keys):
            postings = self._by_rarest.get(key)
            if postings is not None:
                rows += self._compared(postings, bounds, box, inside=False)
        filters = self._filters
        return sorted({filters[row] for row in rows})

    def below(self, form: NormalizedFilter) -> list[int]:
        """Return numbers, ascending, among which are all filters that this one covers."""
        candidates, filters = set(self._hollow), self._filters
        for box in form.boxes:
            if not box.keys:
                return sorted(self._rows)
            key, bounds = min(box.keys, key=self._count)
            postings = self._by_key.get(key)
            if postings is not None:
                rows = self._compared(postings, bounds, box, inside=True)
                candidates.update([filters[row] for row in rows])
        return sorted(candidates)

    def _count(self, entry: tuple[Key, Bounds]) -> int:
        postings = self._by_key.get(entry[0])
        return 0 if postings is None else len(postings.rows)

    def _compared(
        self, postings: _Postings, bounds: Bounds, box: Box, *, inside: bool
    ) -> list[int]:
        """Return the rows whose boxes hold a box, or lie `inside` it; `bounds` are those of the
        box under the key.
        """
        if len(postings.rows) <= _FEW:
            return postings.rows.tolist()
        rows = np.frombuffer(postings.rows, np.int64)
        filed = (rows, np.frombuffer(postings.lows), np.frombuffer(postings.highs))
        indexed, query = (self._marks, self._sides), (box.mark, box.numbers)
        engine, fitting = registry.ready(), np.empty(len(rows), np.int64)
        compare = compare_boxes if engine is None else engine.compare_boxes
        count = compare(filed, bounds, indexed, query, inside, fitting)
        fitting_rows: list[int] = fitting[:count].tolist()
        return fitting_rows


def compare_boxes(
    filed: tuple[Longs, Floats, Floats],
    bounds: Bounds,
    indexed: tuple[Longs, Floats],
    query: tuple[int, Floats],
    inside: bool,
    fitting: Longs,
) -> int:
    """Do as the kernel does (`kernels/boxes.py`), until it is compiled."""
    rows, lows, highs = filed
    low, high = bounds
    marks, boxes = indexed
    mark, box = query
    if inside:
        rows = rows[(lows >= low) & (highs <= high) & (mark & ~marks[rows] == 0)]
        sides = boxes[rows]
        held = np.any(_hold(box[:, np.newaxis], sides[:, np.newaxis]), axis=2)
        # A row that is full to its last side may have more sides than were stored.
        rows = rows[np.all(held, axis=1) | (sides[:, -1, 0] != 0)]
    else:
        rows = rows[(lows <= low) & (highs >= high) & (marks[rows] & ~mark == 0)]
        sides = boxes[rows]
        held = np.any(_hold(sides[:, :, np.newaxis], box), axis=2)
        rows = rows[np.all(held | (sides[:, :, 0] == 0), axis=1)]
    fitting[: len(rows)] = rows
    return len(rows)


def _hold(outer: Floats, inner: Floats) -> npt.NDArray[np.bool_]:
    """Compare sides with sides: True where one of `outer` holds one of `inner`."""
    name, kind, value, low, high = (outer[..., field] for field in range(SIDE))
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
