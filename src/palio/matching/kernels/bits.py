"""Kernels of the batch plan: 512 events at a time, one bit each.

A block of events is matched in four sweeps. `evaluate` gives every distinct predicate its
*vector*, the events that satisfy it. `walk` goes through the program (`kernels.build.program_of`)
and ANDs vectors along shared prefixes; it notes each row that some event satisfies. The notes are
ordered and counted, and the pairs written at once where they belong (`kernels.emit.py`).

Unsigned words are used as indices throughout: with signed ones every access would first be tested
for being negative, which here costs a third of the time.
"""

# ruff: noqa: PLR0913, PLR0917
# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import uint64 as word

from palio.matching.kernels.emit import order, unite, write_block
from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.records import EVENTS, Predicates, Scratch
from palio.matching.kernels.simd import (
    and_into,
    and_not_into,
    has_common,
    lowest_bit,
    ones_in,
    or_difference_into,
    or_into,
    vector_at,
    with_bit_into,
)

Integers = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.uint32]
Program = npt.NDArray[np.uint32]

FEW_CODES = 256
"""Slots with so few codes get a running vector for each code, others one for each event."""

EMPTY = 0
"""The place of the vector of predicates that no event of the block satisfies."""

ALWAYS = 1
"""The place of the vector of all events, for rows that have no predicate left."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_SHIFT = np.uint64(6)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@compiled
def evaluate(
    codes: Integers, start: int, events: int, predicates: Predicates, vectors: Words, places: Places
) -> None:
    """The vectors of all predicates for one block of events: that of p is `vectors[places[p]]`.

    For each slot the events are ordered by code; `running[k]` holds the first k of them, so that
    any interval of codes is the difference of two running vectors. Predicates that no event
    satisfies share one vector, and so do neighbours that hold the same events, such as `x < 5` and
    `x < 6` where no x is 5: what `walk` reads at random should fit into the second-level cache.
    """
    code_counts, spans = predicates.code_counts, predicates.span_offsets
    running = np.zeros((EVENTS + 1, 8), np.uint64)
    ordered = np.zeros(EVENTS, np.int32)
    before = np.zeros(code_counts.max() + 2 if len(code_counts) else 2, np.int32)
    base, target = word(running.ctypes.data), word(vectors.ctypes.data)
    vectors[EMPTY] = _ZERO
    vectors[ALWAYS] = ~_ZERO
    places[word(len(places) - 1)] = ALWAYS  # the predicate of rows that have none left
    used = word(ALWAYS)
    for slot in range(len(code_counts)):
        first, last = predicates.slot_offsets[slot], predicates.slot_offsets[slot + 1]
        if first == last:
            continue
        coded = codes[slot, start : start + events]
        # A vector for each code spares sorting the events; for each event it bounds memory.
        if code_counts[slot] <= FEW_CODES:
            run_by_code(coded, code_counts[slot], before, running)
        else:
            run_by_event(coded, code_counts[slot], before, ordered, running)
        known_low, known_high = word(0), word(0)
        for at in range(word(first), word(last)):
            predicate = word(predicates.slot_predicates[at])
            span, end = word(spans[predicate]), word(spans[predicate + _ONE])
            low = word(before[word(predicates.lows[span])])
            high = word(before[word(predicates.highs[span])])
            # Written in any case, and kept only if `used` grows: the next one overwrites it.
            fresh = vector_at(target, used + _ONE)
            and_not_into(vector_at(base, high), vector_at(base, low), fresh)
            if end - span == _ONE:
                some = low != high  # no branches: they would be mispredicted
                used += word(some & ((low != known_low) | (high != known_high)))
                places[predicate] = used if some else word(EMPTY)
                known_low, known_high = (low, high) if some else (known_low, known_high)
                continue
            # Several intervals, as of IN and NOT IN: rare, so they may be empty and have a vector.
            for more in range(span + _ONE, end):
                low = word(before[word(predicates.lows[more])])
                high = word(before[word(predicates.highs[more])])
                or_difference_into(vector_at(base, high), vector_at(base, low), fresh)
            used += _ONE
            places[predicate] = used
            known_low, known_high = _ZERO, _ZERO  # a union equals no neighbour


@compiled
def run_by_code(coded: Integers, count: int, before: Integers, running: Words) -> None:
    """Make the running vectors of a slot with few codes: `running[c]` has the events with a code
    less than c.
    """
    base = word(running.ctypes.data)
    running[: count + 1] = _ZERO
    for event in range(word(len(coded))):
        running[word(coded[event]) + _ONE, event >> _SHIFT] |= _ONE << (event & word(63))
    for code in range(word(count)):
        or_into(vector_at(base, code + _ONE), vector_at(base, code))
        before[code] = code
    before[word(count)] = count


@compiled
def run_by_event(
    coded: Integers, count: int, before: Integers, ordered: Integers, running: Words
) -> None:
    """Make the running vectors of a slot with many codes: `before[c]` events have a code less than
    c, so `running[before[c]]` are these.
    """
    base = word(running.ctypes.data)
    before[: count + 1] = 0
    # A counting sort: codes are small numbers, so it takes two passes and no comparison.
    for event in range(word(len(coded))):
        before[word(coded[event])] += 1
    total = np.int32(0)
    for code in range(word(count + 1)):
        total += before[code]
        before[code] = total
    for event in range(word(len(coded))):
        code = word(coded[event])
        before[code] -= 1
        ordered[word(before[code])] = event
    # Each vector is the one before and one event more, in one load and one store.
    running[0] = _ZERO
    for place in range(word(len(coded))):
        with_bit_into(vector_at(base, place), word(ordered[place]), vector_at(base, place + _ONE))


@inlined
def _vector_of(predicate: Any, places: Any, vectors: Any) -> Any:
    """Return the address of a predicate's vector."""
    return vector_at(vectors, word(places[word(predicate)]))


