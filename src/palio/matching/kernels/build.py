"""Kernels that lay compiled rows out for matching: the program of a batch, the levels of a single
event.

Both follow one order of the rows: a row is the tuple of its predicates' ids, ascending, and rows
are sorted, so that rows with equal first predicates stand together.
"""

# ruff: noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917
# A kernel is one loop over flat arrays: in pieces it would be slower, and they are its parameters.

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.jit import compiled
from palio.matching.kernels.records import BITMAP_ROWS

Integers = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

GROUP = 64
"""Entries of a node that are tested in one sweep."""

LEAST_SHARING = 8
"""So many rows must share a predicate for a node of their own: going to a node costs more than
testing the predicate for a few rows."""


@compiled
def program_of(
    prefixes: Integers,
    shared: Integers,
    offsets: Integers,
    predicates: Integers,
    ranks: Integers,
    always: int,
) -> npt.NDArray[np.uint32]:
    """Lay out the trie of shared first predicates in one array, every node before its children.

    A node is `[rows, children, (predicate, place) * rows, (predicate, place) * children]`; the
    place of a child is its node, that of a row its record `[rank, n, predicate * n]`. Entries
    stand in tables so that 64 of them are tested in one sweep, and among such 64 those of equal
    length together. `prefixes` holds the first predicates of each row, `shared` how many of them a
    row has in common with the one before; `always` is the predicate of a row that has none left.
    """
    rows = len(ranks)
    shared = _worth_sharing(shared, prefixes.shape[1])
    # Beside the root, a row opens a node for each predicate that it shares with the next row and
    # not with the one before.
    count = 1
    for row in range(rows):
        count += max(0, shared[row + 1] - shared[row])
    predicate = np.zeros(count, np.int32)
    parent = np.zeros(count, np.int32)
    own_rows = np.zeros(count, np.int64)
    children = np.zeros(count, np.int64)
    record_words = np.zeros(count, np.int64)
    node_of = np.zeros(rows, np.int32)
    depth_of = np.zeros(rows, np.int32)

    path = np.zeros(prefixes.shape[1] + 1, np.int32)
    made = 1
    for row in range(rows):
        depth = max(shared[row], shared[row + 1])
        for level in range(shared[row], depth):
            predicate[made] = prefixes[row, level]
            parent[made] = path[level]
            children[path[level]] += 1
            path[level + 1] = made
            made += 1
        node = path[depth]
        node_of[row], depth_of[row] = node, depth
        own_rows[node] += 1
        left = offsets[row + 1] - offsets[row] - depth
        record_words[node] += 2 + max(0, left - 1)

    place = np.zeros(count + 1, np.int64)
    for node in range(count):
        size = 2 + 2 * (own_rows[node] + children[node]) + record_words[node]
        place[node + 1] = place[node] + size
    program = np.zeros(place[count], np.uint32)
    row_entry = place[:count] + 2
    child_entry = row_entry + 2 * own_rows
    record = child_entry + 2 * children
    for node in range(count):
        program[place[node]] = own_rows[node]
        program[place[node] + 1] = children[node]
        if node > 0:
            entry = child_entry[parent[node]]
            program[entry] = predicate[node]
            program[entry + 1] = place[node]
            child_entry[parent[node]] += 2
    for row in range(rows):
        node = node_of[row]
        first, end = offsets[row] + depth_of[row], offsets[row + 1]
        entry, at = row_entry[node], record[node]
        program[entry] = predicates[first] if first < end else always
        program[entry + 1] = at
        row_entry[node] += 2
        left = max(0, end - first - 1)
        program[at] = ranks[row]
        program[at + 1] = left
        for step in range(left):
            program[at + 2 + step] = predicates[first + 1 + step]
        record[node] += 2 + left
    for node in range(count):
        first, end = place[node] + 2, place[node] + 2 + 2 * own_rows[node]
        for group in range(first, end, 2 * GROUP):
            _sort_by_length(program, group, min(end, group + 2 * GROUP))
    return program


@compiled
def _worth_sharing(shared: Integers, depth: int) -> Integers:
    """Return the number of first predicates that each row shares with the one before, where at
    least `LEAST_SHARING` rows share them.
    """
    rows = len(shared) - 1
    kept = np.full(rows, depth, np.int32)
    for level in range(depth):
        first = 0
        for row in range(1, rows + 1):
            if shared[row] <= level:  # a run of rows with equal predicates up to here ends
                if row - first < LEAST_SHARING:
                    for index in range(first, row):
                        kept[index] = min(kept[index], level)
                first = row
    worth = np.zeros(rows + 1, np.int32)
    for row in range(1, rows):
        worth[row] = min(shared[row], kept[row - 1], kept[row])
    return worth


