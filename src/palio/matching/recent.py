"""The recent layer: comparisons with numbers that changed lately, kept up to date by one kernel.

Most changes of parameters leave a filter what it is, a conjunction of comparisons with numbers.
Their rows are not compiled: the recent layer keeps them as intervals among cuts of its own, and
matches them one by one. The layer after some changes costs a copy of the rows and the work for what
changed; the compiled layers only get tombstones. A recent layer never changes.

The kernel reads what changed from a log of *records*, words that it takes without asking Python for
anything: key, destination, number of comparisons, which of their numbers are floats (a bit for
each), then what each comparison is of, then the numbers. A key that is gone, or whose filter is
more than comparisons with numbers, has -1 of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from math import isnan
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching.coding import Columns, code_batch
from palio.matching.compile.cuts import Numbers, Universe
from palio.matching.compile.rows import IntervalTable, assembled
from palio.matching.compiled import CompiledLayer
from palio.matching.destinations import in_pieces
from palio.matching.kernels.records import (
    NumberCuts,
    NumberTables,
    RecentBatch,
    RecentRows,
    addresses_of,
)
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import CodedBatch, Codes, Counts, Found, Longs, Routed, in_room
from palio.matching.subscriptions import Subscription, Use
from palio.model.events import attribute
from palio.model.operators import Op
from palio.model.values import Kind

FEW_EVENTS: Final = 16
"""Up to this many events are tried on each row one by one; of more, blocks are made."""

MOST_COMPARISONS: Final = 60
"""Filters of more are compiled: a record has one word for which of its numbers are floats."""

HEAD: Final = 4

_OPS: Final = {op: number for number, op in enumerate((Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE))}
_GONE: Final = Struct("<4q")
_INTEGERS: Final = tuple(Struct(f"<{HEAD + 2 * count}q") for count in range(MOST_COMPARISONS + 1))

_NO_INTEGERS: Final = np.zeros(0, np.int32)
_NO_LONGS: Final = np.zeros(0, np.int64)
_NO_ROWS: Final = RecentRows(
    _NO_LONGS, _NO_LONGS, np.zeros(1, np.int32), _NO_INTEGERS, _NO_INTEGERS, _NO_INTEGERS
)
_NO_CUTS: Final = NumberCuts(np.zeros(1, np.int32), _NO_LONGS, _NO_LONGS, np.zeros(0, np.bool_))
_NO_TABLES: Final = NumberTables(
    np.zeros((0, 5), np.int32), _NO_INTEGERS, np.zeros(1, np.int32), _NO_LONGS, _NO_INTEGERS
)
NOTHING_RECENT: Final = RecentBatch(
    np.zeros((0, 0), np.int32), _NO_ROWS, _NO_INTEGERS, np.zeros(1, np.int32)
)


def is_recent(subscription: Subscription) -> bool:
    """Check whether a subscription is nothing but a few comparisons with numbers."""
    comparisons = subscription.comparisons
    return comparisons is not None and len(comparisons[1]) <= MOST_COMPARISONS


class ChangeLog:
    """Records of changes, and the slots of the attributes that they compare.

    Only the writer notes changes; a reader takes the records up to a count that it has read.

    >>> log = ChangeLog()
    >>> log.note(7, None)
    False
    >>> log.words(0, 1).tolist()
    [7, 0, -1, 0]
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.slot_of: dict[str, int] = {}
        self._codes: dict[tuple[Use, ...], tuple[int, ...]] = {}

    def note(self, key: int, subscription: Subscription | None) -> bool:
        """Write a record; whether the key is among the recent rows from now on."""
        comparisons = None if subscription is None else subscription.comparisons
        record = _GONE
        fields: tuple[int | float, ...] = (key, 0, -1, 0)
        if subscription is not None and comparisons is not None:
            uses, numbers = comparisons
            count, floats = len(numbers), 0
            if count <= MOST_COMPARISONS:
                record = _INTEGERS[count]
                if float in map(type, numbers):
                    kinds = ["d" if type(number) is float else "q" for number in numbers]
                    record = Struct(f"<{HEAD + count}q{''.join(kinds)}")
                    floats = sum(1 << place for place, kind in enumerate(kinds) if kind == "d")
                destination = subscription.destination
                fields = (key, destination, count, floats, *self._codes_of(uses), *numbers)
        try:
            self.records.append(record.pack(*fields))
        except struct.error:
            raise InvalidInput(f"key {key} and its destination must be 64-bit integers") from None
        return record is not _GONE

    def _codes_of(self, uses: tuple[Use, ...]) -> tuple[int, ...]:
        """Number each use: an attribute and an operator."""
        codes = self._codes.get(uses)
        if codes is None:
            slots = [self.slot_of.setdefault(name, len(self.slot_of)) for name, _ in uses]
            codes = tuple(slot << 3 | _OPS[op] for slot, (_, op) in zip(slots, uses, strict=True))
            self._codes[uses] = codes
        return codes

    def words(self, first: int, last: int) -> Longs:
        """The words of some records."""
        return np.frombuffer(bytearray().join(self.records[first:last]), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.records))


