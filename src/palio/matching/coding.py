"""Bind columns to slots, and code events that are given as mappings.

An event given as a mapping is coded straight from Python's values, without Arrow: to build an array
of one row for each attribute costs more than matching it does. `cuts.py` defines the codes.
`Universe.code_of` is the definition for any value, and codes the rare kinds here; integers, floats
and strings are looked up in sorted lists, once for each value.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from palio.errors import InvalidEvent
from palio.matching.compile.cuts import NAN_CODE, Universe
from palio.matching.kernels.records import ARROW_WORDS
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Codes, Longs
from palio.model.events import attribute, check_width
from palio.model.values import INT64_MAX, INT64_MIN, Kind, check_name

MAX_KNOWN_NAMES: Final = 10_000
"""Names are checked once, but no more of them are remembered."""

MAX_SEEN: Final = 2048
"""So many values of an attribute are remembered with their codes: one step instead of a search
through ten places in memory..."""

MAX_SEEN_CHARS: Final = 100
"""...unless they are long texts."""


MAX_BOUND_SCHEMAS: Final = 64
"""Event shapes whose columns stay bound to slots; beyond that all are forgotten."""

_COLUMN_TYPES: Final[dict[pa.DataType, int]] = {
    pa.int64(): 0,
    pa.float64(): 1,
    pa.bool_(): 2,
    pa.timestamp("us", tz="UTC"): 3,
    pa.utf8(): 4,
    pa.binary(): 5,
}


class Columns:
    """The columns of a batch that are coded, each with its slot; worked out once for a schema."""

    def __init__(self, slot_of: Mapping[str, int]) -> None:
        self.slot_of = slot_of
        self._bound: dict[pa.Schema, Codes] = {}
        self._last: tuple[pa.Schema, Codes] | None = None

    def bound_to(self, schema: pa.Schema) -> Codes:
        """(column, type, slot) of each column that some predicate names."""
        last = self._last
        if last is not None and schema.equals(last[0]):
            return last[1]
        bound = self._bound.get(schema)
        if bound is None:
            columns = [
                (place, _COLUMN_TYPES[field.type], self.slot_of[field.name])
                for place, field in enumerate(schema)
                if field.name in self.slot_of
            ]
            bound = np.array(columns, np.int32).reshape(-1, 3)
            if len(self._bound) >= MAX_BOUND_SCHEMAS:
                self._bound.clear()
            self._bound[schema] = bound
        self._last = (schema, bound)
        return bound


def code_batch(
    kernels: Kernels,
    events: pa.RecordBatch,
    exported: int,
    columns: Columns,
    cuts: Longs,
    slots: int,
) -> Codes:
    """A code for each of some slots and every event; `exported` is the address of the batch if it
    has one, `cuts` are those of the arrays of the slots' universe.
    """
    codes = np.empty((slots, events.num_rows), np.int32)
    structure = np.zeros(ARROW_WORDS, np.uint64)
    if not exported:
        events._export_to_c(structure.ctypes.data)
    bound = columns.bound_to(events.schema)
    kernels.code_batch(
        exported or structure.ctypes.data, events.num_rows, bound, cuts, codes, not exported
    )
    return codes


class _Slot(NamedTuple):
    """The cuts of an attribute, and the first code of each kind, for its usual values."""

    slot: int
    number_base: int
    ints: list[int]
    floats: list[float]
    string_base: int
    strings: list[bytes]
    seen: dict[int | float | str, int]


class Coder:
    """Codes mappings for one universe.

    >>> from palio.matching.compile.ranges import RowTemplate, compile_templates, ranges_of
    >>> from palio.model.operators import Op
    >>> below = ranges_of("x", Op.LT, np.array([5]), None)
    >>> coder = Coder(compile_templates([RowTemplate(np.array([0]), [below])]).universe)
    >>> codes = np.zeros((1, 1), np.int32)
    >>> coder.code({"x": 4.5, "y": "other"}, codes)
    >>> int(codes[0, 0]) == coder.universe.code_of("x", 4)
    True
    """

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self._slots = {name: _slot_of(universe, name) for name in universe.names}
        self._width = len(universe.names)

    def code(self, event: Mapping[str, Any], codes: Codes) -> None:
        """Set the codes of one event's attributes in a column, and none of text tests.

        What is no event is refused as `to_batch` refuses it.
        """
        check_width(event)
        row = [0] * self._width
        slots = self._slots
        for name, value in event.items():
            if value is None:
                continue
            slot = slots.get(name)
            if slot is None:
                if not (_is_plainly_sound(value) and _is_name(name)):
                    attribute(name, value)
                continue
            seen = slot.seen.get(value) if type(value) in _SEEN_AGAIN else None
            row[slot.slot] = self._code_of(slot, name, value) if seen is None else seen
        codes[: self._width, 0] = row

    def _code_of(self, slot: _Slot, name: str, value: Any) -> int:
        kind = type(value)
        if kind is int and INT64_MIN <= value <= INT64_MAX:
            code = slot.number_base + bisect_right(slot.ints, value)
        elif kind is float:
            if math.isnan(value):
                return NAN_CODE
            code = slot.number_base + bisect_right(slot.floats, value)
        elif kind is str and value.isascii():
            code = slot.string_base + bisect_right(slot.strings, value.encode())
        else:
            return self.universe.code_of(name, attribute(name, value))
        if len(slot.seen) < MAX_SEEN and (kind is not str or len(value) <= MAX_SEEN_CHARS):
            slot.seen[value] = code
        return code


_SEEN_AGAIN: Final = frozenset({int, float, str})
"""Types whose values are remembered with their codes; equal ones have the same code."""

_ANY_VALUE_WILL_DO: Final = frozenset({float, bool, bytes})
"""Types that have no value which is not an attribute's."""


def check_event(event: Mapping[str, Any]) -> None:
    """Refuse what is no event, as `to_batch` refuses it."""
    check_width(event)
    for name, value in event.items():
        if value is None or (_is_plainly_sound(value) and _is_name(name)):
            continue
        attribute(name, value)


@lru_cache(MAX_KNOWN_NAMES)
def _is_name(name: str) -> bool:
    """Always true: what is no name is refused, each time."""
    check_name(name, InvalidEvent)
    return True


def _is_plainly_sound(value: Any) -> bool:
    """Check whether a value is an attribute's as it is; False where that takes a closer check."""
    kind = type(value)
    if kind is int:
        return bool(INT64_MIN <= value <= INT64_MAX)
    if kind is str:
        return bool(value.isascii())
    if kind is datetime:
        return value.tzinfo is UTC
    return kind in _ANY_VALUE_WILL_DO


def _slot_of(universe: Universe, name: str) -> _Slot:
    slot, cuts = universe.slot_of[name], universe.cuts[name]
    bases = universe.bases[slot].tolist()
    bits = cuts.numbers.floats  # floats as integers in the same order: undo what `ordered` does
    floats = np.where(bits < 0, -bits | INT64_MIN, bits).view(np.float64)
    return _Slot(
        slot,
        bases[Kind.NUMBER],
        cuts.numbers.ints[: universe.reachable[slot]].tolist(),
        floats.tolist(),
        bases[Kind.STRING],
        list(cuts.strings),
        {},
    )
