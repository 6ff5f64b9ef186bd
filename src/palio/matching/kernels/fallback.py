"""The plans in numpy: the kernels must agree with them, and they serve until these are compiled.

A predicate is worked out once for some events, a row is the AND of its predicates.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.matching.compile.cuts import ABSENT_CODE, Universe
from palio.matching.compile.rows import CompiledRows

_NUMBERS: Final = (pa.int64(), pa.float64())

CELLS: Final = 1 << 20
"""Predicates, or mentions of them in rows, times events that are worked out at once: 5 MB."""


def code_batch(universe: Universe, events: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The code of every attribute's value in every event; the slots of text tests stay 0."""
    codes = np.zeros((len(universe.code_counts), events.num_rows), np.int32)
    for name, column in zip(events.schema.names, events.columns, strict=True):
        slot = universe.slot_of.get(name)
        if slot is not None:
            codes[slot] = _codes_of(universe, name, column)
    return codes


def _codes_of(universe: Universe, name: str, column: Any) -> Any:
    """The codes of one column: of numbers by their order, of others once for each that differs."""
    if column.type in _NUMBERS and not column.null_count:
        return universe.codes_of_numbers(name, column.to_numpy())
    encoded = column.dictionary_encode()
    distinct = [universe.code_of(name, value) for value in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    return np.array([*distinct, ABSENT_CODE], np.int32)[places]


def match_rows(
    compiled: CompiledRows, ranks: npt.NDArray[Any], codes: npt.NDArray[np.int32], rows_wanted: Any
) -> list[tuple[int, int]]:
    """Sorted pairs (event, rank of the row) over the wanted rows, without duplicates."""
    pairs: set[tuple[int, int]] = set()
    wanted = np.asarray(rows_wanted, np.bool_)[:, None]
    step = max(1, CELLS // max(1, len(compiled.lows), len(compiled.row_predicates)))
    for first in range(0, codes.shape[1], step):
        some = codes[:, first : first + step]
        satisfied = _satisfied(compiled, some)[compiled.row_predicates]
        matching = _reduced(np.logical_and, satisfied, compiled.row_offsets) & wanted
        rows, events = np.nonzero(matching)
        pairs.update(zip((events + first).tolist(), ranks[rows].tolist(), strict=True))
    return sorted(pairs)


def _satisfied(compiled: CompiledRows, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Find the predicates, each a union of spans of codes, that each event satisfies."""
    spans = np.diff(compiled.span_offsets)
    columns = codes[np.repeat(compiled.predicate_slots, spans)]
    within = (columns >= compiled.lows[:, None]) & (columns < compiled.highs[:, None])
    return _reduced(np.logical_or, within, compiled.span_offsets)


def _reduced(
    ufunc: np.ufunc, cells: npt.NDArray[np.bool_], offsets: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Each group of lines as one; an empty group, where `reduceat` would take the next line, is
    what the operation begins with.
    """
    starts, ends = offsets[:-1], offsets[1:]
    reduced = np.full((len(starts), cells.shape[1]), ufunc.identity, np.bool_)
    filled = starts < ends
    if filled.any():
        reduced[filled] = ufunc.reduceat(cells, starts[filled], axis=0)
    return reduced
