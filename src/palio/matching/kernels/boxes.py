"""Kernels of routing's covering index: whose bounds hold these, and whose lie in these?

Rows are `[number, low, high, low, high, ...]` in a pool of floats; `routing/bounds_tables.py` has
each of them in plain Python, too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.jit import compiled

__all__ = ["rows_around", "rows_within"]

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@compiled
def rows_around(pool: Floats, regions: Longs, wanted: Floats, found: Longs) -> int:
    """Of each region the numbers of the rows that hold its own part of `wanted`; their count."""
    count = 0
    first = 0
    for region in range(len(regions)):
        start, rows, width = regions[region]
        for row in range(start, start + rows * width, width):
            holds = True
            for side in range(0, width - 1, 2):
                if (
                    pool[row + 1 + side] > wanted[first + side]
                    or pool[row + 2 + side] < wanted[first + side + 1]
                ):
                    holds = False
                    break
            if holds:
                found[count] = np.int64(pool[row])
                count += 1
        first += width - 1
    return count


@compiled
def rows_within(pool: Floats, start: int, rows: int, low: float, high: float, found: Longs) -> int:
    """The numbers of the rows of a region of width 3 that lie in `[low, high]`; their count."""
    count = 0
    for row in range(start, start + rows * 3, 3):
        if pool[row + 1] >= low and pool[row + 2] <= high:
            found[count] = np.int64(pool[row])
            count += 1
    return count