class RecentLayer:
    """Rows of one comparison or several with numbers, ascending by key."""

    def __init__(
        self,
        kernels: Kernels,
        columns: Columns,
        rows: RecentRows,
        cuts: NumberCuts,
        tables: NumberTables,
    ) -> None:
        self.kernels, self.columns, self.rows, self.cuts = kernels, columns, rows, cuts
        slots = len(tables.bases)
        self._arrays = (
            tables.bases, *cuts[:3], *tables[1:], np.zeros(slots, np.int32),
            np.zeros(slots + 1, np.int32), _NO_LONGS, np.zeros(2 * slots + 1, np.int32),
            np.zeros(0, np.uint64), np.zeros(1, np.int64), np.zeros(0, np.uint8),
        )  # fmt: skip
        self._addresses = addresses_of(self._arrays)

    @classmethod
    def empty(cls, kernels: Kernels) -> RecentLayer:
        """A layer without rows."""
        return cls(kernels, Columns({}), _NO_ROWS, _NO_CUTS, _NO_TABLES)

    def __len__(self) -> int:
        return len(self.rows.keys)

    def advanced(self, log: ChangeLog, first: int, last: int) -> tuple[RecentLayer, Longs]:
        """The layer after some records of a log, and the keys that they name, ascending."""
        words, columns = log.words(first, last), self.columns
        if len(columns.slot_of) < len(log.slot_of):  # the writer may be adding more
            columns = Columns(dict(log.slot_of))
        rows, cuts, tables, changed = self.kernels.advance(
            self.rows, self.cuts, words, len(columns.slot_of)
        )
        return RecentLayer(self.kernels, columns, rows, cuts, tables), changed

    # --- matching ---

    def codes_of(self, events: pa.RecordBatch, exported: int = 0) -> Codes:
        """Code a batch of events."""
        return code_batch(self.kernels, events, exported, self.columns, self._addresses, self.slots)

    @property
    def slots(self) -> int:
        """The number of codes of an event."""
        return len(self.cuts.offsets) - 1

    def for_notes(self, codes: Codes, ranks: npt.NDArray[np.int32]) -> RecentBatch:
        """The rows as `kernels.combine.match_with_notes` takes them in."""
        return RecentBatch(codes, self.rows, ranks, self.cuts.offsets)

    def match(self, batch: CodedBatch) -> Found:
        """Find the keys that each event matches."""
        codes = batch.codes
        events = codes.shape[1]
        if events <= FEW_EVENTS:
            offsets = np.zeros(events + 1, np.int64)
            ranks = np.empty(max(1, events * len(self)), np.int32)
            total = self.kernels.scan_recent(codes, self.rows, self.cuts.offsets, offsets, ranks)
            return offsets, self.rows.keys[ranks[:total]]

        def fill(offsets: Longs, keys: Longs, done: int) -> int:
            return self.kernels.match_recent(
                codes, done, self.rows, self.cuts.offsets, offsets, keys
            )

        return in_room(events, 1024, fill)

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """Find the keys that one event matches; attributes that no row names go unchecked."""
        slot_of = self.columns.slot_of
        kinds, ints = [0] * len(slot_of), [0] * len(slot_of)
        floats = [0.0] * len(slot_of)
        for name, value in event.items():
            slot = slot_of.get(name)
            if slot is None or value is None:
                continue
            number = attribute(name, value)
            if type(number) is int:
                ints[slot], kinds[slot] = number, 1
            elif type(number) is float and not isnan(number):
                floats[slot], kinds[slot] = number, 2
        ranks = np.empty(max(1, len(self)), np.int32)
        total = self.kernels.match_recent_event(
            self._single_addresses, np.array(kinds, np.int8), np.array(ints, np.int64),
            np.array(floats, np.float64).view(np.int64), ranks,
        )  # fmt: skip
        return self.rows.keys.take(ranks[:total])

    @cached_property
    def _single_addresses(self) -> Longs:
        return addresses_of((*self.rows, *self.cuts))

    def count(self, batch: CodedBatch) -> Counts:
        """Count the events that each key matches."""
        places = np.searchsorted(self.rows.keys, self.match(batch)[1])
        return self.rows.keys, np.bincount(places, minlength=len(self))

    def route(self, batch: CodedBatch) -> Routed:
        """Find the events that go to each destination."""
        codes = batch.codes
        names, numbers = np.unique(self.rows.destinations, return_inverse=True)

        def fill(first: int, masks: npt.NDArray[np.uint64]) -> None:
            self.kernels.route_recent(codes, first, self.rows, self.cuts.offsets, numbers, masks)

        return in_pieces(names, codes.shape[1], fill)

    def destinations_of(self, keys: Longs) -> Longs:
        """Look up the destinations of some keys."""
        return self.rows.destinations.take(np.searchsorted(self.rows.keys, keys))

    # --- as a compiled layer ---

    def compiled(self) -> CompiledLayer | None:
        """The rows as a compiled layer; None if there are none."""
        numbers = Numbers(*self.cuts[1:])
        universe = Universe.of_numbers(tuple(self.columns.slot_of), self.cuts.offsets, numbers)
        rows = self.rows
        slots = rows.slots.astype(np.int64)
        lows = universe.bases[slots, Kind.NUMBER].astype(np.int64) + rows.lows
        tops = universe.bases[slots, Kind.NUMBER + 1].astype(np.int64)
        highs = np.minimum(lows - rows.lows + rows.highs, tops)
        intervals = IntervalTable()
        intervals.repeats = True
        intervals.add(np.repeat(np.arange(len(self)), np.diff(rows.offsets)), slots, lows, highs)
        compiled = assembled(universe, intervals, rows.keys)
        if not compiled.rows:
            return None
        return CompiledLayer.of(compiled, (rows.keys, rows.destinations), self.kernels)

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        arrays = (*self.rows, *self.cuts, *self._arrays)
        return sum(array.nbytes for array in arrays)
