"""Kernels of the batch plan for several layers: rows are noted layer by layer, ordered and written
together.

An index that changes has one large layer and a few small ones. Written one by one, their answers
would have to be merged pair by pair, which takes longer than finding what the small ones add. Here
each small layer leaves *notes*, as `kernels.bits.walk` makes them, with ranks that all layers have
in common; the large layer takes those of each block in among its own, and notes the recent rows
behind them.
"""

# ruff: noqa: PLR0913, PLR0917
# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.bits import begin_block, bits_of, walk
from palio.matching.kernels.emit import order, unite, write_block
from palio.matching.kernels.jit import compiled
from palio.matching.kernels.recent import note_recent, padded_rows_of, prefix_vectors_of
from palio.matching.kernels.records import EVENTS, Predicates, RecentBatch, Scratch

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
    tombstones: Words,
    scratch: Scratch,
    ranks: Integers,
    begin: int,
    results: Words,
    notes: Words,
    ends: Longs,
) -> int:
    """Note the rows of a small layer, from the place `begin` on; return the place after the last.

    The notes of block b end at `ends[b]`; `ranks` has the common rank for each rank of the layer.
    """
    for block in range(len(ends)):
        begin_block(codes, block * EVENTS, predicates, scratch)
        count = walk(program, tombstones, scratch)
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
def match_with_notes(
    codes: Integers,
    start: int,
    predicates: Predicates,
    program: Program,
    tombstones: Words,
    alternatives: bool,
    scratch: Scratch,
    ranks: Integers,
    other_ends: Longs,
    other_results: Words,
    other_notes: Words,
    recent: RecentBatch,
    keys: Longs,
    offsets: Longs,
    matches: Longs,
) -> int:
    """Do as `kernels.bits.match_blocks`, with the notes of other layers and of recent rows.

    `keys` are by common rank. `ranks` has the common rank for each rank of this layer; if it is
    empty, they are the same. The notes of layer l for block b end at `other_ends[l, b]`.
    """
    events: int = codes.shape[1]
    cursors = np.zeros(EVENTS + 1, np.int64)
    prefixes = prefix_vectors_of(recent.cut_offsets)
    padded = padded_rows_of(recent.rows, prefixes)
    rank_bits = bits_of(len(keys))
    for first in range(start, events, EVENTS):
        size = begin_block(codes, first, predicates, scratch)
        count = walk(program, tombstones, scratch)
        if len(ranks):
            _renumber(scratch.notes, count, ranks)
        # Notes of all layers before one sort: to merge sorted answers would cost more than to sort
        # them together, as the small layers add few.
        count = _take_in(first // EVENTS, other_ends, other_results, other_notes, scratch, count)
        if len(recent.ranks):
            count = note_recent(
                recent.codes, first, recent.ranks, padded, prefixes,
                scratch.results, scratch.notes, count,
            )  # fmt: skip
        order(scratch.notes, scratch.spare, count, rank_bits)
        noted = unite(scratch.notes, scratch.results, count) if alternatives else count
        if not write_block(
            scratch.notes,
            scratch.results,
            count,
            noted,
            first,
            size,
            keys,
            cursors,
            offsets,
            matches,
        ):
            return first
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
    """Copy the other layers' notes of a block behind the first `count`; returns the new count.

    Layers follow each other, and in each layer the blocks.
    """
    ends = other_ends.reshape(-1)
    for layer in range(len(other_ends)):
        place = layer * other_ends.shape[1] + block
        begin = ends[place - 1] if place else 0
        for at in range(word(begin), word(ends[place])):
            scratch.results[word(count)] = other_results[at]
            scratch.notes[word(count)] = (other_notes[at] & ~_LOW_HALF) | word(count)
            count += 1
    return count
