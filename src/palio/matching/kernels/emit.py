"""Kernels that turn noted rows into answers: keys for each event, ascending.

A *note* is `rank << 32 | place`: a row of the filter of that rank is satisfied by the events of the
vector `results[place]` (`kernels.bits.walk`). `order` sorts notes by rank and `tally` counts each
event's matches, so that `emit` can write every pair at once where it belongs: `write_block`.
"""

# ruff: noqa: PLR0913, PLR0917
# The parameters of a kernel are flat arrays: what would bundle them takes time in every call.

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.jit import compiled
from palio.matching.kernels.records import EVENTS
from palio.matching.kernels.simd import (
    COUNTER_PLANES,
    lowest_bit,
    or_into,
    prefetch,
    sum_fifteen,
    vector_at,
)

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

EMIT_ROWS = 512
"""Rows of results scattered together: their words stay in the second-level cache."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_SHIFT = np.uint64(6)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@compiled
def order(notes: Words, spare: Words, count: int, rank_bits: int) -> None:
    """Sort notes by rank: two passes of a radix sort."""
    # A radix sort has no branch to mispredict. Two digits of half the bits each, ten for a million
    # filters, keep both counts in the cache.
    digit = (rank_bits + 1) // 2
    first = np.zeros(1 << digit, np.int32)
    second = np.zeros(1 << digit, np.int32)
    mask = np.uint64((1 << digit) - 1)
    low, high = np.uint64(32), np.uint64(32 + digit)
    for at in range(word(count)):
        first[(notes[at] >> low) & mask] += 1
        second[(notes[at] >> high) & mask] += 1
    ones, twos = np.int32(0), np.int32(0)
    for at in range(word(1 << digit)):
        ones, first[at] = ones + first[at], ones
        twos, second[at] = twos + second[at], twos
    for at in range(word(count)):
        value = (notes[at] >> low) & mask
        spare[word(first[value])] = notes[at]
        first[value] += 1
    for at in range(word(count)):
        value = (spare[at] >> high) & mask
        notes[word(second[value])] = spare[at]
        second[value] += 1


@compiled
def unite(notes: Words, results: Words, count: int) -> int:
    """Join the notes of each rank, as rows of one filter are alternatives; return the number left.

    Notes are sorted. The vector of a dropped note becomes zero, so that `tally` adds nothing.
    """
    base = word(results.ctypes.data)
    kept = 0
    for at in range(count):
        if kept and notes[kept - 1] >> _HALF == notes[at] >> _HALF:
            row = notes[at] & _LOW_HALF
            or_into(vector_at(base, notes[kept - 1] & _LOW_HALF), vector_at(base, row))
            results[row] = _ZERO
        else:
            notes[kept] = notes[at]
            kept += 1
    return kept


@compiled
def tally(results: Words, count: int, totals: Longs) -> None:
    """Count for each event the vectors that it is in, of the first `count`; fifteen spare vectors
    follow them.
    """
    totals[:] = 0
    planes = np.zeros((COUNTER_PLANES, 8), np.uint64)
    base, counted = word(results.ctypes.data), word(planes.ctypes.data)
    # Vertical counters: an event's count is spread over the planes, a bit in each. Fifteen vectors
    # are added at once, so that their carries reach the higher planes once.
    for at in range(count, count + 15):
        results[at] = _ZERO
    steps = 0
    for at in range(0, count, 15):
        sum_fifteen(vector_at(base, word(at)), counted)
        steps += 1
        if steps == 4095 // 15:  # the counters would overflow
            _add_planes(planes, totals)
            steps = 0
    _add_planes(planes, totals)


@compiled
def _add_planes(planes: Words, totals: Longs) -> None:
    for plane in range(COUNTER_PLANES):
        for place in range(8):
            bits = planes[plane, place]
            planes[plane, place] = _ZERO
            while bits:
                totals[word(place << 6) + lowest_bit(bits)] += 1 << plane
                bits &= bits - _ONE


@compiled
def emit(
    notes: Words, results: Words, count: int, keys: Longs, cursors: Longs, matches: Longs
) -> None:
    """Write each noted row's key behind the earlier keys of each of its events.

    `cursors[event]` is where the event's next key goes; the last one is a dummy that takes the
    second write of words with one bit, which spares a branch. A chunk of rows is first split by
    word, so that 64 places of the result are written to at a time and not 512.
    """
    rows = results.reshape(-1)
    base, key_base = word(results.ctypes.data), word(keys.ctypes.data)
    found_base = word(matches.ctypes.data)
    size, total = word(EMIT_ROWS), word(count)
    words = np.zeros(8 * EMIT_ROWS, np.uint64)
    word_keys = np.zeros(8 * EMIT_ROWS, np.int64)
    ends = np.zeros(8, np.uint64)
    for chunk in range(_ZERO, total, size):
        for place in range(word(8)):
            ends[place] = place * size
        for at in range(chunk, min(chunk + size, total)):
            # Notes are in order of rank, so their vectors are all over the memory.
            ahead = notes[min(at + word(12), total - _ONE)]
            prefetch(vector_at(base, ahead & _LOW_HALF))
            prefetch(key_base + ((ahead >> _HALF) << word(3)))
            key = keys[notes[at] >> _HALF]
            row = (notes[at] & _LOW_HALF) << word(3)
            for place in range(word(8)):
                bits, end = rows[row + place], ends[place]
                # Written in any case and kept only if there are bits: a branch would cost more.
                words[end], word_keys[end] = bits, key
                ends[place] = end + word(bits != _ZERO)
        for place in range(word(8)):
            first_event = place << _SHIFT
            for near in range(first_event, first_event + word(64)):
                line = found_base + (word(cursors[near]) << word(3))
                prefetch(line)
                prefetch(line + word(64))
            for at in range(place * size, ends[place]):
                # Most words have few bits: the first two are written without a branch.
                bits, key = words[at], word_keys[at]
                event = first_event + lowest_bit(bits)
                bits &= bits - _ONE
                cursor = word(cursors[event])
                matches[cursor] = key
                cursors[event] = cursor + _ONE
                event = first_event + lowest_bit(bits) if bits != _ZERO else word(EVENTS)
                cursor = word(cursors[event])
                matches[cursor] = key
                cursors[event] = cursor + word(bits != _ZERO)
                bits &= bits - _ONE
                while bits:
                    event = first_event + lowest_bit(bits)
                    bits &= bits - _ONE
                    cursor = word(cursors[event])
                    matches[cursor] = key
                    cursors[event] = cursor + _ONE


@compiled
def write_block(
    notes: Words,
    results: Words,
    count: int,
    noted: int,
    first: int,
    size: int,
    keys: Longs,
    cursors: Longs,
    offsets: Longs,
    matches: Longs,
) -> bool:
    """Write the keys of a block of `size` events from the event `first` on, behind earlier ones: of
    `count` vectors, `noted` have notes. `cursors` is scratch.

    `offsets` are always right. Returns False, with no key written, if `matches` is too short.
    """
    tally(results, count, cursors)
    total = offsets[first]
    for event in range(EVENTS):
        cursors[event], total = total, total + cursors[event]
        if event < size:
            offsets[first + event + 1] = total
    # One place more than the total: `emit` writes to the dummy cursor's.
    if total >= len(matches):
        return False
    cursors[EVENTS] = total
    emit(notes, results, noted, keys, cursors, matches)
    return True


@compiled
def merge_found(
    offsets: Longs, keys: Longs, other_offsets: Longs, other_keys: Longs
) -> tuple[Longs, Longs]:
    """Merge two answers for the same events: keys ascending for each event, each once."""
    events = len(offsets) - 1
    merged_offsets = np.zeros(events + 1, np.int64)
    merged = np.empty(len(keys) + len(other_keys), np.int64)
    size = 0
    for event in range(events):
        at, end = offsets[event], offsets[event + 1]
        other, other_end = other_offsets[event], other_offsets[event + 1]
        while at < end and other < other_end:  # equal keys advance both
            mine, theirs = keys[at], other_keys[other]
            merged[size] = min(mine, theirs)
            size += 1
            at += mine <= theirs
            other += theirs <= mine
        while at < end:
            merged[size] = keys[at]
            size += 1
            at += 1
        while other < other_end:
            merged[size] = other_keys[other]
            size += 1
            other += 1
        merged_offsets[event + 1] = size
    return merged_offsets, merged[:size]
