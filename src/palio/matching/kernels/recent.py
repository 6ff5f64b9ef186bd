"""Kernels that match recent rows (`matching/recent.py`), straight from their intervals.

Rows that change thousands of times a second are not worth a program. In a block of events every
slot gets its running vectors, as in `kernels.bits.evaluate`; an interval is the difference of two
of them, so that a row is a few ANDs and needs nothing built beforehand.
"""

# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.advance import code_numbers
from palio.matching.kernels.bits import FEW_CODES, all_events, run_by_code, run_by_event
from palio.matching.kernels.emit import write_block
from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.records import EVENTS, FIRST_NUMBER, NumberCuts, RecentRows
from palio.matching.kernels.simd import (
    and_differences_into,
    and_into,
    array_at,
    or_into,
    vector_at,
)

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

AFTER_NUMBERS = 3
"""Codes behind those of numbers: of strings, bytes and times, which have no cuts here."""

_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)

WIDTH = 4
"""Intervals of a row that are ANDed together: the processor loads all four at once."""


class PrefixVectors(NamedTuple):
    """The prefix vectors of all slots for a block of events: vector c has the events below code c.

    In slot s `before[starts[s] + c]` is the place of the vector of the events whose code is less
    than c; the slot's vectors begin at `firsts[s]`. Behind all slots come the places of no events,
    and of all there are.
    """

    counts: Integers
    starts: Longs
    before: Integers
    firsts: Longs
    vectors: Words
    ordered: Integers


class PaddedRows(NamedTuple):
    """Rows as groups of `WIDTH` intervals: the places of their ends in `PrefixVectors.before`.

    Row r takes the groups `offsets[r] : offsets[r + 1]`; the last group is padded with the interval
    of all events.
    """

    offsets: Integers
    lows: Integers
    highs: Integers


@compiled
def prefix_vectors_of(cut_offsets: Integers) -> PrefixVectors:
    """Workspace for the slots whose cuts have these offsets."""
    slots = len(cut_offsets) - 1
    counts = np.empty(slots, np.int32)
    starts, firsts = np.zeros(slots + 1, np.int64), np.zeros(slots + 1, np.int64)
    for slot in range(slots):
        counts[slot] = cut_offsets[slot + 1] - cut_offsets[slot] + FIRST_NUMBER + 1 + AFTER_NUMBERS
        starts[slot + 1] = starts[slot] + counts[slot] + 1
        held = counts[slot] if counts[slot] <= FEW_CODES else EVENTS
        firsts[slot + 1] = firsts[slot] + held + 1
    before = np.empty(starts[slots] + 2, np.int32)
    # The interval between these two is all events: rows are padded with it.
    before[starts[slots]], before[starts[slots] + 1] = firsts[slots], firsts[slots] + 1
    vectors = np.empty((firsts[slots] + 2, 8), np.uint64)
    vectors[firsts[slots]] = word(0)
    return PrefixVectors(counts, starts, before, firsts, vectors, np.empty(EVENTS, np.int32))


