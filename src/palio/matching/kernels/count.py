"""Kernels of the counting plan: count the events that each row admits, without their names.

Every row has a *pivot*: the most selective of its predicates, or nearly. Events are sorted by the
code of the pivot's slot, so those that satisfy the pivot are together, and the row's other
predicates are tested on those alone, 32 codes at a time. Rows whose pivots are of one slot share
the sorting, and the columns of codes in its order.

Unsigned words are used as indices throughout, as in `kernels.bits`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.records import CHUNK, Pivots
from palio.matching.kernels.simd import ones_in, within

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint16]

LANES = 32
"""Codes that are tested by one instruction."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_SHIFT = np.uint64(6)
_LANES = np.uint64(LANES)


@compiled
def count_ranges(codes: Integers, pivots: Pivots, tombstones: Words, totals: Longs) -> int:
    """Add to `totals[rank]` the number of events that each row admits; return the number of vectors
    of codes that were tested, by which the plan's cost is estimated.
    """
    order = np.zeros(CHUNK, np.uint16)
    ends = np.zeros(pivots.code_counts.max() + 2, np.int32)
    # Short codes, as 32 fit one instruction; a vector may be loaded beyond the last event.
    columns = np.zeros((np.diff(pivots.column_offsets).max(), CHUNK + LANES), np.uint16)
    looked = 0
    for first in range(0, codes.shape[1], CHUNK):
        last = min(first + CHUNK, codes.shape[1])
        for group in range(len(pivots.slots)):
            _sort(codes[pivots.slots[group], first:last], pivots.code_counts[group], ends, order)
            slots = pivots.columns[pivots.column_offsets[group] : pivots.column_offsets[group + 1]]
            for place, slot in enumerate(slots):
                _arrange(codes[slot, first:last], order, columns[place])
            looked += _count_rows(
                pivots, pivots.row_offsets[group], pivots.row_offsets[group + 1], ends, columns,
                tombstones, totals,
            )  # fmt: skip
    return looked


@compiled
def _sort(coded: Integers, count: int, ends: Integers, order: Halves) -> None:
    """Sort events by code; those with a code less than c are the first `ends[c]`."""
    # Counted two places ahead: after the sums and the sort, `ends[c]` is where code c begins.
    ends[: count + 2] = 0
    for event in range(word(len(coded))):
        ends[word(coded[event]) + _TWO] += 1
    for code in range(word(count)):
        ends[code + _ONE] += ends[code]
    for event in range(word(len(coded))):
        code = word(coded[event]) + _ONE
        order[word(ends[code])] = event
        ends[code] += 1


@compiled
def _arrange(coded: Integers, order: Halves, column: Halves) -> None:
    """Write the codes of another slot in that order."""
    for place in range(word(len(coded))):
        column[place] = coded[word(order[place])]


@inlined
def _test(pivots: Any, test: Any, base: Any, stride: Any) -> Any:
    """Return the address of a test's column, its first code, and the number of codes less one."""
    column = base + word(pivots.test_columns[test]) * stride
    return column, word(pivots.test_lows[test]), word(pivots.test_widths[test])


@inlined
def _met(one: Any, two: Any, more: Any, place: Any, pivots: Any, base: Any, stride: Any) -> Any:
    """Find which of 32 events satisfy two tests, and further ones if any, a bit for each."""
    at = place + place
    bits = within(one[0] + at, one[1], one[2]) & within(two[0] + at, two[1], two[2])
    test, last = more
    while bits and test < last:
        column, low, width = _test(pivots, test, base, stride)
        bits &= within(column + at, low, width)
        test += _ONE
    return bits


@compiled
def _count_rows(
    pivots: Pivots,
    first_row: int,
    last_row: int,
    ends: Integers,
    columns: Halves,
    tombstones: Words,
    totals: Longs,
) -> int:
    """Count the matches of a group's rows; return the number of vectors of codes tested."""
    base, stride = word(columns.ctypes.data), word(2 * columns.shape[1])
    looked = _ZERO
    for row in range(word(first_row), word(last_row)):
        rank = word(pivots.ranks[row])
        place, end = word(ends[word(pivots.lows[row])]), word(ends[word(pivots.highs[row])])
        if tombstones[rank >> _SHIFT] >> (rank & word(63)) & _ONE or place >= end:
            continue
        first, last = word(pivots.test_offsets[row]), word(pivots.test_offsets[row + _ONE])
        if first == last:  # the pivot is the only predicate: its events are known without a test
            totals[rank] += end - place
            continue
        looked += ((end - place + _LANES - _ONE) // _LANES) * (last - first)
        one = _test(pivots, first, base, stride)
        # Most rows have two further tests or one; the same one twice spares a branch.
        two = _test(pivots, min(first + _ONE, last - _ONE), base, stride)
        more = (first + _TWO, last)
        count = _ZERO
        while place + _LANES <= end:
            count += ones_in(_met(one, two, more, place, pivots, base, stride))
            place += _LANES
        if place < end:  # the last vector also has events beyond the pivot's
            some = (_ONE << (end - place)) - _ONE
            count += ones_in(_met(one, two, more, place, pivots, base, stride) & some)
        totals[rank] += count
    return int(looked)
