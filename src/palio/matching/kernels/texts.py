"""Kernel of text tests: which of many patterns each text fits, without trying every pair.

A pattern is *runs* of bytes with anything between them, as `LIKE` has it: `a%b_c` is the runs `a`
and `b_c`. The longest literal of a pattern is its *anchor*: it stands at the start of every text
that fits, at its end or somewhere. Anchors of one place and length share a hash table, so that a
text is looked up a few dozen times however many patterns there are, and is tried only on those
whose anchor it seems to have.
"""

# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.records import (
    ANY_CHARACTER,
    AT_END,
    AT_START,
    HASH_FACTOR,
    OPEN_END,
    OPEN_START,
    TextPatterns,
)
from palio.matching.kernels.simd import array_at

__all__ = ["code_texts"]

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_FACTOR = np.uint64(HASH_FACTOR)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_CONTINUES, _TOP_BITS = 0x80, 0xC0


@inlined
def _patterns_at(tables: Any) -> Any:
    return TextPatterns(
        array_at(tables, 0, np.int16),
        array_at(tables, 1, np.int32),
        array_at(tables, 2, np.int32),
        array_at(tables, 3, np.int32),
        array_at(tables, 4, np.int32),
        array_at(tables, 5, np.int32),
        array_at(tables, 6, np.int32).reshape(-1, 2),
        array_at(tables, 7, np.uint64),
        array_at(tables, 8, np.int32),
        array_at(tables, 9, np.int32),
        array_at(tables, 10, np.int32),
        array_at(tables, 11, np.int32),
    )


@inlined
def _fits_from(patterns: Any, run: Any, data: Any, at: Any, limit: Any) -> Any:
    """Where a run ends that begins at a place; -1 if it does not stand there."""
    for place in range(patterns.piece_offsets[run], patterns.piece_offsets[run + 1]):
        if at >= limit:
            return -1
        wanted = patterns.pieces[place]
        if wanted != ANY_CHARACTER:
            if data[at] != wanted:
                return -1
            at += 1
        else:
            if data[at] & _TOP_BITS == _CONTINUES:
                return -1
            at += 1
            while at < limit and data[at] & _TOP_BITS == _CONTINUES:
                at += 1
    return at


@inlined
def _fits_until(patterns: Any, run: Any, data: Any, start: Any, at: Any) -> Any:
    """Where a run begins that ends at a place; -1 if it does not stand there."""
    for place in range(patterns.piece_offsets[run + 1] - 1, patterns.piece_offsets[run] - 1, -1):
        if at <= start:
            return -1
        at -= 1
        wanted = patterns.pieces[place]
        if wanted != ANY_CHARACTER:
            if data[at] != wanted:
                return -1
        else:
            while at > start and data[at] & _TOP_BITS == _CONTINUES:
                at -= 1
    return at


@inlined
def _fits(patterns: Any, pattern: Any, data: Any, low: Any, high: Any) -> Any:
    """Whether the text between two places fits a pattern: its ends first, which mostly decide."""
    run, last = patterns.runs[pattern], patterns.runs[pattern + 1]
    opens = patterns.opens[pattern]
    if not opens & OPEN_START:
        low = _fits_from(patterns, run, data, low, high)
        run += 1
        if low < 0 or (run == last and not opens & OPEN_END):
            return low == high
    if run < last and not opens & OPEN_END:
        last -= 1
        high = _fits_until(patterns, last, data, low, high)
        if high < 0:
            return False
    while run < last:
        end = -1
        while low < high and end < 0:
            end = _fits_from(patterns, run, data, low, high)
            low += 1
        if end < 0:
            return False
        low = end
        run += 1
    return True


@inlined
def _entry_of(patterns: Any, data: Any, at: Any, place: Any) -> Any:
    """The entry of the anchor that seems to stand at `at`; -1 if there is none."""
    key = word(place + 1)
    for step in range(patterns.places[place, 1]):
        key = (key ^ word(data[at + step])) * _FACTOR
    key |= _ONE
    mask = word(len(patterns.keys) - 1)
    slot = (key >> _HALF) & mask
    while patterns.keys[slot]:
        if patterns.keys[slot] == key:
            return patterns.entries[slot]
        slot = (slot + _ONE) & mask
    return -1


@inlined
def _try(patterns: Any, entry: Any, data: Any, low: Any, high: Any, found: Any, total: Any) -> Any:
    """Add the patterns of an entry that a text fits; returns how many there are then."""
    for member in range(patterns.starts[entry], patterns.starts[entry + 1]):
        pattern = patterns.members[member]
        found[total] = pattern
        total += _fits(patterns, pattern, data, low, high)
    return total


@compiled
def _found_in(
    patterns: TextPatterns, data: npt.NDArray[np.uint8], offsets: Integers
) -> tuple[Longs, Integers, int]:
    """The patterns that text t fits, as `found[ends[t] : ends[t + 1]]`, and how many pairs were
    tried.
    """
    count = len(patterns.slots)
    ends = np.zeros(len(offsets), np.int64)
    found = np.empty(2 * count + 16, np.int32)
    seen = np.zeros(len(patterns.starts), np.int64)  # the last text that tried an entry
    total, tried = 0, 0
    for text in range(len(offsets) - 1):
        low, high = np.int64(offsets[text]), np.int64(offsets[text + 1])
        if total + count > len(found):
            larger = np.empty(2 * (total + count), np.int32)
            larger[:total] = found[:total]
            found = larger
        for at in range(len(patterns.free)):
            found[total] = patterns.free[at]
            total += _fits(patterns, patterns.free[at], data, low, high)
        tried += len(patterns.free)
        for place in range(len(patterns.places)):
            where = patterns.places[place, 0]
            first, last = low, high - patterns.places[place, 1]
            if where == AT_START:
                last = min(last, low)
            elif where == AT_END:
                first = max(first, last)
            for at in range(first, last + 1):
                entry = _entry_of(patterns, data, at, place)
                if entry >= 0 and seen[entry] <= text:
                    seen[entry] = text + 1
                    tried += patterns.starts[entry + 1] - patterns.starts[entry]
                    total = _try(patterns, entry, data, low, high, found, total)
        ends[text + 1] = total
    return ends, found, tried


@compiled
def code_texts(tables: Longs, texts: Longs, rows: Integers, codes: Integers) -> int:
    """Set the codes of the slots that patterns decide: 1 where the text of a row (-1 if it has
    none) fits, or does not if the pattern is negated. Returns how many pairs were tried.

    `tables` are the addresses of `TextPatterns`, `texts` those of Arrow's offsets and bytes.
    """
    patterns = _patterns_at(tables)
    slots, negated = patterns.slots, patterns.negated
    offsets, data = array_at(texts, 0, np.int32), array_at(texts, 1, np.uint8)
    ends, found, tried = _found_in(patterns, data, offsets)
    for pattern in range(len(slots)):
        if negated[pattern]:
            for row in range(len(rows)):
                codes[slots[pattern], row] = rows[row] >= 0
    for row in range(len(rows)):
        if rows[row] >= 0:
            for at in range(ends[rows[row]], ends[rows[row] + 1]):
                codes[slots[found[at]], row] = not negated[found[at]]
    return tried
