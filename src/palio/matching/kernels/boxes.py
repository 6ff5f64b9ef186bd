"""The kernel of routing's covering index: finds the boxes that hold one, or are inside it.

A box is a table of sides, each `[name, kind, value, low, high]`, which `routing/normalized.py`
makes. `routing/covering_index.py` has a twin of this that works by columns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.jit import compiled

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@compiled
def holds(outer: Floats, outer_sides: int, inner: Floats, inner_sides: int) -> bool:
    """Check whether each side of a box holds one of another."""
    for side in range(outer_sides):
        # A negative kind admits all kinds, a value of 0 admits all values within the bounds.
        name, kind, value, low, high = outer[side]
        held = False
        for other in range(inner_sides):
            if (
                inner[other, 0] == name
                and (kind < 0 or kind == inner[other, 1])
                and (value == 0 or value == inner[other, 2])
                and low <= inner[other, 3]
                and inner[other, 4] <= high
            ):
                held = True
                break
        if not held:
            return False
    return True


@compiled
def compare_boxes(
    filed: tuple[Longs, Floats, Floats],
    bounds: tuple[float, float],
    indexed: tuple[Longs, Floats],
    query: tuple[int, Floats],
    inside: bool,
    fitting: Longs,
) -> int:
    """Find the filed boxes (rows, lows, highs of one side) that hold the query, or that are
    `inside` it; return their count.
    """
    rows, lows, highs = filed
    low, high = bounds
    marks, boxes = indexed
    mark, box = query
    width = boxes.shape[1]
    count = 0
    for index in range(len(rows)):
        # Cheapest first: the bounds lie beside the row; marks, a bit for each attribute, are one
        # word; they rule out most rows, whose sides are then never loaded.
        if inside:
            if lows[index] < low or highs[index] > high:
                continue
        elif lows[index] > low or highs[index] < high:
            continue
        row = rows[index]
        if (mark & ~marks[row] if inside else marks[row] & ~mark) != 0:
            continue
        sides = 0
        while sides < width and boxes[row, sides, 0]:
            sides += 1
        if inside:
            # A full row may have more sides than were stored: let the caller decide.
            fits = sides == width or holds(box, len(box), boxes[row], sides)
        else:
            fits = holds(boxes[row], sides, box, len(box))
        if fits:
            fitting[count] = row
            count += 1
    return count
