"""A layer of an index: filters that never change, and answer for themselves.

`compiled.py` has rows laid out for all plans, `guarded.py` rows whose matches residual conditions
must confirm, `recent.py` rows that changed lately. `combining.py` makes one answer of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.kernels.records import EVENTS

Codes: TypeAlias = npt.NDArray[np.int32]
"""A code for each slot of a layer and each event."""

Longs: TypeAlias = npt.NDArray[np.int64]

Words: TypeAlias = npt.NDArray[np.uint64]
"""Bits: of events in a vector, of ranks among tombstones."""

Found: TypeAlias = tuple[Longs, Longs]
"""`(offsets, keys)`: event e matches `keys[offsets[e] : offsets[e + 1]]`, ascending."""

Counts: TypeAlias = tuple[Longs, Longs]
"""Keys, ascending, and the number of events that each matches; it may be 0."""

Routed: TypeAlias = tuple[npt.NDArray[np.bool_], Longs]
"""A mask of events for each destination that is hit, and the destinations, ascending."""


class CodedBatch(NamedTuple):
    """A batch as a layer takes it: its codes, and the events for conditions beyond codes."""

    codes: Codes
    events: pa.RecordBatch


class Layer(Protocol):
    """Filters by key, in one form. Any number of threads may ask it."""

    @property
    def slots(self) -> int:
        """The number of codes of an event."""

    def codes_of(self, events: pa.RecordBatch, exported: int = 0) -> Codes:
        """A code for every slot and event; `exported` is the address of the batch if it has one."""

    def match(self, batch: CodedBatch) -> Found:
        """The keys that each event matches."""

    def match_event(self, event: Mapping[str, Any]) -> Longs:
        """The keys that one event matches, ascending."""

    def count(self, batch: CodedBatch) -> Counts:
        """The number of events that each key matches."""

    def route(self, batch: CodedBatch) -> Routed:
        """The events that go to each destination."""

    def destinations_of(self, keys: Longs) -> Longs:
        """The destinations of some keys that it has."""


def in_room(events: int, room: int, fill: Callable[[Longs, Longs, int], int]) -> Found:
    """Have a kernel write `offsets` and `keys` from an event on. It returns the event that it
    reached: not the last if `keys` was too short. Then it is called again with a longer array.
    """
    offsets, keys = np.zeros(events + 1, np.int64), np.empty(room, np.int64)
    done = 0
    while (done := fill(offsets, keys, done)) < events:
        needed = int(offsets[min(done + EVENTS, events)])
        larger = np.empty(2 * max(len(keys), needed), np.int64)
        larger[: offsets[done]] = keys[: offsets[done]]
        keys = larger
    return offsets, keys[: offsets[-1]]


def by_event(rows: Longs, keys: Longs, events: int) -> Found:
    """Pairs of an event and a key in order, each once."""
    order = np.lexsort((keys, rows))
    rows, keys = rows[order], keys[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (np.diff(rows) != 0) | (np.diff(keys) != 0)
    counts = np.bincount(rows[is_first], minlength=events)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), keys[is_first]