@inlined
def _alive(program: Any, at: Any, count: Any, inherited: Any, places: Any, vectors: Any) -> Any:
    """Find which of up to 64 consecutive entries have an event in common with their node."""
    bits = _ZERO
    for entry in range(count):
        vector = _vector_of(program[at + entry + entry], places, vectors)
        bits |= has_common(inherited, vector) << entry
    return bits


@inlined
def _and_row(program: Any, entry: Any, mine: Any, places: Any, vectors: Any, result: Any) -> Any:
    """`result` = the events of `mine` that satisfy a row; zero if there are none.

    All of the row is ANDed even when nothing is left: rows of a length stand together, and a loop
    of known length costs less than leaving it early at a place that nobody can predict.
    """
    rest = and_into(mine, _vector_of(program[entry], places, vectors), result)
    record = word(program[entry + _ONE])
    step = record + _TWO
    end = step + word(program[record + _ONE])
    while step < end:
        rest = and_into(result, _vector_of(program[step], places, vectors), result)
        step += _ONE
    return rest


@inlined
def _is_alive(rank: Any, tombstones: Any) -> Any:
    """1 if the filter of a rank has no tombstone, else 0."""
    return ~(tombstones[rank >> _SHIFT] >> (rank & word(63))) & _ONE


@compiled
def walk(program: Program, tombstones: Words, scratch: Scratch) -> int:
    """Note `rank << 32 | place` for every living row that some event satisfies; return how many.

    The events of the k-th are `results[k]`. `inherited[depth]` holds the events that satisfy all
    of a node's prefix; `inherited[0]` holds all events there are. Entries are tested 64 at a time
    into a word of bits: a branch for each would be mispredicted every other time.
    """
    places, notes = scratch.places, scratch.notes
    source, stack = word(scratch.vectors.ctypes.data), word(scratch.inherited.ctypes.data)
    target = word(scratch.results.ctypes.data)
    depth_limit = len(scratch.inherited)
    # An explicit stack: a call for each node would cost more than most nodes do.
    cursor, limit = np.zeros(depth_limit, np.uint64), np.zeros(depth_limit, np.uint64)
    waiting = np.zeros(depth_limit, np.uint64)
    group, stride = word(64), word(128)
    noted, depth, node = _ZERO, _ZERO, _ZERO
    while True:
        mine = vector_at(stack, depth)
        at = node + _TWO
        last = at + word(program[node]) * _TWO
        while at < last:
            count = min(group, (last - at) >> _ONE)
            bits = _alive(program, at, count, mine, places, source)
            while bits:
                place = lowest_bit(bits)
                bits &= bits - _ONE
                entry = at + place + place
                rest = _and_row(program, entry, mine, places, source, vector_at(target, noted))
                rank = word(program[word(program[entry + _ONE])])
                notes[noted] = (rank << _HALF) | noted  # overwritten unless `noted` grows
                noted += _is_alive(rank, tombstones) & word(rest != _ZERO)
            at += count + count
        # Children follow the rows; the cursor is one group back, as the loop advances first.
        limit[depth] = last + word(program[node + _ONE]) * _TWO
        cursor[depth] = last - stride
        waiting[depth] = _ZERO
        while True:
            bits, at = waiting[depth], cursor[depth]
            while bits == _ZERO:
                at += stride
                if at >= limit[depth]:
                    break
                count = min(group, (limit[depth] - at) >> _ONE)
                bits = _alive(program, at, count, vector_at(stack, depth), places, source)
            if bits:
                break
            if depth == _ZERO:
                return int(noted)
            depth -= _ONE
        # Descend into the first child of the group; its others wait for the way back.
        cursor[depth] = at
        waiting[depth] = bits & (bits - _ONE)
        place = lowest_bit(bits)
        entry = at + place + place
        mine = vector_at(stack, depth)
        vector = _vector_of(program[entry], places, source)
        and_into(mine, vector, vector_at(stack, depth + _ONE))
        node = word(program[entry + _ONE])
        depth += _ONE


