"""Assemble `CompiledRows` from the constraints of rows: equal predicates are one, all is sorted.

Constraints are gathered as *entries*: a row and one of a table of intervals. A million filters have
few distinct intervals, so that work for each interval costs little, and the work for each entry is
a few passes over flat arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.matching.compile.cuts import Universe
from palio.matching.layers import Longs

Integers: TypeAlias = npt.NDArray[np.int32]
Intervals: TypeAlias = tuple[Longs, Longs, Longs]
"""Slots, lows and highs."""
Span: TypeAlias = tuple[int, int]
"""A half-open interval of codes."""


@dataclass
class CompiledRows:
    """Rows over predicates over a universe of codes; everything but the universe is flat arrays."""

    universe: Universe
    predicate_slots: Integers
    span_offsets: Integers
    lows: Integers
    highs: Integers
    row_offsets: Integers
    row_predicates: Integers
    row_owners: Longs
    """The key (or the guard, see `guarded.py`) of each row."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.row_owners)


class IntervalTable:
    """Constraints of rows as they are found: intervals, and unions of them one by one.

    `repeats` is set where rows may have several intervals on one slot; these are intersected.
    """

    def __init__(self) -> None:
        self.repeats = False
        self.unions: dict[tuple[int, tuple[Span, ...]], int] = {}
        self._count = 0
        self._intervals: list[Intervals] = []
        self._uses: list[tuple[Longs, Longs]] = []
        self._union_uses: list[tuple[Longs, int]] = []

    def add(
        self, rows: Longs, slots: Longs, lows: Longs, highs: Longs, choice: Longs | None = None
    ) -> None:
        """Some intervals: row `rows[i]` has that at `choice[i]`, at i without a choice."""
        places = np.arange(len(slots)) if choice is None else choice
        self._uses.append((rows, self._count + places))
        self._intervals.append((slots, lows, highs))
        self._count += len(slots)

    def add_union(self, rows: Longs, slot: int, spans: tuple[Span, ...]) -> None:
        """Several intervals on a slot, one of which must hold."""
        place = self.unions.setdefault((slot, spans), len(self.unions))
        self._union_uses.append((rows, place))

    def intervals(self) -> Intervals:
        """The table of intervals."""
        empty = np.zeros(0, np.int64)
        slots, lows, highs = (
            np.concatenate([empty, *(interval[column] for interval in self._intervals)])
            for column in range(3)
        )
        return slots, lows, highs

    def uses(self) -> tuple[Longs, Longs]:
        """Each row that has an interval, and which."""
        return _joined(self._uses)

    def union_uses(self) -> tuple[Longs, Longs]:
        """Each row that has a union, and which."""
        return _joined([(rows, np.full(len(rows), place)) for rows, place in self._union_uses])


