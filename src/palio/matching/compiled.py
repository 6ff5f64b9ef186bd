"""The compiled layer: a segment, its tombstones, and its filters' destinations.

A layer is immutable; a change makes another layer that shares the segment. Readers hold on to the
layers they began with, so that they never wait for a writer and never see half a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from palio.matching.compile.rows import CompiledRows, runs
from palio.matching.destinations import Destinations
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import CodedBatch, Codes, Counts, Found, Longs, Routed, Words
from palio.matching.segment import Segment


@dataclass(frozen=True)
class CompiledLayer:
    """Filters by rank: their rows in a segment, their keys and destinations.

    `tombstones` are the ranks of filters that were removed or have other rows in a later layer, a
    bit for each.
    """

    is_guarded: ClassVar[bool] = False

    segment: Segment
    tombstones: Words
    destinations: Destinations
    removed: int = 0
    """The number of tombstones."""

    @classmethod
    def of(
        cls,
        rows: CompiledRows,
        destinations: tuple[Longs, Longs] | None,
        kernels: Kernels | None,
    ) -> CompiledLayer:
        """A layer of some rows; `destinations` are keys, ascending, and the destination of each;
        None if every filter is its own.
        """
        segment = Segment(rows, kernels)
        by_rank = segment.keys
        if destinations is not None:
            ranks, targets = destinations
            by_rank = targets[np.searchsorted(ranks, segment.keys)]
        return cls(segment, segment.no_tombstones(), Destinations(segment.keys, by_rank))

    @property
    def keys(self) -> Longs:
        """The key of each rank's filter."""
        return self.destinations.keys

    @property
    def slots(self) -> int:
        """The number of codes of an event."""
        return self.segment.slots

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.segment.compiled.rows

    def prefers_blocks(self, events: int) -> bool:
        """Check whether the plan for many events would take less time."""
        costs = self.segment.costs.of(events)
        return costs["many"] < costs["few"]

    @property
    def filters(self) -> int:
        """The number of ranks without a tombstone."""
        return len(self.segment.keys) - self.removed

    @property
    def matches_singly(self) -> bool:
        """True if a single event can take the short way through `Segment.match_one`."""
        return not self.is_guarded and self.segment.matches_singly

    def lay_out(self, kernels: Kernels) -> None:
        """Use kernels from now on."""
        if self.segment.kernels is None:
            self.segment.lay_out(kernels)

    def without(self, keys: Longs) -> CompiledLayer:
        """The same layer with tombstones for some keys, those that it has; they ascend."""
        first, end = np.searchsorted(self.keys, keys), np.searchsorted(self.keys, keys, "right")
        hit = first < end
        if not hit.any():
            return self
        ranks = runs(first[hit], (end - first)[hit])
        words, marks = ranks >> 6, np.uint64(1) << (ranks & 63).astype(np.uint64)
        count = int(np.count_nonzero(self.tombstones[words] & marks == 0))
        bits = self.tombstones.copy()
        np.bitwise_or.at(bits, words, marks)
        return replace(self, tombstones=bits, removed=self.removed + count) if count else self

    # --- answers ---

    def codes_of(self, events: pa.RecordBatch, exported: int = 0) -> Codes:
        """Code a batch of events."""
        return self.segment.codes_of(events, exported)

    def match(self, batch: CodedBatch) -> Found:
        """Find the keys that each event matches."""
        return self.segment.match(batch.codes, self.tombstones)

    def match_one(self, event: pa.RecordBatch) -> Longs:
        """The keys that the event of a batch of one matches, where `matches_singly`."""
        return self.segment.match_one(event, self.tombstones)

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """Find the keys that one event matches, ascending."""
        return self.segment.match_event(event, self.tombstones)

    def count(self, batch: CodedBatch) -> Counts:
        """Count the events that each key matches."""
        return self.keys, self.segment.count(batch.codes, self.tombstones)

    def route(self, batch: CodedBatch) -> Routed:
        """Find the events that go to each destination."""
        return self.destinations.route(self.segment, batch.codes, self.tombstones)

    def destinations_of(self, keys: Longs) -> Longs:
        """Look up the destinations of some keys."""
        return self.destinations.of_keys(keys)

    def memory(self) -> dict[str, int]:
        """Bytes by part."""
        return {
            **self.segment.memory(),
            "tombstones": self.tombstones.nbytes,
            **self.destinations.memory(self.segment.keys),
        }
