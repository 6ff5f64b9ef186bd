"""The guarded layer: residual conditions confirm what its rows match.

A filter such as `a < b AND x = 1` has a row for `x = 1`, and a guard with the residual `a < b`. It
is evaluated on events that the row admits. The keys of the segment are places in the list of
guards. A filter of several conjunctions may have guards here and rows in a compiled layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.rows import CompiledRows
from palio.matching.compile.terms import Guard
from palio.matching.compiled import CompiledLayer
from palio.matching.destinations import Destinations
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import CodedBatch, Counts, Found, Longs, Routed, by_event
from palio.matching.residuals import Columns, holds_on
from palio.matching.segment import Segment
from palio.model.events import rows as rows_of
from palio.model.values import NO_VALUES


@dataclass(frozen=True)
class GuardedLayer(CompiledLayer):
    """A compiled layer whose matches are confirmed by guards, whose keys ascend."""

    is_guarded: ClassVar[bool] = True

    guards: tuple[Guard, ...] = ()

    @classmethod
    def guarding(
        cls, rows: CompiledRows, guards: Sequence[Guard], kernels: Kernels | None
    ) -> GuardedLayer:
        """A layer of rows whose owners are places in `guards`: with the guards that are used,
        ascending by key, and the rows renumbered to them.
        """
        used = np.unique(rows.row_owners).tolist()
        ordered = sorted(used, key=lambda place: guards[place].key)
        renumbered = np.zeros(len(guards), np.int64)
        renumbered[ordered] = np.arange(len(ordered))
        segment = Segment(replace(rows, row_owners=renumbered[rows.row_owners]), kernels)
        kept = tuple(guards[place] for place in ordered)
        return cls.loaded(segment, segment.no_tombstones(), 0, kept)

    @classmethod
    def loaded(
        cls,
        segment: Segment,
        tombstones: npt.NDArray[np.uint64],
        removed: int,
        guards: tuple[Guard, ...],
    ) -> GuardedLayer:
        """A layer of a segment whose keys are places in `guards`."""
        ranked = [guards[place] for place in segment.keys.tolist()]
        destinations = Destinations(
            np.array([guard.key for guard in ranked], np.int64),
            np.array([guard.destination for guard in ranked], np.int64),
        )
        return cls(segment, tombstones, destinations, removed, guards)

    @cached_property
    def _owners(self) -> Longs:
        """The key of each guard."""
        return np.array([guard.key for guard in self.guards], np.int64)

    def match(self, batch: CodedBatch) -> Found:
        """Find the keys that each event matches."""
        offsets, places = self.segment.match(batch.codes, self.tombstones)
        if not len(places):
            return offsets, places
        if batch.events.num_rows == 1:
            keys = self._confirmed_of(next(rows_of(batch.events)), places)
            return np.array([0, len(keys)], np.int64), keys
        rows = np.repeat(np.arange(batch.events.num_rows), np.diff(offsets))
        holds = self._confirmed(batch.events, rows, places)
        return by_event(rows[holds], self._owners[places[holds]], batch.events.num_rows)

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """Find the keys that one event matches, ascending."""
        return self._confirmed_of(event, self.segment.match_event(event, self.tombstones))

    def _confirmed_of(self, event: Mapping[str, Any], places: Longs) -> Longs:
        """The keys of the places whose guards hold on one event, ascending."""
        if not len(places):
            return places
        guards = [self.guards[place] for place in places.tolist()]
        keys = [guard.key for guard in guards if all(part.truth(event) for part in guard.residuals)]
        return np.unique(np.array(keys, np.int64))

    def count(self, batch: CodedBatch) -> Counts:
        """Count the events that each key matches."""
        keys, counts = np.unique(self.match(batch)[1], return_counts=True)
        return keys, counts

    def route(self, batch: CodedBatch) -> Routed:
        """Find the events that go to each destination."""
        return self.destinations.of_found(self.match(batch))

    def _confirmed(
        self, events: pa.RecordBatch, rows: Longs, places: Longs
    ) -> npt.NDArray[np.bool_]:
        """Check for each pair of a row and a place whether the guard holds on the event."""
        needed, rows = np.unique(rows, return_inverse=True)
        columns = Columns(events, needed)
        holds = np.zeros(len(places), np.bool_)
        order = np.argsort(places, kind="stable")
        ends = np.flatnonzero(np.concatenate([np.diff(places[order]) != 0, [True]])) + 1
        begin = 0
        for end in ends.tolist():
            here = order[begin:end]
            holds[here] = _holds(self.guards[places[here[0]]], columns, rows[here])
            begin = end
        return holds


def _holds(guard: Guard, columns: Columns, rows: Longs) -> npt.NDArray[np.bool_]:
    """Check of which events all residuals of a guard are true."""
    holds = np.ones(len(rows), np.bool_)
    for residual in guard.residuals:
        left = np.flatnonzero(holds)
        holds[left] = holds_on(residual, columns, rows[left], NO_VALUES)
    return holds
