"""Plan how rows are counted: the pivot of each, its most selective predicate, and the cost.

Only counts can be had this way, for it never finds which events a row admits. It is for rows all of
whose predicates are intervals of codes, and for filters that are one row each: of two rows that
admit the same event it would count both.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from palio.matching.compile.rows import CompiledRows
from palio.matching.kernels.records import CHUNK, Pivots
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Longs

Codes = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]

MOST_ROWS: Final = 1 << 18
"""Rows that are planned for: while it is made, a plan takes some hundred bytes a predicate."""

MOST_CODES: Final = 1 << 16
"""Codes of a slot: kernels compare them as short words."""

PIVOT_SLACK: Final = 2.0
"""A pivot may be this many times wider than the narrowest predicate of its row: where fewer slots
have pivots, less is sorted."""

MOST_MOVED: Final = 256
"""A slot that is the pivot of more rows than this keeps them: moving more would cost too much."""

# Nanoseconds, of the same kind as those of segments: an event sorted, a code put in that order, a
# row begun with a chunk of events, 32 codes tested.
NS_SORTED: Final = 3.0
NS_ARRANGED: Final = 0.6
NS_COUNTED: Final = 25.0
NS_VECTOR: Final = 0.9


class Counting:
    """The counting plan of a segment."""

    def __init__(self, pivots: Pivots, vectors: float) -> None:
        self.pivots = pivots
        # Vectors of 32 codes that are tested for an event: estimated by the widths of pivots at
        # first, then the mean of what batches took.
        self._vectors = vectors

    @classmethod
    def of(cls, compiled: CompiledRows, ranks: npt.NDArray[Any]) -> Counting | None:
        """The plan for rows with these ranks; None if they cannot be counted so."""
        counts = compiled.universe.code_counts
        is_one = len(compiled.span_offsets) == len(compiled.lows) + 1
        if not 0 < compiled.rows <= MOST_ROWS or not is_one or counts.max(initial=0) > MOST_CODES:
            return None
        sizes = np.diff(compiled.row_offsets)
        items = compiled.row_predicates
        widths = (compiled.highs - compiled.lows)[items]
        if sizes.min() == 0 or widths.min() <= 0:
            return None
        slots = compiled.predicate_slots[items]
        share = widths / counts[slots]
        pivot = _chosen_pivots(compiled.row_offsets, slots, share, len(counts))
        pivots = _arranged(compiled, pivot, ranks)
        return cls(pivots, float(share[pivot] @ (sizes - 1)) / 32)

    def ns(self, events: int) -> float:
        """Estimate the nanoseconds to count so many events."""
        pivots = self.pivots
        event_ns = NS_SORTED * len(pivots.slots) + NS_ARRANGED * len(pivots.columns)
        event_ns += NS_VECTOR * self._vectors
        chunks = (events + CHUNK - 1) // CHUNK
        return events * event_ns + chunks * NS_COUNTED * len(pivots.ranks)

    def count(self, kernels: Kernels, codes: Codes, tombstones: Words, totals: Longs) -> None:
        """Add to `totals[rank]` how many events match each filter."""
        looked = kernels.count_ranges(codes, self.pivots, tombstones, totals)
        self._vectors = (self._vectors + looked / codes.shape[1]) / 2

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.pivots)


def _chosen_pivots(
    offsets: npt.NDArray[Any], slots: npt.NDArray[Any], share: npt.NDArray[Any], slot_count: int
) -> Longs:
    """The pivot of each row, as an item: a narrow one, of a slot that many rows have in common.

    The slot with a narrow item in most rows is taken first; then again for the rows that are left.
    """
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    narrowest = np.minimum.reduceat(share, offsets[:-1])
    open_items = np.flatnonzero(share <= PIVOT_SLACK * narrowest[rows])
    pivot = np.full(len(offsets) - 1, -1, np.int64)
    while len(open_items):
        slot = np.bincount(slots[open_items], minlength=slot_count).argmax()
        taken = open_items[slots[open_items] == slot]
        pivot[rows[taken]] = taken
        open_items = open_items[pivot[rows[open_items]] < 0]
    return _with_fewer_slots(offsets, slots, share, pivot, slot_count)


def _with_fewer_slots(
    offsets: npt.NDArray[Any],
    slots: npt.NDArray[Any],
    share: npt.NDArray[Any],
    pivot: Longs,
    slot_count: int,
) -> Longs:
    """The same, with the few rows of a slot moved to pivots of other slots where that costs less.

    A slot is to be sorted by and arranged for; a row costs the more the wider its pivot is.
    """
    sizes = np.bincount(slots[pivot], minlength=slot_count)
    used = sizes > 0
    for slot in np.argsort(sizes, kind="stable").tolist():
        if not 0 < sizes[slot] <= MOST_MOVED:
            continue
        rows = np.flatnonzero(slots[pivot] == slot)
        counts = np.diff(offsets)[rows]
        firsts = np.cumsum(counts) - counts
        items = np.arange(counts.sum()) + np.repeat(offsets[rows] - firsts, counts)
        could_serve = used[slots[items]] & (slots[items] != slot)
        shares = np.where(could_serve, share[items], np.inf)
        narrowest = np.minimum.reduceat(shares, firsts)
        if np.isinf(narrowest).any():
            continue
        expense = (narrowest - share[pivot[rows]]) @ (counts - 1) * NS_VECTOR / 32
        if expense < NS_SORTED + NS_ARRANGED:
            is_best = shares == np.repeat(narrowest, counts)
            owners = np.repeat(rows, counts)[is_best]
            pivot[owners] = items[is_best]  # of several that are as narrow the last
            used[slot] = False
    return pivot


def _arranged(compiled: CompiledRows, pivot: Longs, ranks: npt.NDArray[Any]) -> Pivots:
    """Rows, their pivots and their other predicates, group by group."""
    items, slots_of = compiled.row_predicates, compiled.predicate_slots
    offsets, counts = compiled.row_offsets, compiled.universe.code_counts
    order = np.argsort(slots_of[items[pivot]], kind="stable")
    slots, first_rows = np.unique(slots_of[items[pivot[order]]], return_index=True)
    group_of = np.empty(len(pivot), np.int64)
    group_of[order] = np.repeat(np.arange(len(slots)), np.diff(np.append(first_rows, len(pivot))))

    rows = np.repeat(np.arange(len(pivot)), np.diff(offsets))
    others = np.flatnonzero(pivot[rows] != np.arange(len(items)))
    place_of = np.empty(len(pivot), np.int64)
    place_of[order] = np.arange(len(pivot))
    others = others[np.argsort(place_of[rows[others]], kind="stable")]
    tests = items[others]
    # A column for each slot that rows of a group test: (group, slot), each once.
    pairs, inverse = np.unique(
        group_of[rows[others]] * len(counts) + slots_of[tests], return_inverse=True
    )
    column_offsets = np.searchsorted(pairs, np.arange(len(slots) + 1) * len(counts))

    arrays = (
        slots,
        counts[slots],
        np.append(first_rows, len(pivot)),
        column_offsets,
        pairs % len(counts),
        ranks[order],
        compiled.lows[items[pivot[order]]],
        compiled.highs[items[pivot[order]]],
        np.concatenate([[0], np.cumsum(np.diff(offsets)[order] - 1)]),
        inverse - column_offsets[group_of[rows[others]]],
        compiled.lows[tests],
        (compiled.highs - compiled.lows)[tests] - 1,
    )
    return Pivots(*(np.ascontiguousarray(array, np.int32) for array in arrays))
