"""What the tests of a tree read of a batch: rows of plain values, decoded column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Final, TypeAlias

import pyarrow as pa

from palio.model.values import Kind
from palio_studies.tree.attribute_tests import ValueSource, label

Row: TypeAlias = tuple[Any, ...]
"""What each slot reads of one event; None where there is nothing of the kind."""

_KINDS: Final = {
    pa.bool_(): Kind.BOOL,
    pa.int64(): Kind.NUMBER,
    pa.float64(): Kind.NUMBER,
    pa.utf8(): Kind.STRING,
    pa.binary(): Kind.BYTES,
    pa.timestamp("us", tz="UTC"): Kind.TIME,
}


class TreeEvents:
    """A batch that conforms to the model, read by slots."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._places = {name: place for place, name in enumerate(batch.schema.names)}

    def rows(self, slots: Mapping[ValueSource, int]) -> Iterator[Row]:
        """What the slots read, row by row."""
        nothing: Iterable[Any] = repeat(None)
        columns = [nothing] * len(slots)
        for source in slots:
            place = self._places.get(source.attribute)
            if place is not None:
                column = self._column(place, source.kind)
                columns[slots[source]] = nothing if column is None else column
        # The numbers of the rows end the iteration where no slot has a column.
        return zip(*columns, range(self._batch.num_rows), strict=False)

    def _column(self, place: int, wanted: Kind | None) -> list[Any] | None:
        """Coordinates if the column is of the wanted kind, labels if none is wanted."""
        column = self._batch.column(place)
        kind = _KINDS[column.type]
        if wanted is not None and wanted is not kind:
            return None
        if kind is Kind.TIME:
            column = column.cast(pa.int64())
        values: list[Any] = column.to_pylist()
        if wanted is None and kind in (Kind.BOOL, Kind.TIME):
            return [None if value is None else label(kind, value) for value in values]
        return values