@compiled
def begin_block(codes: Integers, first: int, predicates: Predicates, scratch: Scratch) -> int:
    """Evaluate the predicates on the block that begins at an event; returns how many it has."""
    size = min(EVENTS, codes.shape[1] - first)
    evaluate(codes, first, size, predicates, scratch.vectors, scratch.places)
    all_events(scratch.inherited[0], size)
    return int(size)


@compiled
def all_events(vector: Words, events: int) -> None:
    """Set the bits of the first so many events."""
    for place in range(8):
        left = events - place * 64
        if left >= 64:
            vector[place] = ~_ZERO
        else:
            vector[place] = (_ONE << np.uint64(max(0, left))) - _ONE


@compiled
def _matched_rows(
    program: Program, tombstones: Words, alternatives: bool, rank_bits: int, scratch: Scratch
) -> tuple[int, int]:
    """Note the rows that events of the block satisfy, by rank; return the numbers of vectors and of
    notes.
    """
    count = walk(program, tombstones, scratch)
    # By rank, so that keys come out ascending and alternatives of a filter are adjacent.
    order(scratch.notes, scratch.spare, count, rank_bits)
    noted = unite(scratch.notes, scratch.results, count) if alternatives else count
    return count, noted


@compiled
def bits_of(ranks: int) -> int:
    """Count the bits of the ranks of so many filters; at least two, for `order`."""
    bits = 2
    while (ranks - 1) >> bits:
        bits += 1
    return bits


@compiled
def match_blocks(
    codes: Integers,
    start: int,
    predicates: Predicates,
    program: Program,
    tombstones: Words,
    alternatives: bool,
    scratch: Scratch,
    keys: Longs,
    offsets: Longs,
    matches: Longs,
) -> int:
    """Write the keys that each event matches, ascending: those of event e are
    `matches[offsets[e] : offsets[e + 1]]`.

    It begins at the event `start` (a multiple of 512) and returns the event that it reached: if
    `matches` is full, the caller makes it larger and calls again from there.
    """
    cursors = np.zeros(EVENTS + 1, np.int64)
    rank_bits = bits_of(len(keys))
    for first in range(start, codes.shape[1], EVENTS):
        size = begin_block(codes, first, predicates, scratch)
        count, noted = _matched_rows(program, tombstones, alternatives, rank_bits, scratch)
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
    return int(codes.shape[1])


@compiled
def count_blocks(
    codes: Integers,
    predicates: Predicates,
    program: Program,
    tombstones: Words,
    alternatives: bool,
    scratch: Scratch,
    totals: Longs,
) -> None:
    """Add to `totals[rank]` the number of events that match each filter."""
    rank_bits = bits_of(len(totals))
    for first in range(0, codes.shape[1], EVENTS):
        begin_block(codes, first, predicates, scratch)
        if alternatives:
            _, noted = _matched_rows(program, tombstones, alternatives, rank_bits, scratch)
        else:  # sums need no order, and each filter has one row
            noted = walk(program, tombstones, scratch)
        for at in range(word(noted)):
            rank, row = scratch.notes[at] >> _HALF, scratch.notes[at] & _LOW_HALF
            for place in range(word(8)):
                totals[rank] += ones_in(scratch.results[row, place])


@compiled
def route_blocks(
    codes: Integers,
    start: int,
    predicates: Predicates,
    programs: Program,
    program_offsets: Longs,
    tombstones: Words,
    scratch: Scratch,
    masks: Words,
) -> None:
    """Run each destination's program: `masks[destination, block]` are the events to send it, for
    all blocks of `masks`, from the event `start` on.

    An event that a row sends to a destination is not tested by the destination's other rows.
    """
    for block in range(masks.shape[1]):
        size = begin_block(codes, start + block * EVENTS, predicates, scratch)
        for destination in range(len(program_offsets) - 1):
            all_events(scratch.inherited[0], size)
            all_events(masks[destination, block], size)
            program = programs[program_offsets[destination] : program_offsets[destination + 1]]
            reach(program, tombstones, scratch)
            # `reach` leaves the events that no row admits.
            for place in range(8):
                masks[destination, block, place] &= ~scratch.inherited[0, place]


@compiled
def reach(program: Program, tombstones: Words, scratch: Scratch) -> None:
    """Remove the events that some living row admits from `inherited[0]`; stop when none is left.

    The program has one node; its rows that admit most come first. `inherited[1]` is scratch.
    """
    places = scratch.places
    source, left = word(scratch.vectors.ctypes.data), word(scratch.inherited.ctypes.data)
    result = vector_at(left, _ONE)
    at = _TWO
    last = at + word(program[0]) * _TWO
    while at < last:
        count = min(word(64), (last - at) >> _ONE)
        bits = _alive(program, at, count, left, places, source)
        while bits:
            place = lowest_bit(bits)
            bits &= bits - _ONE
            entry = at + place + place
            rest = _and_row(program, entry, left, places, source, result)
            if rest and _is_alive(word(program[word(program[entry + _ONE])]), tombstones):
                and_not_into(left, result, left)
        if not and_into(left, left, left):  # all events are sent: the usual end for wide filters
            return
        at += count + count
