"""Rows that changed lately: comparisons with numbers, kept up to date by one kernel.

Most changes of parameters leave a filter what it is, a conjunction of comparisons with numbers.
Their rows are not compiled into a part: an overlay keeps them as intervals among cuts of its own,
and matches them one by one. To be up to date costs a copy of the rows and the work for what
changed; what is matched in the parts is not touched but for the dead. An overlay never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.change_log import Tape
from palio.matching.coding import Columns
from palio.matching.compile.cuts import Numbers, SlotCuts, Universe, ordered
from palio.matching.compile.rows import Entries, assembled
from palio.matching.kernels.records import (
    ARROW_WORDS,
    NumberCuts,
    NumberTables,
    RecentBatch,
    RecentRows,
    addresses_of,
)
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Part, plain_part
from palio.model.events import attribute
from palio.model.values import Kind

__all__ = ["Overlay"]

Codes: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Found: TypeAlias = tuple[Longs, Longs]

FEW_EVENTS: Final = 16
"""So many events are tried on each row one by one; of more, blocks are made."""

BLOCK: Final = 512
"""Events in a block."""

_NO_INTEGERS: Final = np.zeros(0, np.int32)
_NO_LONGS: Final = np.zeros(0, np.int64)
_NO_ROWS: Final = RecentRows(
    _NO_LONGS, _NO_LONGS, np.zeros(1, np.int32), _NO_INTEGERS, _NO_INTEGERS, _NO_INTEGERS
)
_NO_CUTS: Final = NumberCuts(np.zeros(1, np.int32), _NO_LONGS, _NO_LONGS, np.zeros(0, np.bool_))
_NO_TABLES: Final = NumberTables(
    np.zeros((0, 5), np.int32), _NO_INTEGERS, np.zeros(1, np.int32), _NO_LONGS, _NO_INTEGERS
)
NOTHING_FRESH: Final = RecentBatch(
    np.zeros((0, 0), np.int32), _NO_ROWS, _NO_INTEGERS, np.zeros(1, np.int32)
)


class Overlay:
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
    def empty(cls, kernels: Kernels) -> Overlay:
        """An overlay without rows."""
        return cls(kernels, Columns({}), _NO_ROWS, _NO_CUTS, _NO_TABLES)

    def __len__(self) -> int:
        return len(self.rows.keys)

    def advanced(self, tape: Tape, first: int, last: int) -> tuple[Overlay, Longs]:
        """The overlay after some records of a tape, and the keys that they name, ascending."""
        start, end = tape.ends[first - 1] if first else 0, tape.ends[last - 1]
        columns = self.columns
        if len(columns.slot_of) < len(tape.slot_of):  # the writer may be adding more
            columns = Columns(dict(tape.slot_of))
        rows, cuts, tables, changed = self.kernels.advance(
            self.rows, self.cuts, tape.words(), start, end, len(columns.slot_of)
        )
        return Overlay(self.kernels, columns, rows, cuts, tables), changed

    # -- matching ---------------------------------------------------------------------------------

    def codes_of(self, events: pa.RecordBatch, exported: int = 0) -> Codes:
        """A code for every slot and event; `exported` is the address of the batch if it has one."""
        codes = np.empty((len(self.cuts.offsets) - 1, events.num_rows), np.int32)
        structure = np.zeros(ARROW_WORDS, np.uint64)
        if not exported:
            events._export_to_c(structure.ctypes.data)
        self.kernels.code_batch(
            exported or structure.ctypes.data, events.num_rows, self.columns.of(events.schema),
            self._addresses, codes, not exported,
        )  # fmt: skip
        return codes

    def fresh(self, codes: Codes, ranks: npt.NDArray[np.int32]) -> RecentBatch:
        """What `kernels.combine.match_with_notes` takes in."""
        return RecentBatch(codes, self.rows, ranks, self.cuts.offsets)

    def match(self, codes: Codes) -> Found:
        """The keys that each event matches, ascending."""
        events = codes.shape[1]
        offsets = np.zeros(events + 1, np.int64)
        if events <= FEW_EVENTS:
            ranks = np.empty(max(1, events * len(self)), np.int32)
            total = self.kernels.scan_recent(codes, self.rows, self.cuts.offsets, offsets, ranks)
            return offsets, self.rows.keys[ranks[:total]]
        found, done = np.empty(1024, np.int64), 0
        while True:
            done = self.kernels.match_recent(
                codes, done, self.rows, self.cuts.offsets, offsets, found
            )
            if done >= events:
                return offsets, found[: offsets[-1]]
            used = int(offsets[done])
            grown = np.empty(2 * int(offsets[min(done + BLOCK, events)]), np.int64)
            grown[:used] = found[:used]
            found = grown

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """The keys that one event given as a mapping matches; others check that it is an event."""
        slot_of = self.columns.slot_of
        ints, floats, kinds = ([0] * len(slot_of) for _ in range(3))
        values: list[float] = list(map(float, floats))
        for name, value in event.items():
            slot = slot_of.get(name)
            if slot is None or value is None:
                continue
            number = attribute(name, value)
            if type(number) is int:
                ints[slot], kinds[slot] = number, 1
            elif type(number) is float and not isnan(number):
                values[slot], kinds[slot] = number, 2
        codes = self.kernels.code_numbers(
            self.cuts, np.array(kinds, np.int8), np.array(ints, np.int64), ordered(np.array(values))
        )
        return self.match(codes)[1]

    def count(self, codes: Codes) -> Longs:
        """How many events match each row."""
        totals: Longs = self.kernels.count_recent(codes, self.rows, self.cuts.offsets)
        return totals

    # -- as a part --------------------------------------------------------------------------------

    def part(self) -> Part | None:
        """The rows as an ordinary part."""
        universe, rows = self._universe(), self.rows
        slots = rows.slots.astype(np.int64)
        lows = universe.bases[slots, Kind.NUMBER].astype(np.int64) + rows.lows
        tops = universe.bases[slots, Kind.NUMBER + 1].astype(np.int64)
        highs = np.minimum(lows - rows.lows + rows.highs, tops)
        entries = Entries()
        entries.repeats = True
        entries.add(np.repeat(np.arange(len(self)), np.diff(rows.offsets)), slots, lows, highs)
        compiled = assembled(universe, entries, rows.keys)
        if not compiled.rows:
            return None
        return plain_part(compiled, (rows.keys, rows.destinations), self.kernels)

    def _universe(self) -> Universe:
        """The cuts as a universe, slot by slot."""
        first = self.cuts.offsets
        found = {}
        for name, slot in self.columns.slot_of.items():
            here = slice(first[slot], first[slot + 1])
            numbers = Numbers(self.cuts.ints[here], self.cuts.floats[here], self.cuts.beyond[here])
            found[name] = SlotCuts(numbers)
        return Universe(found, [])

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        arrays = (*self.rows, *self.cuts, *self._arrays)
        return sum(array.nbytes for array in arrays)