def _joined(pairs: Sequence[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    empty = np.zeros(0, np.int64)
    first, second = (np.concatenate([empty, *(pair[at] for pair in pairs)]) for at in range(2))
    return first, second


def assembled(universe: Universe, entries: IntervalTable, owners: Longs) -> CompiledRows:
    """Rows from their constraints: one predicate for equal ones, contradictory rows left out."""
    intervals, (rows, ids) = entries.intervals(), entries.uses()
    if entries.repeats:
        intervals, rows, ids = _intersected(intervals, rows, ids, len(universe.code_counts))
    empty = intervals[1] >= intervals[2]
    living = np.ones(len(owners), np.bool_)
    if empty.any():
        living[rows[empty[ids]]] = False
    predicate_of, single = _distinct(intervals)
    union_rows, union_ids = entries.union_uses()
    rows = np.concatenate([rows, union_rows])
    ids = np.concatenate([predicate_of[ids], len(single) + union_ids])
    if not living.all():
        kept = living[rows]
        rows, ids = (np.cumsum(living) - 1)[rows[kept]], ids[kept]
        owners = owners[living]
    slots, offsets, lows, highs = _with_unions(single, list(entries.unions))
    uses = np.bincount(ids, minlength=len(slots))
    order = _selective_first(universe, slots, offsets, lows, highs, uses)
    renamed = np.empty(len(slots), np.int64)
    renamed[order] = np.arange(len(order))
    counts = np.diff(offsets)[order]
    taken = runs(offsets[:-1][order], counts)
    row_offsets, row_predicates, sequence = _sorted_rows(
        len(owners), rows, renamed[ids], len(order)
    )
    return CompiledRows(
        universe,
        slots[order].astype(np.int32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        lows[taken].astype(np.int32),
        highs[taken].astype(np.int32),
        row_offsets,
        row_predicates,
        owners[sequence],
    )


def runs(starts: Longs, lengths: Longs, step: int = 1) -> Longs:
    """The places `start, start + step, ...` of several runs, one after the other.

    >>> runs(np.array([10, 20]), np.array([2, 3])).tolist()
    [10, 11, 20, 21, 22]
    """
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    return np.repeat(starts - step * (ends - lengths), lengths) + step * np.arange(total)


def _intersected(
    intervals: Intervals, rows: Longs, ids: Longs, slot_count: int
) -> tuple[Intervals, Longs, Longs]:
    """Intersect the intervals of a row on one slot; the result is added to the intervals."""
    slots, lows, highs = intervals
    places = rows * slot_count + slots[ids]
    order = np.argsort(places)
    places = places[order]
    repeated = np.zeros(len(places) + 1, np.bool_)
    repeated[1:-1] = places[1:] == places[:-1]
    many = repeated[1:] | repeated[:-1]
    if not many.any():
        return intervals, rows, ids
    chosen = order[many]
    first = np.flatnonzero(~repeated[:-1][many])
    joined = np.maximum.reduceat(lows[ids[chosen]], first)
    until = np.minimum.reduceat(highs[ids[chosen]], first)
    alone = order[~many]
    firsts = chosen[first]
    return (
        (
            np.concatenate([slots, slots[ids[firsts]]]),
            np.concatenate([lows, joined]),
            np.concatenate([highs, until]),
        ),
        np.concatenate([rows[alone], rows[firsts]]),
        np.concatenate([ids[alone], len(slots) + np.arange(len(firsts))]),
    )


def _distinct(intervals: Intervals) -> tuple[Longs, npt.NDArray[np.int64]]:
    """An id for each distinct (slot, low, high), and the distinct ones as rows of a matrix."""
    slots, lows, highs = intervals
    if not len(slots):
        return np.zeros(0, np.int64), np.zeros((0, 3), np.int64)
    bits = int(max(highs.max(), lows.max(), 1)).bit_length()
    if int(slots.max()).bit_length() + 2 * bits < 64:
        packed = (slots << (2 * bits)) | (lows << bits) | highs
        values, ids = np.unique(packed, return_inverse=True)
        mask = (1 << bits) - 1
        return ids, np.stack([values >> (2 * bits), (values >> bits) & mask, values & mask], axis=1)
    unique, ids = np.unique(np.stack([slots, lows, highs], axis=1), axis=0, return_inverse=True)
    return ids.reshape(-1), unique


def _with_unions(
    single: npt.NDArray[np.int64], unions: Sequence[tuple[int, tuple[Span, ...]]]
) -> tuple[Longs, Longs, Longs, Longs]:
    """Predicates that are intervals, then those that are unions: slots, offsets, lows, highs."""
    counts = np.ones(len(single) + len(unions), np.int64)
    counts[len(single) :] = [len(spans) for _, spans in unions]
    spans = np.array([span for _, value in unions for span in value], np.int64).reshape(-1, 2)
    return (
        np.concatenate([single[:, 0], np.array([slot for slot, _ in unions], np.int64)]),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([single[:, 1], spans[:, 0]]),
        np.concatenate([single[:, 2], spans[:, 1]]),
    )


LEAST_SELECTIVITY: Final = 1e-3
"""Predicates that fewer codes than this satisfy count as equally selective."""


def _selective_first(
    universe: Universe, slots: Longs, offsets: Longs, lows: Longs, highs: Longs, uses: Longs
) -> Longs:
    """The order of the predicates that any row uses: those that few codes satisfy first, popular
    slots first among equals.

    Selective first makes vectors zero early, popular first makes rows share prefixes.
    """
    if not len(slots):
        return np.zeros(0, np.int64)
    widths = np.add.reduceat((highs - lows).astype(np.float64), offsets[:-1])
    selectivity = widths / universe.code_counts[slots]
    grade = np.floor(np.log2(np.maximum(selectivity, LEAST_SELECTIVITY)))
    slot_uses = np.bincount(slots, uses, minlength=len(universe.code_counts))
    popularity = np.empty(len(slot_uses), np.int64)
    popularity[np.argsort(-slot_uses, kind="stable")] = np.arange(len(slot_uses))
    first = offsets[:-1]
    order = np.lexsort((lows[first], highs[first], popularity[slots], grade))
    return order[uses[order] > 0]


PREFIX_DEPTH: Final = 12
"""Predicates of a row by which rows are sorted and share a trie; deeper sharing is rare."""


def _sorted_rows(
    count: int, rows: Longs, ids: Longs, predicates: int
) -> tuple[Integers, Integers, Longs]:
    """Offsets and predicates of rows in lexicographic order, and which row each was before."""
    bits = max(1, predicates).bit_length()
    packed = np.sort((rows << bits) | ids)
    ids = packed & ((1 << bits) - 1)
    lengths = np.bincount(rows, minlength=count)
    starts = np.cumsum(lengths) - lengths
    prefixes = prefixes_of(np.append(starts, len(ids)), ids)
    joined = 63 // bits
    keys = []  # several columns in one word: fewer passes of the sort
    for first in range(0, prefixes.shape[1], joined):
        key = np.zeros(count, np.int64)
        for column in range(first, min(first + joined, prefixes.shape[1])):
            key = (key << bits) | (prefixes[:, column] + 1)
        keys.append(key)
    sequence = np.lexsort(keys[::-1]) if keys else np.arange(count)
    lengths = lengths[sequence]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return offsets, ids[runs(starts[sequence], lengths)].astype(np.int32), sequence


def prefixes_of(offsets: npt.NDArray[Any], ids: npt.NDArray[Any]) -> Integers:
    """The first predicates of each row as a matrix, -1 where a row is shorter."""
    lengths = np.diff(offsets)
    depth = min(PREFIX_DEPTH, int(lengths.max())) if len(lengths) else 0
    matrix = np.full((len(lengths), depth), -1, np.int32)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    levels = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    if len(ids) and int(lengths.max()) > depth:
        rows, ids, levels = (array[levels < depth] for array in (rows, ids, levels))
    matrix.reshape(-1)[rows * depth + levels] = ids
    return matrix


def shared_prefixes(prefixes: npt.NDArray[Any]) -> Integers:
    """Count the first predicates that each row shares with the one before; 0 at both ends."""
    rows = len(prefixes)
    shared = np.zeros(rows + 1, np.int32)
    if rows > 1 and prefixes.shape[1]:
        equal = (prefixes[1:] == prefixes[:-1]) & (prefixes[1:] >= 0)
        shared[1:rows] = np.logical_and.accumulate(equal, axis=1).sum(axis=1)
    return shared
