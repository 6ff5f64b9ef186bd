"""Kernel of the plan for few events: two levels of bucketed bitmaps, then the exact test.

The upper level has a bit for each block of 512 rows, the lower one a bit for each row of a block
(`kernels.build.level_of`). The bitmaps selected by an event's codes are ANDed, the most selective
first; what is left is tested predicate by predicate. Rows are in the order of their shared
predicates, so an equality on a popular attribute clears most blocks with one AND, as the first
step into a trie would, but without chasing a pointer; for ranges the buckets clear most rows.
Hence one structure serves both.
"""

# ruff: noqa: PLR0913, PLR0917
# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.records import BITMAP_ROWS
from palio.matching.kernels.simd import and_into, array_at, lowest_bit, vector_at

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

NO_ROOM = -1
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FEW_SPANS = 8


class Level(NamedTuple):
    """One level of bitmaps, as `kernels.build.level_of` makes it."""

    offsets: Integers
    entries: Longs
    vectors: Words


class Rows(NamedTuple):
    """The rows, and each predicate as `(slot, low, high, intervals)` with its hull."""

    offsets: Integers
    predicates: Integers
    ranks: Integers
    tests: Integers
    span_offsets: Integers
    lows: Integers
    highs: Integers


@inlined
def _level_at(tables: Any, first: Any) -> Any:
    return Level(
        array_at(tables, first, np.int32),
        array_at(tables, first + 1, np.int64).reshape(-1, 5),
        array_at(tables, first + 2, np.uint64).reshape(-1, 8),
    )


@inlined
def _rows_at(tables: Any, first: Any) -> Any:
    return Rows(
        array_at(tables, first, np.int32),
        array_at(tables, first + 1, np.int32),
        array_at(tables, first + 2, np.int32),
        array_at(tables, first + 3, np.int32).reshape(-1, 4),
        array_at(tables, first + 4, np.int32),
        array_at(tables, first + 5, np.int32),
        array_at(tables, first + 6, np.int32),
    )


@inlined
def _selected(entries: Any, entry: Any, codes: Any, event: Any, vectors: Any) -> Any:
    """The address of the vector that an event's code selects."""
    distance = np.int64(codes[word(entries[entry, 0]), event]) - entries[entry, 1]
    bucket = _ZERO
    if distance >= 0:
        step = distance >> entries[entry, 2]
        if step < entries[entry, 3]:
            bucket = word(step + 1)  # vector 0 is for codes out of the range
    return vector_at(vectors, word(entries[entry, 4]) + bucket)


@inlined
def _within(predicate: Any, code: Any, rows: Any) -> Any:
    """Check whether a code is in one of several intervals."""
    first, end = word(rows.span_offsets[predicate]), word(rows.span_offsets[predicate + _ONE])
    while end - first > word(_FEW_SPANS):  # ascending and disjoint: halve them
        middle = (first + end) >> _ONE
        if code < rows.lows[middle]:
            end = middle
        else:
            first = middle
    is_hit = False
    while first < end:
        if rows.lows[first] <= code < rows.highs[first]:
            is_hit = True
            break
        first += _ONE
    return is_hit


@inlined
def _passes(row: Any, codes: Any, event: Any, rows: Any) -> Any:
    """Check whether an event satisfies every predicate of a row."""
    passes = True
    for at in range(word(rows.offsets[row]), word(rows.offsets[row + _ONE])):
        predicate = word(rows.predicates[at])
        code = codes[word(rows.tests[predicate, _ZERO]), event]
        passes = rows.tests[predicate, _ONE] <= code < rows.tests[predicate, _TWO]
        if passes and rows.tests[predicate, _THREE] > 1:
            passes = _within(predicate, code, rows)
        if not passes:
            break
    return passes


@compiled
def match_events(
    codes: Integers,
    tables: Longs,
    tombstones: Words,
    offsets: Longs,
    matches: Integers,
    work: Longs,
) -> int:
    """Write the ranks that each event matches, in no order, and repeated if several rows match.

    Those of event e are `matches[offsets[e] : offsets[e + 1]]`; returns `NO_ROOM` if `matches` is
    too short. Adds to `work` the numbers of blocks visited and of rows tested exactly. `tables` are
    the addresses of the upper level, of the lower level and of the rows.
    """
    upper, lower, rows = _level_at(tables, 0), _level_at(tables, 3), _rows_at(tables, 6)
    both = np.zeros((2, 8), np.uint64)
    target = word(both.ctypes.data)
    bases = word(upper.vectors.ctypes.data), word(lower.vectors.ctypes.data)
    row_count, blocks = len(rows.ranks), len(lower.offsets) - 1
    total = 0
    for event in range(np.uint64(codes.shape[1])):
        for group in range(len(upper.offsets) - 1):
            if not _and_all(
                upper, group, codes, event, bases[0], target, both[0], blocks - group * BITMAP_ROWS
            ):
                continue
            for upper_word in range(8):
                block_bits = both[0, upper_word]
                while block_bits:
                    block = group * BITMAP_ROWS + upper_word * 64 + np.int64(lowest_bit(block_bits))
                    block_bits &= block_bits - _ONE
                    work[0] += 1
                    if not _and_all(
                        lower, block, codes, event, bases[1], vector_at(target, _ONE), both[1],
                        row_count - block * BITMAP_ROWS,
                    ):  # fmt: skip
                        continue
                    # All rows of a block may match: checked once, not at each row.
                    if total + BITMAP_ROWS > len(matches):
                        return NO_ROOM
                    total = _test_block(
                        both[1],
                        word(block * BITMAP_ROWS),
                        codes,
                        event,
                        rows,
                        tombstones,
                        matches,
                        total,
                        work,
                    )
        offsets[event + _ONE] = total
    return total


@inlined
def _test_block(
    left: Any,
    first: Any,
    codes: Any,
    event: Any,
    rows: Any,
    tombstones: Any,
    matches: Any,
    total: Any,
    work: Any,
) -> Any:
    """Test the rows of a block that the bitmaps left; return the number of matches so far."""
    for place in range(word(8)):
        bits = left[place]
        while bits:
            row = first + (place << word(6)) + lowest_bit(bits)
            bits &= bits - _ONE
            work[1] += 1
            if _passes(row, codes, event, rows):
                rank = word(rows.ranks[row])
                # Kept only if the rank has no tombstone; a branch would be mispredicted.
                matches[total] = rank
                total += np.int64(~(tombstones[rank >> word(6)] >> (rank & word(63))) & _ONE)
    return total


@inlined
def _and_all(
    level: Any,
    block: Any,
    codes: Any,
    event: Any,
    base: Any,
    target: Any,
    bits: Any,
    left: Any,
) -> Any:
    """AND the vectors that a block's entries select into `bits`, whose address is `target`; return
    false as soon as no item is left. The most selective entry is first, so that is early.
    """
    if left >= BITMAP_ROWS:
        bits[:] = ~_ZERO
    else:  # the last block is not full: the bits behind its rows must stay 0
        for place in range(8):
            free = min(64, max(0, left - place * 64))
            bits[place] = ~_ZERO if free == 64 else (_ONE << word(free)) - _ONE
    some = _ONE
    entry, last = word(level.offsets[block]), word(level.offsets[block + 1])
    while entry < last:
        some = and_into(target, _selected(level.entries, entry, codes, event, base), target)
        if not some:
            break
        entry += _ONE
    return some