@compiled
def padded_rows_of(rows: RecentRows, prefixes: PrefixVectors) -> PaddedRows:
    """Pad rows to groups of `WIDTH` intervals, with intervals that hold all events."""
    row_offsets, slots, row_lows, row_highs = rows.offsets, rows.slots, rows.lows, rows.highs
    counts, starts = prefixes.counts, prefixes.starts
    offsets = np.zeros(len(rows.keys) + 1, np.int32)
    for row in range(len(rows.keys)):
        length = row_offsets[row + 1] - row_offsets[row]
        offsets[row + 1] = offsets[row] + max(1, (length + WIDTH - 1) // WIDTH)
    lows = np.full(WIDTH * offsets[-1], starts[-1], np.int32)
    highs = np.full(WIDTH * offsets[-1], starts[-1] + 1, np.int32)
    for row in range(len(rows.keys)):
        place = WIDTH * offsets[row]
        for at in range(row_offsets[row], row_offsets[row + 1]):
            first, top = starts[slots[at]], counts[slots[at]] - AFTER_NUMBERS
            lows[place] = first + row_lows[at] + FIRST_NUMBER
            highs[place] = first + min(row_highs[at] + FIRST_NUMBER, top)
            place += 1
    return PaddedRows(offsets, lows, highs)


@compiled
def _fill_in(codes: Integers, first: int, prefixes: PrefixVectors) -> None:
    """Fill in the prefix vectors for the block that begins at an event."""
    size = min(EVENTS, codes.shape[1] - first)
    all_events(prefixes.vectors[prefixes.firsts[-1] + 1], size)
    for slot in range(len(prefixes.counts)):
        coded = codes[slot, first : first + size]
        before = prefixes.before[prefixes.starts[slot] : prefixes.starts[slot + 1]]
        running = prefixes.vectors[prefixes.firsts[slot] : prefixes.firsts[slot + 1]]
        if prefixes.counts[slot] <= FEW_CODES:
            run_by_code(coded, prefixes.counts[slot], before, running)
        else:
            run_by_event(coded, prefixes.counts[slot], before, prefixes.ordered, running)
        # From places in the slot to places among all vectors, as rows mix slots.
        base = prefixes.firsts[slot]
        for at in range(len(before)):
            before[at] += base


@compiled
def note_recent(
    codes: Integers,
    first: int,
    ranks: Integers,
    padded: PaddedRows,
    prefixes: PrefixVectors,
    results: Words,
    notes: Words,
    noted: int,
) -> int:
    """Note `rank << 32 | place` for every row that some event of a block satisfies, behind `noted`
    notes; return the new number. The k-th row has the rank `ranks[k]`.

    No branch depends on a result, so the processor loads the next rows meanwhile.
    """
    _fill_in(codes, first, prefixes)
    offsets, lows, highs, before = padded.offsets, padded.lows, padded.highs, prefixes.before
    base, target = word(prefixes.vectors.ctypes.data), word(results.ctypes.data)
    made = word(noted)
    for row in range(word(len(ranks))):
        result = vector_at(target, made)
        group, last = word(offsets[row]), word(offsets[row + _ONE])
        rest = _and_group(group, lows, highs, before, base, result)
        group += _ONE
        while group < last:  # the next result is free, and serves as a temporary one
            _and_group(group, lows, highs, before, base, vector_at(target, made + _ONE))
            rest = and_into(result, vector_at(target, made + _ONE), result)
            group += _ONE
        notes[made] = (word(ranks[row]) << _HALF) | made  # overwritten unless `made` grows
        made += word(rest != word(0))
    return int(made)


@inlined
def _and_group(group: Any, lows: Any, highs: Any, before: Any, base: Any, result: Any) -> Any:
    """`result` = the events in all intervals of a group; zero if there are none."""
    at = group << _TWO
    return and_differences_into(
        vector_at(base, word(before[word(highs[at])])),
        vector_at(base, word(before[word(lows[at])])),
        vector_at(base, word(before[word(highs[at + _ONE])])),
        vector_at(base, word(before[word(lows[at + _ONE])])),
        vector_at(base, word(before[word(highs[at + _TWO])])),
        vector_at(base, word(before[word(lows[at + _TWO])])),
        vector_at(base, word(before[word(highs[at + _THREE])])),
        vector_at(base, word(before[word(lows[at + _THREE])])),
        result,
    )


class Workspace(NamedTuple):
    """Working arrays of the kernels below, for all blocks of a batch."""

    prefixes: PrefixVectors
    padded: PaddedRows
    results: Words
    notes: Words


@compiled
def _workspace_of(rows: RecentRows, cut_offsets: Integers) -> Workspace:
    prefixes, count = prefix_vectors_of(cut_offsets), len(rows.keys)
    results, notes = np.empty((count + 16, 8), np.uint64), np.empty(count + 1, np.uint64)
    return Workspace(prefixes, padded_rows_of(rows, prefixes), results, notes)


@compiled
def _note_block(codes: Integers, first: int, ranks: Integers, work: Workspace) -> int:
    """Write the notes of one block, from the first place on; return their number."""
    return note_recent(codes, first, ranks, work.padded, work.prefixes, work.results, work.notes, 0)


@compiled
def match_recent(
    codes: Integers,
    start: int,
    rows: RecentRows,
    cut_offsets: Integers,
    offsets: Longs,
    keys: Longs,
) -> int:
    """Write the keys that each event matches, as `kernels.bits.match_blocks` does."""
    work, ranks = _workspace_of(rows, cut_offsets), np.arange(len(rows.keys)).astype(np.int32)
    cursors = np.zeros(EVENTS + 1, np.int64)
    events: int = codes.shape[1]
    for first in range(start, events, EVENTS):
        count = _note_block(codes, first, ranks, work)
        if not write_block(
            work.notes, work.results, count, count, first, events - first, rows.keys, cursors,
            offsets, keys,
        ):  # fmt: skip
            return first
    return events


@compiled
def route_recent(
    codes: Integers,
    start: int,
    rows: RecentRows,
    cut_offsets: Integers,
    numbers: Longs,
    masks: Words,
) -> None:
    """Add the events that match each row to the mask of its destination: `masks[number, block]`, of
    as many blocks as there is room for, from the event `start` on.
    """
    work, ranks = _workspace_of(rows, cut_offsets), numbers.astype(np.int32)
    notes, blocks = work.notes, np.uint64(masks.shape[1])
    source, target = word(work.results.ctypes.data), word(masks.ctypes.data)
    for block in range(blocks):
        for at in range(word(_note_block(codes, start + int(block) * EVENTS, ranks, work))):
            mask = (notes[at] >> _HALF) * blocks + block
            or_into(vector_at(target, mask), vector_at(source, notes[at] & _LOW_HALF))


@compiled
def scan_recent(
    codes: Integers, rows: RecentRows, cut_offsets: Integers, offsets: Longs, hits: Integers
) -> int:
    """Write the rows that each event matches, tested one by one: for few events.

    Those of event e are `hits[offsets[e] : offsets[e + 1]]`, which has room for all rows; returns
    their number.
    """
    row_offsets, slots, lows, highs = rows.offsets, rows.slots, rows.lows, rows.highs
    total = 0
    for event in range(np.uint64(codes.shape[1])):
        for row in range(word(len(rows.keys))):
            passes = True
            for at in range(word(row_offsets[row]), word(row_offsets[row + _ONE])):
                slot = word(slots[at])
                # Compiled rows number codes from `FIRST_NUMBER` on, recent rows cuts from 0.
                code = codes[slot, event] - FIRST_NUMBER
                cuts = cut_offsets[slot + _ONE] - cut_offsets[slot]
                passes = lows[at] <= code < min(highs[at], cuts + 1)
                if not passes:
                    break
            hits[total] = row  # overwritten unless it passes
            total += passes
        offsets[event + _ONE] = total
    return total


@compiled
def match_recent_event(
    tables: Longs, kinds: npt.NDArray[np.int8], ints: Longs, floats: Longs, hits: Integers
) -> int:
    """Write the rows that one event matches, as `scan_recent` does; return their number.

    `tables` are the addresses of the arrays of `RecentRows` and of `NumberCuts`; the event is given
    as `code_numbers` takes it.
    """
    rows = RecentRows(
        array_at(tables, 0, np.int64),
        array_at(tables, 1, np.int64),
        array_at(tables, 2, np.int32),
        array_at(tables, 3, np.int32),
        array_at(tables, 4, np.int32),
        array_at(tables, 5, np.int32),
    )
    cuts = NumberCuts(
        array_at(tables, 6, np.int32),
        array_at(tables, 7, np.int64),
        array_at(tables, 8, np.int64),
        array_at(tables, 9, np.bool_),
    )
    codes = code_numbers(cuts, kinds, ints, floats)
    return scan_recent(codes, rows, cuts.offsets, np.zeros(2, np.int64), hits)
