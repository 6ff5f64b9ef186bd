"""The plans in plain Python: what the kernels must agree with, and what serves until they are
compiled.

A set of events is an `int` with a bit for each; a predicate's set is worked out once, a row is the
AND of the sets of its predicates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.cuts import Universe
from palio.matching.compile.rows import CompiledRows

__all__ = ["code_batch", "match_rows"]


def code_batch(universe: Universe, events: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The code of every attribute's value in every event; the slots of text tests stay 0."""
    codes = np.zeros((len(universe.code_counts), events.num_rows), np.int32)
    for name, column in zip(events.schema.names, events.columns, strict=True):
        slot = universe.slot_of.get(name)
        if slot is not None:
            codes[slot] = [universe.code_of(name, value) for value in column.to_pylist()]
    return codes


def match_rows(
    compiled: CompiledRows, ranks: npt.NDArray[Any], codes: npt.NDArray[np.int32], rows_wanted: Any
) -> list[tuple[int, int]]:
    """Sorted pairs (event, rank of the row) over the wanted rows, without duplicates."""
    every = (1 << codes.shape[1]) - 1
    sets = [
        _events_of(compiled, predicate, codes) for predicate in range(len(compiled.predicate_slots))
    ]
    pairs = set()
    for row in np.flatnonzero(rows_wanted).tolist():
        events = every
        for at in range(compiled.row_offsets[row], compiled.row_offsets[row + 1]):
            events &= sets[compiled.row_predicates[at]]
        while events:
            lowest = events & -events
            pairs.add((lowest.bit_length() - 1, int(ranks[row])))
            events ^= lowest
    return sorted(pairs)


def _events_of(compiled: CompiledRows, predicate: int, codes: npt.NDArray[np.int32]) -> int:
    """The events that satisfy a predicate, as bits."""
    column = codes[compiled.predicate_slots[predicate]]
    satisfied = np.zeros(len(column), np.bool_)
    for span in range(compiled.span_offsets[predicate], compiled.span_offsets[predicate + 1]):
        satisfied |= (column >= compiled.lows[span]) & (column < compiled.highs[span])
    return int.from_bytes(np.packbits(satisfied, bitorder="little").tobytes(), "little")
