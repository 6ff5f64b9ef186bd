"""`Segment`: an immutable set of rows, laid out for all plans, of which it chooses the cheapest.

A compiled layer is a segment with its changes: tombstones are arguments, one bit for each rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.coding import Coder, Columns, code_batch
from palio.matching.compile.rows import CompiledRows, prefixes_of, shared_prefixes
from palio.matching.counting import Counting
from palio.matching.kernels import fallback
from palio.matching.kernels.records import (
    ARROW_WORDS,
    BITMAP_ROWS,
    CHUNK,
    EVENTS,
    Predicates,
    Scratch,
    addresses_of,
)
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Codes, Found, Longs, Words, in_room
from palio.matching.texts import TextTests
from palio.model.texts import TextTest

BUCKETS: Final = 32
UPPER_BUCKETS: Final = 64
LEAST_ROWS: Final = 32
"""Rows of a block that must name a slot for it to have bitmaps: at most 66 bytes a predicate."""

# Nanoseconds that the plans' units of work take on an ordinary machine; only their ratios matter.
NS_PREDICATE: Final = 8.0
NS_ROW: Final = 8.0
NS_EVENT: Final = 1500.0
NS_EVENT_BLOCK: Final = 20_000.0
NS_BLOCK: Final = 60.0
NS_TEST: Final = 30.0

LAYOUT: Final = (
    *("keys", "row_ranks", "program"),
    *("lower_offsets", "lower_entries", "lower_vectors"),
    *("upper_offsets", "upper_entries", "upper_vectors"),
)
"""The names of the arrays of `Segment.laid_out`."""


Level: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], Words]

NO_PROGRAM: Final = np.zeros(0, np.uint32)
"""The program of a segment that is not laid out yet."""


class _Addressed(NamedTuple):
    """Arrays that are passed to kernels by address. Another thread may lay out the same segment and
    replace them: the caller of a kernel holds this reference meanwhile, so they are not freed.
    """

    addresses: npt.NDArray[np.int64]
    arrays: tuple[npt.NDArray[Any], ...]


class _Single:
    """Working arrays for one event at a time."""

    def __init__(self, slots: int) -> None:
        self.structure = np.zeros(ARROW_WORDS, np.uint64)
        self.address: int = self.structure.ctypes.data
        self.codes = np.zeros((slots, 1), np.int32)
        self.offsets = np.zeros(2, np.int64)
        self.found = np.empty(4096, np.int32)
        self.work = np.zeros(2, np.int64)
        self.matched = 0


class Costs:
    """Estimates of the nanoseconds that the plans of a segment take, by the counts of its parts.

    The plan for few events is estimated by its work so far, and by the worst case at first.
    """

    def __init__(self, compiled: CompiledRows) -> None:
        looked, tested = -(-compiled.rows // BITMAP_ROWS), compiled.rows / 256
        self._event_ns = NS_EVENT + NS_BLOCK * looked + NS_TEST * tested
        predicates = len(compiled.predicate_slots)
        self._block_ns = NS_EVENT_BLOCK + NS_PREDICATE * predicates + NS_ROW * compiled.rows
        self._work = np.zeros(2, np.int64)
        self._events = 0

    def of(self, events: int) -> dict[str, float]:
        """Estimate each plan for so many events."""
        return {"few": events * self._event_ns, "many": -(-events // EVENTS) * self._block_ns}

    def note(self, work: npt.NDArray[np.int64], events: int) -> None:
        """Record the work that the plan for few has done for so many events."""
        if self._events > 10_000:  # halved, so that the estimate follows a change of the events
            self._work //= 2
            self._events //= 2
        self._work += work
        self._events += events
        if not self._events:
            return
        looked, tested = (self._work / self._events).tolist()
        self._event_ns = NS_EVENT + NS_BLOCK * looked + NS_TEST * tested


class Segment:
    """Rows of filters, each filter known by its rank in the ascending list of keys.

    Plans are chosen here: `match` by `costs`, and `count`.
    """

    lower: Level
    upper: Level

    def __init__(self, compiled: CompiledRows, kernels: Kernels | None) -> None:
        self.keys, ranks = np.unique(compiled.row_owners, return_inverse=True)
        self.row_ranks = ranks.astype(np.int32)
        self._prepare(compiled)
        if kernels is not None:
            self.lay_out(kernels)

    @classmethod
    def loaded(
        cls, compiled: CompiledRows, layout: Mapping[str, npt.NDArray[Any]] | None, depth: int
    ) -> Segment:
        """Make a segment from saved arrays; `layout` are those of `laid_out`, if it was saved."""
        if layout is None:
            return cls(compiled, None)
        segment = cls.__new__(cls)
        segment.keys, segment.row_ranks = layout["keys"], layout["row_ranks"]
        segment._prepare(compiled)
        segment.depth = depth
        segment.program = layout["program"]
        segment.lower = (
            layout["lower_offsets"], layout["lower_entries"], layout["lower_vectors"],
        )  # fmt: skip
        segment.upper = (
            layout["upper_offsets"], layout["upper_entries"], layout["upper_vectors"],
        )  # fmt: skip
        return segment

    def laid_out(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays to save besides the compiled rows."""
        arrays: list[npt.NDArray[Any]] = [self.keys, self.row_ranks, self.program]
        arrays += [*self.lower, *self.upper]
        return dict(zip(LAYOUT, arrays, strict=True))

    def _prepare(self, compiled: CompiledRows) -> None:
        self.compiled = compiled
        self.texts = TextTests(compiled.universe)
        self.program: npt.NDArray[np.uint32] = NO_PROGRAM
        self.alternatives = len(self.keys) < compiled.rows
        self.predicate_count = len(compiled.predicate_slots)
        # By slot, as predicates of a slot share its running vectors (`kernels.bits.evaluate`).
        by_slot = np.argsort(compiled.predicate_slots, kind="stable")
        self.slot_predicates = by_slot.astype(np.int32)
        per_slot = np.bincount(
            compiled.predicate_slots, minlength=len(compiled.universe.code_counts)
        )
        self.slot_offsets = np.concatenate([[0], np.cumsum(per_slot)]).astype(np.int32)
        self.columns = Columns(compiled.universe.slot_of)
        # Pools, as several threads match: to make working arrays takes longer than one event.
        self._scratch: list[Scratch] = []
        self._singles: list[_Single] = []
        self._coder: Coder | None = None
        self._room = 1024
        self.costs = Costs(compiled)
        self.kernels: Kernels | None = None

    def lay_out(self, kernels: Kernels) -> None:
        """Build the kernels' structures, unless they were loaded, and use kernels from now on."""
        if self.program is NO_PROGRAM:
            self._build(kernels)
        compiled = self.compiled
        first = compiled.span_offsets[:-1]
        counts = np.diff(compiled.span_offsets)
        lows, highs = compiled.lows[first], compiled.highs[first + counts - 1]
        self.tests = np.stack([compiled.predicate_slots, lows, highs, counts], axis=1)
        single = (
            *self.upper, *self.lower, compiled.row_offsets, compiled.row_predicates,
            self.row_ranks, self.tests, compiled.span_offsets, compiled.lows, compiled.highs,
        )  # fmt: skip
        self._single_tables = _Addressed(addresses_of(single), single)
        self.predicates = Predicates(
            compiled.universe.code_counts, self.slot_offsets, self.slot_predicates,
            compiled.span_offsets, compiled.lows, compiled.highs,
        )  # fmt: skip
        self._cut_addresses = addresses_of(compiled.universe.arrays())
        self.kernels = kernels  # last: other threads match by the fallback until it is set

    def _build(self, kernels: Kernels) -> None:
        """Build the program, and the two levels of bitmaps."""
        compiled = self.compiled
        prefixes = prefixes_of(compiled.row_offsets, compiled.row_predicates)
        self.depth = prefixes.shape[1]
        program = kernels.program_of(
            prefixes,
            shared_prefixes(prefixes),
            compiled.row_offsets,
            compiled.row_predicates,
            self.row_ranks,
            self.predicate_count,
        )
        slots = len(compiled.universe.code_counts)
        first, last = compiled.span_offsets[:-1], compiled.span_offsets[1:] - 1
        items = compiled.row_predicates
        lower_items = (
            compiled.row_offsets,
            compiled.predicate_slots[items],
            compiled.lows[first][items],
            compiled.highs[last][items],
        )
        self.lower = kernels.level_of(*lower_items, slots, BUCKETS, LEAST_ROWS)
        upper_items = kernels.blocks_of(*lower_items, slots)
        self.upper = kernels.level_of(*upper_items, slots, UPPER_BUCKETS, 1)
        self.program = program  # last: it marks that all is built

    @property
    def slots(self) -> int:
        """The number of slots, each with a code of an event."""
        return len(self.compiled.universe.code_counts)

    def no_tombstones(self) -> Words:
        """Return the bits of a segment without tombstones."""
        return np.zeros(len(self.keys) // 64 + 1, np.uint64)

    # --- codes ---

    def codes_of(self, events: pa.RecordBatch, exported: int = 0) -> Codes:
        """Code every slot of every event; `exported` is the address of the batch if it has one."""
        universe = self.compiled.universe
        if self.kernels is None:
            codes = fallback.code_batch(universe, events)
        else:
            codes = code_batch(
                self.kernels, events, exported, self.columns, self._cut_addresses, self.slots
            )
        if universe.tests:
            self.texts.code(events, codes, self.kernels)
        return codes

    # --- matching ---

    def match(self, codes: Codes, tombstones: Words) -> Found:
        """Return the keys that each event matches, by the cheaper plan."""
        if self.kernels is None:
            return self._match_by_fallback(codes, tombstones)
        costs = self.costs.of(codes.shape[1])
        return (self.match_few if costs["few"] <= costs["many"] else self.match_many)(
            codes, tombstones
        )

    def match_one(self, event: pa.RecordBatch, tombstones: Words) -> npt.NDArray[np.int64]:
        """Return the keys that a single event matches: a fast path of `match`."""
        assert self.kernels is not None
        scratch = self._take_single()
        event._export_to_c(scratch.address)
        bound = self.columns.bound_to(event.schema)
        self.kernels.code_batch(scratch.address, 1, bound, self._cut_addresses, scratch.codes, True)
        if self.compiled.universe.tests:
            self.texts.code(event, scratch.codes, self.kernels)
        return self._match_coded(scratch, tombstones)

    def match_event(self, event: Mapping[str, Any], tombstones: Words) -> npt.NDArray[np.int64]:
        """Return the keys that an event matches, which is a mapping."""
        if self._coder is None:
            self._coder = Coder(self.compiled.universe)
        scratch = self._take_single()
        self._coder.code(event, scratch.codes)
        if self.compiled.universe.tests:
            self.texts.code_event(event, scratch.codes, self.kernels)
        if self.matches_singly:
            return self._match_coded(scratch, tombstones)
        keys = self.match(scratch.codes, tombstones)[1]
        self._singles.append(scratch)
        return keys

    @property
    def matches_singly(self) -> bool:
        """True if bitmaps are the cheaper plan for a single event."""
        costs = self.costs.of(1)
        return self.kernels is not None and costs["few"] <= costs["many"]

    def _take_single(self) -> _Single:
        try:
            return self._singles.pop()
        except IndexError:
            return _Single(len(self.compiled.universe.code_counts))

    def _match_coded(self, scratch: _Single, tombstones: Words) -> npt.NDArray[np.int64]:
        """Return the keys that the event with the codes in `scratch` matches."""
        assert self.kernels is not None
        tables = self._single_tables
        while (
            total := self.kernels.match_events(
                scratch.codes, tables.addresses, tombstones,
                scratch.offsets, scratch.found, scratch.work,
            )
        ) < 0:  # fmt: skip
            scratch.found = np.empty(4 * len(scratch.found), np.int32)
        keys = self._keys_of(scratch.found[:total])
        scratch.matched += 1
        if scratch.matched == 64:
            self.costs.note(scratch.work, 64)
            scratch.work[:] = 0
            scratch.matched = 0
        self._singles.append(scratch)
        return keys

    def _keys_of(self, ranks: npt.NDArray[np.int32]) -> Longs:
        """Return the keys of an event's ranks, each once, ascending."""
        ranks.sort()
        if self.alternatives and len(ranks) > 1:
            ranks = ranks[np.concatenate([[True], ranks[1:] != ranks[:-1]])]
        return self.keys.take(ranks)

    def match_many(self, codes: Codes, tombstones: Words) -> Found:
        """Match by the plan of vectors: blocks of 512 events."""
        assert self.kernels is not None
        kernels, scratch = self.kernels, self.take_scratch()

        def fill(offsets: Longs, keys: Longs, done: int) -> int:
            return kernels.match_blocks(
                codes, done, self.predicates, self.program, tombstones, self.alternatives, scratch,
                self.keys, offsets, keys,
            )  # fmt: skip

        offsets, keys = in_room(codes.shape[1], self._room, fill)
        self.give_back(scratch)
        self._room = max(1024, len(keys) + len(keys) // 4 + 1)
        return offsets, keys

    def match_few(self, codes: Codes, tombstones: Words) -> Found:
        """Match by the plan of bitmaps: event by event."""
        assert self.kernels is not None
        events = codes.shape[1]
        offsets = np.zeros(events + 1, np.int64)
        matches = np.empty(max(self._room, 1024), np.int32)
        work = np.zeros(2, np.int64)
        tables = self._single_tables
        while (
            total := self.kernels.match_events(
                codes, tables.addresses, tombstones, offsets, matches, work
            )
        ) < 0:
            matches = np.empty(4 * len(matches), np.int32)
            work[:] = 0  # of the failed try, which would count twice
        self._room = max(1024, self._room, 2 * total)
        self.costs.note(work, events)
        ranks = matches[:total]
        if events == 1:
            keys = self._keys_of(ranks)
            return np.array([0, len(keys)], np.int64), keys
        # One word for each pair, so that a plain sort orders by row and then by rank.
        rows = np.repeat(np.arange(events), np.diff(offsets))
        pairs = (rows << 32) | ranks
        pairs = np.unique(pairs) if self.alternatives else np.sort(pairs)
        np.cumsum(np.bincount(pairs >> 32, minlength=events), out=offsets[1:])
        return offsets, self.keys[pairs & 0xFFFFFFFF]

    def _match_by_fallback(self, codes: Codes, tombstones: Words) -> Found:
        bits = np.unpackbits(tombstones.view(np.uint8), bitorder="little")
        is_alive = np.asarray(bits[self.row_ranks] == 0)
        pairs = fallback.match_rows(self.compiled, self.row_ranks, codes, is_alive)
        rows = np.array([row for row, _ in pairs], np.int64)
        ranks = np.array([rank for _, rank in pairs], np.int64)
        counts = np.bincount(rows, minlength=codes.shape[1])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), self.keys[ranks]

    def scans_without(self, tombstones: Words) -> Iterator[tuple[str, TextTest]]:
        """The text tests tried on every text that a rank without a tombstone asks for."""
        scans, rows = self.texts.scans, self.compiled
        if not scans:
            return iter(())
        asks = np.isin(rows.predicate_slots, list(scans))
        entries = np.flatnonzero(asks[rows.row_predicates])
        ranks = self.row_ranks[np.searchsorted(rows.row_offsets, entries, "right") - 1]
        marks = tombstones[ranks >> 6] >> (ranks & 63).astype(np.uint64)
        entries = entries[marks & np.uint64(1) == 0]
        slots = np.unique(rows.predicate_slots[rows.row_predicates[entries]])
        return (scans[slot] for slot in slots.tolist())

    def count(self, codes: Codes, tombstones: Words) -> npt.NDArray[np.int64]:
        """Count the events that match each rank."""
        totals = np.zeros(len(self.keys), np.int64)
        if self.kernels is None:
            _, keys = self._match_by_fallback(codes, tombstones)
            np.add.at(totals, np.searchsorted(self.keys, keys), 1)
            return totals
        events = codes.shape[1]
        counting = self.counting if events >= CHUNK and not self.alternatives else None
        if counting is not None and counting.ns(events) < self.costs.of(events)["many"]:
            counting.count(self.kernels, codes, tombstones, totals)
            return totals
        scratch = self.take_scratch()
        self.kernels.count_blocks(
            codes, self.predicates, self.program, tombstones, self.alternatives, scratch, totals
        )
        self.give_back(scratch)
        return totals

    @cached_property
    def counting(self) -> Counting | None:
        """The counting plan, if the rows allow one."""
        return Counting.of(self.compiled, self.row_ranks)

    def take_scratch(self) -> Scratch:
        """Working arrays for one call."""
        try:
            return self._scratch.pop()
        except IndexError:
            return Scratch.of(self.predicate_count, self.compiled.rows, self.depth)

    def give_back(self, scratch: Scratch) -> None:
        """Keep working arrays for the next call."""
        self._scratch.append(scratch)

    def memory(self) -> dict[str, int]:
        """Bytes by part."""
        compiled = self.compiled
        parts = {
            "cuts": compiled.universe.nbytes,
            "predicates": sum(
                array.nbytes
                for array in (
                    compiled.predicate_slots, compiled.span_offsets, compiled.lows,
                    compiled.highs, self.slot_predicates, self.slot_offsets,
                )
            ),
            "rows": compiled.row_offsets.nbytes
            + compiled.row_predicates.nbytes
            + compiled.row_owners.nbytes
            + self.row_ranks.nbytes,
            "keys": self.keys.nbytes,
        }  # fmt: skip
        if self.kernels is not None:
            parts["predicates"] += self.tests.nbytes
            parts["program"] = self.program.nbytes
            parts["bitmaps"] = sum(array.nbytes for array in (*self.lower, *self.upper))
        parts["scratch"] = sum(array.nbytes for arrays in self._scratch for array in arrays)
        counting = self.__dict__.get("counting")
        parts["counting"] = 0 if counting is None else counting.nbytes
        return parts
