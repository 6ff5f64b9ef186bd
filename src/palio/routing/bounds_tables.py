"""`BoundsTable`: rows of bounds by number, many tables in one pool of floats.

A row is `[number, low, high, low, high, ...]`. Rows of a table lie side by side, so that one call
of a kernel looks through as many tables as a question concerns. Small tables are not worth it:
their rows are compared one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.kernels import registry
from palio.routing.normalized import Bounds

__all__ = ["BoundsTable", "Pool", "Rows", "rows_around", "rows_within"]

Rows: TypeAlias = npt.NDArray[np.int64]

FEW: Final = 2
"""So few rows are compared one by one."""

_SMALLEST: Final = 16
"""Floats in the smallest region of a pool; all others are twice, four times, ... as large."""


class Pool:
    """Floats in regions whose sizes are powers of two; what is released is used again."""

    __slots__ = ("_free", "_size", "floats")

    def __init__(self) -> None:
        self.floats = np.empty(_SMALLEST)
        self._size = 0
        self._free: dict[int, list[int]] = {}

    def reserve(self, size: int) -> int:
        """The begin of a region of this size."""
        free = self._free.get(size)
        if free:
            return free.pop()
        start = self._size
        self._size += size
        if self._size > len(self.floats):
            floats = np.empty(2 * self._size)
            floats[:start] = self.floats[:start]
            self.floats = floats
        return start

    def release(self, start: int, size: int) -> None:
        """A region is not needed any more."""
        self._free.setdefault(size, []).append(start)


class BoundsTable:
    """Rows of bounds by number; all rows have the same number of bounds.

    >>> pool = Pool()
    >>> table = BoundsTable(pool)
    >>> for number in range(10):
    ...     table.add(number, ((0.0, float(number)),))
    >>> rows_around([table], [[(0.0, 8.0)]]), rows_within(table, 0.0, 1.0).tolist()
    ([8, 9], [0, 1])
    """

    __slots__ = ("_places", "pool", "rows", "size", "start", "width")

    def __init__(self, pool: Pool) -> None:
        self.rows: dict[int, Bounds] = {}
        self.start = 0
        self.size = 0
        """Floats in the region; 0 while there is none."""
        self.width = 0
        self.pool = pool
        self._places: dict[int, int] = {}

    def add(self, number: int, bounds: Bounds) -> None:
        """Add a row."""
        self.rows[number] = bounds
        if self.size:
            if len(self.rows) * self.width > self.size:
                self._grow()
            self._place(number, bounds)
        elif len(self.rows) > FEW and bounds:
            self.width = 1 + 2 * len(bounds)
            self.size = _SMALLEST
            while self.size < len(self.rows) * self.width:
                self.size *= 2
            self.start = self.pool.reserve(self.size)
            for each, known in self.rows.items():
                self._place(each, known)

    def remove(self, number: int) -> None:
        """Remove a row: the last one takes its place."""
        del self.rows[number]
        if not self.size:
            return
        place, last = self._places.pop(number), len(self.rows)
        if place != last:
            floats, width = self.pool.floats, self.width
            end = self.start + last * width
            begin = self.start + place * width
            floats[begin : begin + width] = floats[end : end + width]
            self._places[int(floats[begin])] = place
        if not last:
            self.pool.release(self.start, self.size)
            self.size = 0

    def _place(self, number: int, bounds: Bounds) -> None:
        place = self._places[number] = len(self._places)
        at = self.start + place * self.width
        row = [float(number)]
        for side in bounds:
            row += side
        self.pool.floats[at : at + self.width] = row

    def _grow(self) -> None:
        pool, start, size = self.pool, self.start, self.size
        self.start, self.size = pool.reserve(2 * size), 2 * size
        pool.floats[self.start : self.start + size] = pool.floats[start : start + size]
        pool.release(start, size)

    @property
    def block(self) -> npt.NDArray[np.float64]:
        """The rows of a table that has a region, as they lie there."""
        count = len(self.rows)
        floats = self.pool.floats[self.start : self.start + count * self.width]
        return floats.reshape(count, self.width)


def rows_around(
    tables: Sequence[BoundsTable], wanted: Sequence[Sequence[tuple[float, float]]]
) -> list[int]:
    """Numbers of the rows whose bounds hold those wanted of their table."""
    found: list[int] = []
    regions: list[tuple[int, int, int]] = []
    flat: list[float] = []
    room = 0
    engine = registry.ready()
    for table, bounds in zip(tables, wanted, strict=True):
        rows = table.rows
        if not table.size:
            found += [number for number, known in rows.items() if _hold(known, bounds)]
        elif engine is None:
            found += _around(table, bounds)
        else:
            count = len(rows)
            regions.append((table.start, count, table.width))
            room += count
            for side in bounds:
                flat += side
    if regions and engine is not None:
        numbers = np.empty(room, np.int64)
        floats = tables[0].pool.floats
        count = engine.rows_around(floats, np.array(regions), np.array(flat), numbers)
        found += numbers[:count].tolist()
    return found


def _around(table: BoundsTable, wanted: Sequence[tuple[float, float]]) -> list[int]:
    block = table.block
    sides = np.array(wanted)
    holds = (block[:, 1::2] <= sides[:, 0]) & (block[:, 2::2] >= sides[:, 1])
    found: list[int] = block[holds.all(axis=1), 0].astype(np.int64).tolist()
    return found


def rows_within(table: BoundsTable, low: float, high: float) -> Rows:
    """Numbers of the rows whose only bounds lie in `[low, high]`."""
    if not table.size:
        return np.array(
            [row for row, ((least, most),) in table.rows.items() if least >= low and most <= high],
            np.int64,
        )
    engine = registry.ready()
    if engine is None:
        block = table.block
        lies = (block[:, 1] >= low) & (block[:, 2] <= high)
        numbers: Rows = block[lies, 0].astype(np.int64)
        return numbers
    found = np.empty(len(table.rows), np.int64)
    count = engine.rows_within(table.pool.floats, table.start, len(table.rows), low, high, found)
    return found[:count]


def _hold(outer: Bounds, wanted: Sequence[tuple[float, float]]) -> bool:
    for (low, high), (least, greatest) in zip(outer, wanted, strict=True):
        if low > least or high < greatest:
            return False
    return True
