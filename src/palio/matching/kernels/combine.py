"""Kernels of the batch plan for several parts at once: their rows are noted part by part, ordered
and written together.

An index that changes has one large part and a few small ones. Written one by one, their answers
would have to be merged pair by pair, which takes longer than finding what the small ones add. Here
each small part leaves *notes*, as `kernels.bits.walk` makes them, with ranks that all parts have
in common; the large part takes those of each block in among its own, and notes the rows that
changed lately behind them.
"""

# ruff: noqa: PLR0913, PLR0917
# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels import Fresh, Predicates, Scratch
from palio.matching.kernels.bits import EVENTS, begin_block, bits_of, walk
from palio.matching.kernels.emit import emit, order, tally, unite
from palio.matching.kernels.jit import compiled
from palio.matching.kernels.recent import ladders_of, note_fresh, steps_of

__all__ = ["match_joint", "note_blocks"]

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Program = npt.NDArray[np.uint32]

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@compiled
def note_blocks(
    codes: Integers,
    predicates: Predicates,
    program: Program,
    dead: Words,
    scratch: Scratch,
    ranks: Integers,
    begin: int,
    results: Words,
    notes: Words,
    ends: Longs,
) -> int:
    """Note the rows of a small part, from the place `begin` on; returns the place after the last.

    The notes of block b end at `ends[b]`; `ranks` gives the common rank for each of the part's.
    """
    for block in range(len(ends)):
        begin_block(codes, block * EVENTS, predicates, scratch)
        count = walk(program, dead, scratch)
        _renumber(scratch.notes, count, ranks)
        results[begin : begin + count] = scratch.results[:count]
        notes[begin : begin + count] = scratch.notes[:count]
        begin += count
        ends[block] = begin
    return begin


@compiled
def _renumber(notes: Words, count: int, ranks: Integers) -> None:
    """Give notes their common ranks."""
    for at in range(word(count)):
        notes[at] = (word(ranks[notes[at] >> _HALF]) << _HALF) | (notes[at] & _LOW_HALF)


@compiled
def match_joint(
    codes: Integers,
    start: int,
    predicates: Predicates,
    program: Program,
    dead: Words,
    alternatives: bool,
    scratch: Scratch,
    ranks: Integers,
    other_ends: Longs,
    other_results: Words,
    other_notes: Words,
    fresh: Fresh,
    keys: Longs,
    offsets: Longs,
    found: Longs,
) -> int:
    """Like `kernels.bits.match_blocks`, with the notes of other parts and fresh rows taken in.

    `keys` are by common rank, which `ranks` gives for each of this part's; no ranks, and they are
    the same. The notes of part p for block b end at `other_ends[p, b]`.
    """
    events: int = codes.shape[1]
    cursors = np.zeros(EVENTS + 1, np.int64)
    ladders = ladders_of(fresh.cut_offsets)
    steps = steps_of(fresh.rows, ladders)
    rank_bits = bits_of(len(keys))
    for first in range(start, events, EVENTS):
        size = begin_block(codes, first, predicates, scratch)
        count = walk(program, dead, scratch)
        if len(ranks):
            _renumber(scratch.notes, count, ranks)
        count = _take_in(first // EVENTS, other_ends, other_results, other_notes, scratch, count)
        if len(fresh.ranks):
            count = note_fresh(
                fresh.codes, first, fresh.ranks, steps, ladders,
                scratch.results, scratch.notes, count,
            )  # fmt: skip
        order(scratch.notes, scratch.spare, count, rank_bits)
        noted = unite(scratch.notes, scratch.results, count) if alternatives else count
        tally(scratch.results, count, cursors)
        total = offsets[first]
        for event in range(EVENTS):
            cursors[event], total = total, total + cursors[event]
            if event < size:
                offsets[first + event + 1] = total
        if total >= len(found):
            return first
        cursors[EVENTS] = total
        emit(scratch.notes, scratch.results, noted, keys, cursors, found)
    return events


@compiled
def _take_in(
    block: int,
    other_ends: Longs,
    other_results: Words,
    other_notes: Words,
    scratch: Scratch,
    count: int,
) -> int:
    """Copy the other parts' notes of a block behind the first `count`; returns how many there are.

    Parts follow each other, and in each part the blocks.
    """
    ends = other_ends.reshape(-1)
    for part in range(len(other_ends)):
        place = part * other_ends.shape[1] + block
        begin = ends[place - 1] if place else 0
        for at in range(word(begin), word(ends[place])):
            scratch.results[word(count)] = other_results[at]
            scratch.notes[word(count)] = (other_notes[at] & ~_LOW_HALF) | word(count)
            count += 1
    return count
