"""The kernel of routing's covering index: find the boxes that hold one, or are inside it.

A box is a table of sides, `[name, kind, value, low, high]` each, which `routing/normalized.py`
makes; `routing/covering_index.py` does the same by columns.
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
    for place in range(outer_sides):
        name, kind, value, low, high = outer[place]
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
    known: tuple[Longs, Floats],
    asked: tuple[int, Floats],
    inside: bool,
    found: Longs,
) -> int:
    """Find those of filed boxes (rows, lows, highs of one side) that hold the box that is asked
    about, or that are `inside` it; return their count.

    The bounds of the one side, and marks, which have a bit for each attribute, decide about most
    rows without a test of all their sides.
    """
    rows, lows, highs = filed
    low, high = bounds
    marks, boxes = known
    mark, box = asked
    width = boxes.shape[1]
    count = 0
    for place in range(len(rows)):
        if inside:
            if lows[place] < low or highs[place] > high:
                continue
        elif lows[place] > low or highs[place] < high:
            continue
        row = rows[place]
        if (mark & ~marks[row] if inside else marks[row] & ~mark) != 0:
            continue
        sides = 0
        while sides < width and boxes[row, sides, 0]:
            sides += 1
        if inside:
            fits = sides == width or holds(box, len(box), boxes[row], sides)
        else:
            fits = holds(boxes[row], sides, box, len(box))
        if fits:
            found[count] = row
            count += 1
    return count
