"""Kernels of the counting plan: count the events that each row admits, without listing which.

A *row* is a conjunction of predicates, and its *rank* the position of its total. A *slot* is an
attribute, or a test of one, and a *code* the number of an event's value in it (`compile.cuts`).

Every row has a *pivot*: its most selective predicate, or nearly. Events are sorted by their code in
the pivot's slot, so that those satisfying the pivot are contiguous. The row's other predicates are
tested on these alone, 32 codes at a time. Rows with pivots in one slot share the sorting, and the
columns of codes in its order.

Indices are unsigned words throughout, as in `kernels.bits`.
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
    """Add the number of events that each row admits to `totals[rank]`. Return the number of vectors
    of codes tested, from which the cost of the plan is estimated.
    """
    order = np.zeros(CHUNK, np.uint16)
    ends = np.zeros(pivots.code_counts.max() + 2, np.int32)
    # Codes of 16 bits, as one instruction tests 32 of them. The last vector of a column may begin
    # at its last event, so each column has a vector's length to spare.
    columns = np.zeros((np.diff(pivots.column_offsets).max(), CHUNK + LANES), np.uint16)
    vectors_tested = 0
    for first in range(0, codes.shape[1], CHUNK):
        last = min(first + CHUNK, codes.shape[1])
        for group in range(len(pivots.slots)):
            _sort(codes[pivots.slots[group], first:last], pivots.code_counts[group], ends, order)
            slots = pivots.columns[pivots.column_offsets[group] : pivots.column_offsets[group + 1]]
            for column, slot in enumerate(slots):
                _arrange(codes[slot, first:last], order, columns[column])
            vectors_tested += _count_rows(
                pivots, pivots.row_offsets[group], pivots.row_offsets[group + 1], ends, columns,
                tombstones, totals,
            )  # fmt: skip
    return vectors_tested


@compiled
def _sort(coded: Integers, count: int, ends: Integers, order: Halves) -> None:
    """Sort events by code; the first `ends[c]` have a code less than c."""
    # A counting sort with counts two places ahead: after the sums, `ends[c + 1]` is where code c
    # begins; sorting its events advances that to where code c + 1 begins.
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
    """Write the codes of another slot in the order of the sorted events."""
    for position in range(word(len(coded))):
        column[position] = coded[word(order[position])]


@inlined
def _test(pivots: Any, test: Any, base: Any, stride: Any) -> Any:
    """Return the address of a test's column, its first code and its width.

    The width is the number of codes less one: a code passes if `code - first <= width`, unsigned.
    """
    column = base + word(pivots.test_columns[test]) * stride
    return column, word(pivots.test_lows[test]), word(pivots.test_widths[test])


@inlined
def _match_mask(
    test_1: Any, test_2: Any, more: Any, position: Any, pivots: Any, base: Any, stride: Any
) -> Any:
    """Return a mask of the 32 events from a position on that pass two tests and those in `more`."""
    offset = position + position  # in bytes
    mask = within(test_1[0] + offset, test_1[1], test_1[2])
    mask &= within(test_2[0] + offset, test_2[1], test_2[2])
    test, last = more
    while mask and test < last:
        column, low, width = _test(pivots, test, base, stride)
        mask &= within(column + offset, low, width)
        test += _ONE
    return mask


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
    vectors_tested = _ZERO
    for row in range(word(first_row), word(last_row)):
        rank = word(pivots.ranks[row])
        position, end = word(ends[word(pivots.lows[row])]), word(ends[word(pivots.highs[row])])
        if tombstones[rank >> _SHIFT] >> (rank & word(63)) & _ONE or position >= end:
            continue
        first, last = word(pivots.test_offsets[row]), word(pivots.test_offsets[row + _ONE])
        if first == last:  # the pivot is the only predicate, and all these events satisfy it
            totals[rank] += end - position
            continue
        vectors_tested += ((end - position + _LANES - _ONE) // _LANES) * (last - first)
        # Most rows have one or two tests beside the pivot. A single one is made twice, as that is
        # cheaper than a branch.
        test_1 = _test(pivots, first, base, stride)
        test_2 = _test(pivots, min(first + _ONE, last - _ONE), base, stride)
        more = (first + _TWO, last)
        count = _ZERO
        while position + _LANES <= end:
            count += ones_in(_match_mask(test_1, test_2, more, position, pivots, base, stride))
            position += _LANES
        if position < end:  # the last vector also has events that do not satisfy the pivot
            valid = (_ONE << (end - position)) - _ONE
            mask = _match_mask(test_1, test_2, more, position, pivots, base, stride)
            count += ones_in(mask & valid)
        totals[rank] += count
    return int(vectors_tested)
