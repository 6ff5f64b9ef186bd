"""Events given one by one as dictionaries, gathered to record batches without looking at each.

Events of one *form* (the same names with values of the same types) are checked once, and their
values become columns as they are. Where a value turns out not to fit (an integer beyond 64 bits),
the events are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from palio.model.events import refuse_system_names, schema_of
from palio.model.limits import MAX_LONE_BYTES
from palio.model.parcels import Parcel, Shape

__all__ = ["MAX_FORMS", "Form", "Forms", "Row"]

MAX_FORMS: Final = 1_024
"""Forms remembered; beyond, it starts over with none."""

PLAIN: Final = frozenset({bool, int, float, str, bytes})
"""Types whose values Arrow takes exactly as the model does, or refuses."""

Row: TypeAlias = tuple[Any, ...]
"""An event's values, in the order of its form's names."""


class Form:
    """The schema that events of one form share."""

    __slots__ = ("schema", "shape")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.shape = Shape(schema)

    def gather(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Rows as columns; one of Arrow's errors, or OverflowError or UnicodeError, if one does not
        fit.
        """
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def lone(self, row: Row) -> Parcel | None:
        """A row by itself, as its values; None if it is large, or one of them does not fit."""
        if not self.shape.fits(row):
            return None
        for value in row:
            if type(value) is str and not value.isascii() and not _is_text(value):
                return None
        parcel = Parcel.lone("", self.shape, row)  # whose it is is the broker's to say
        return parcel if parcel.nbytes <= MAX_LONE_BYTES else None

    def event(self, row: Row) -> dict[str, Any]:
        """A row as the event it was."""
        return dict(zip(self.schema.names, row, strict=True))


class Forms:
    """The forms seen so far.

    >>> forms = Forms()
    >>> form, row = forms.of({"symbol": "IBM", "price": 9.5})
    >>> form.gather([row, ("HAL", 2.5)]).to_pylist()[1]
    {'symbol': 'HAL', 'price': 2.5}
    """

    def __init__(self) -> None:
        self._forms: dict[tuple[Any, ...], Form | None] = {}

    def of(self, event: Mapping[str, Any]) -> tuple[Form, Row] | None:
        """An event's form and its values; None for one that must be looked at itself."""
        values = tuple(event.values())
        key = (*event, *map(type, values))
        try:
            form = self._forms[key]
        except KeyError:
            form = self._learn(key, event, values)
        return None if form is None else (form, values)

    def _learn(self, key: tuple[Any, ...], event: Mapping[str, Any], values: Row) -> Form | None:
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        is_plain = bool(values) and all(type(value) in PLAIN for value in values)
        if is_plain:
            refuse_system_names(event)
        form = self._forms[key] = Form(schema_of(event)) if is_plain else None
        return form


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