@compiled
def _sort_by_length(program: npt.NDArray[np.uint32], first: int, end: int) -> None:
    """Sort a group of row entries by the lengths of their records, by insertion: 64 at most."""
    for begun in range(first + 2, end, 2):
        predicate, record = program[begun], program[begun + 1]
        at = begun
        while at > first and program[program[at - 1] + 1] > program[record + 1]:
            program[at], program[at + 1] = program[at - 2], program[at - 1]
            at -= 2
        program[at], program[at + 1] = predicate, record


@compiled
def blocks_of(
    offsets: Integers, slots: Integers, lows: Integers, highs: Integers, slot_count: int
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return blocks of rows as items of the upper level: by slot the hull of the rows' intervals.

    Only slots that every row of the block constrains appear: any other value would let some row
    pass.
    """
    rows = len(offsets) - 1
    blocks = (rows + BITMAP_ROWS - 1) // BITMAP_ROWS
    seen = np.zeros(slot_count, np.int32)
    last = np.full(slot_count, -1, np.int32)
    low = np.zeros(slot_count, np.int32)
    high = np.zeros(slot_count, np.int32)
    size = 0
    found_offsets = np.zeros(blocks + 1, np.int32)
    found_slots = np.zeros(len(slots), np.int32)
    found_lows = np.zeros(len(slots), np.int32)
    found_highs = np.zeros(len(slots), np.int32)
    for block in range(blocks):
        first, end = block * BITMAP_ROWS, min(rows, (block + 1) * BITMAP_ROWS)
        for row in range(first, end):
            for item in range(offsets[row], offsets[row + 1]):
                slot = slots[item]
                if row == first and last[slot] != row:
                    seen[slot], low[slot], high[slot] = 0, lows[item], highs[item]
                low[slot] = min(low[slot], lows[item])
                high[slot] = max(high[slot], highs[item])
                if last[slot] != row:
                    seen[slot] += 1
                    last[slot] = row
        # A slot that all rows name is named by the first, whose items are enough to check.
        for item in range(offsets[first], offsets[first + 1]):
            slot = slots[item]
            if seen[slot] == end - first:
                found_slots[size] = slot
                found_lows[size], found_highs[size] = low[slot], high[slot]
                seen[slot] = 0
                size += 1
        found_offsets[block + 1] = size
    return (
        found_offsets,
        found_slots[:size].copy(),
        found_lows[:size].copy(),
        found_highs[:size].copy(),
    )


@compiled
def level_of(
    offsets: Integers,
    slots: Integers,
    lows: Integers,
    highs: Integers,
    slot_count: int,
    buckets: int,
    least: int,
) -> tuple[Integers, npt.NDArray[np.int64], Words]:
    """Bucketed bitmaps over blocks of 512 items, each with half-open intervals of codes on some
    slots.

    By an entry `(slot, low, shift, buckets, first vector)` of a block a code c of the slot
    selects vector `1 + ((c - low) >> shift)`, or vector 0 if that is out of range; its bits are
    the items that such a code may satisfy. A slot that fewer than `least` items of a block name is
    left to the exact test that follows, which bounds memory. The most selective entry of a block
    comes first.
    """
    items = len(offsets) - 1
    blocks = (items + BITMAP_ROWS - 1) // BITMAP_ROWS
    count = np.zeros(slot_count, np.int32)
    low = np.zeros(slot_count, np.int32)
    high = np.zeros(slot_count, np.int32)
    entry_of = np.full(slot_count, -1, np.int64)
    touched = np.zeros(slot_count, np.int32)
    entry_offsets = np.zeros(blocks + 1, np.int32)
    entries = np.zeros((0, 5), np.int64)
    vectors = np.zeros((0, 8), np.uint64)
    pass_rate = np.zeros(0)
    entry_total, vector_total = 0, 0
    for filling in range(2):  # once to count entries and vectors, once to write them
        if filling:
            entries = np.zeros((entry_total, 5), np.int64)
            vectors = np.zeros((vector_total, 8), np.uint64)
            pass_rate = np.zeros(entry_total)
        entry_total, vector_total = 0, 0
        for block in range(blocks):
            first, end = block * BITMAP_ROWS, min(items, (block + 1) * BITMAP_ROWS)
            touches = 0
            for item in range(offsets[first], offsets[end]):
                slot = slots[item]
                if count[slot] == 0:
                    touched[touches] = slot
                    touches += 1
                    low[slot], high[slot] = lows[item], highs[item]
                count[slot] += 1
                low[slot] = min(low[slot], lows[item])
                high[slot] = max(high[slot], highs[item])
            begun = entry_total
            for touch in range(touches):
                slot = touched[touch]
                enough = count[slot] >= min(least, (end - first + 7) // 8)
                count[slot] = 0
                if not enough:
                    continue
                # Buckets are powers of two wide, as a division would take longer than the AND.
                shift = 0
                while ((high[slot] - low[slot] - 1) >> shift) >= buckets:
                    shift += 1
                size = ((high[slot] - low[slot] - 1) >> shift) + 1
                if filling:
                    entry_of[slot] = entry_total
                    entries[entry_total, 0] = slot
                    entries[entry_total, 1] = low[slot]
                    entries[entry_total, 2] = shift
                    entries[entry_total, 3] = size
                    entries[entry_total, 4] = vector_total
                entry_total += 1
                vector_total += size + 1
            if filling:
                _fill_block(offsets, slots, lows, highs, first, end, entry_of, entries, vectors)
                for entry in range(begun, entry_total):
                    entry_of[entries[entry, 0]] = -1
                    pass_rate[entry] = _pass_rate(entries, vectors, entry)
                _sort_entries(entries, pass_rate, begun, entry_total)
            entry_offsets[block + 1] = entry_total
    return entry_offsets, entries, vectors


@compiled
def _fill_block(
    offsets: Integers,
    slots: Integers,
    lows: Integers,
    highs: Integers,
    first: int,
    end: int,
    entry_of: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    vectors: Words,
) -> None:
    """Set the bits of one block: all for items that do not name a slot, else what they may pass."""
    for item in range(first, end):
        word, bit = (item - first) >> 6, np.uint64(1) << np.uint64((item - first) & 63)
        for at in range(offsets[item], offsets[item + 1]):
            entry = entry_of[slots[at]]
            if entry >= 0:  # marks the items that name the slot; inverted below
                vectors[entries[entry, 4], word] |= bit
    for at in range(offsets[first], offsets[end]):
        entry = entry_of[slots[at]]
        if entry >= 0:
            base, size = entries[entry, 4], entries[entry, 3]
            # A negative size marks an entry that is done; the last loop restores it.
            if size > 0:  # items that do not name the slot pass every bucket
                for word in range(8):
                    vectors[base, word] = ~vectors[base, word]
                for bucket in range(size):
                    vectors[base + 1 + bucket] = vectors[base]
                entries[entry, 3] = -size
    for item in range(first, end):
        word, bit = (item - first) >> 6, np.uint64(1) << np.uint64((item - first) & 63)
        for at in range(offsets[item], offsets[item + 1]):
            entry = entry_of[slots[at]]
            if entry >= 0:
                low, shift, base = entries[entry, 1], entries[entry, 2], entries[entry, 4]
                for bucket in range(
                    (lows[at] - low) >> shift, ((highs[at] - 1 - low) >> shift) + 1
                ):
                    vectors[base + 1 + bucket, word] |= bit
    for at in range(offsets[first], offsets[end]):
        entry = entry_of[slots[at]]
        if entry >= 0:
            entries[entry, 3] = abs(entries[entry, 3])


@compiled
def _pass_rate(entries: npt.NDArray[np.int64], vectors: Words, entry: int) -> float:
    """Return the share of set bits: of items that an entry lets through for an average code."""
    size, base = entries[entry, 3], entries[entry, 4]
    ones = 0
    for bucket in range(size + 1):
        for word in range(8):
            bits = vectors[base + bucket, word]
            while bits:
                bits &= bits - np.uint64(1)
                ones += 1
    return float(ones / ((size + 1) * 512))


@compiled
def _sort_entries(
    entries: npt.NDArray[np.int64], pass_rate: npt.NDArray[np.float64], begun: int, ended: int
) -> None:
    """Insertion sort of one block's entries: the lowest pass rate first."""
    for place in range(begun + 1, ended):
        at = place
        while at > begun and pass_rate[at] < pass_rate[at - 1]:
            pass_rate[at], pass_rate[at - 1] = pass_rate[at - 1], pass_rate[at]
            for column in range(5):
                kept = entries[at, column]
                entries[at, column] = entries[at - 1, column]
                entries[at - 1, column] = kept
            at -= 1
