"""`Arrival`: events that came together, decoded at most once for all subscriptions that want some.

A call into Arrow costs 20 to 40 us whatever it is about. So where subscriptions want a few rows
each, all rows are decoded at once and each subscription keeps the mappings that it wants. Where few
want many rows, they keep the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from palio.engine import pa
from palio.model.events import SEQ
from palio.model.events import rows as decoded
from palio.model.parcels import Parcel, worth_copying
from palio.model.row_parcels import RowParcel
from palio.model.shapes import Shape

ROWS_A_TAKE: Final = 64
"""Taking rows out of a batch costs as much as decoding this number of rows: measured with ten
attributes, 33 us a call and 0.5 us a row."""


class Arrival:
    """Stamped events of one publisher and shape: a batch, mappings, or both.

    >>> from palio.model.events import to_batches
    >>> arrival = Arrival(Parcel("p", next(to_batches({"x": x} for x in range(4)))))
    >>> arrival.rows[2]
    {'x': 2}
    >>> arrival.picked([3]).rows
    [{'x': 3}]
    """

    __slots__ = ("_batch", "_parcel", "_rows", "_shape", "publisher")

    def __init__(self, parcel: Parcel) -> None:
        self.publisher = parcel.publisher
        self._parcel: Parcel | None = parcel
        self._batch: pa.RecordBatch | None = None
        self._shape: Shape | None = None
        is_decoded = parcel.event is not None or isinstance(parcel, RowParcel)
        self._rows: Sequence[dict[str, Any]] | None = parcel.rows if is_decoded else None

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """The events as mappings, system columns and all; not to be changed."""
        if self._rows is None:
            self._rows = list(decoded(self.batch))
        return self._rows

    @property
    def is_decoded(self) -> bool:
        """True if `rows` costs nothing."""
        return self._rows is not None

    @property
    def shape(self) -> Shape:
        """The shape that all of them have."""
        if self._parcel is not None:
            return self._parcel.shape
        assert self._shape is not None, "rows were picked from a shape"
        return self._shape

    @property
    def batch(self) -> pa.RecordBatch:
        """The events as columns."""
        if self._parcel is not None:
            return self._parcel.batch
        if self._batch is None:
            schema = self.shape.schema
            arrays = [
                pa.array([row.get(field.name) for row in self.rows], field.type) for field in schema
            ]
            self._batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return self._batch

    def rows_at(self, places: Sequence[int]) -> Sequence[dict[str, Any]]:
        """Some of the events as mappings."""
        if self._rows is None and not self._is_small(1) and worth_copying(len(places), len(self)):
            return list(decoded(self.batch, places))
        rows = self.rows
        return [rows[place] for place in places]

    def number(self, place: int) -> int:
        """The `$seq` of one of the events."""
        number: int = (
            self.batch.column(SEQ)[place].as_py() if self._rows is None else self._rows[place][SEQ]
        )
        return number

    def share(self, subscriptions: int) -> None:
        """Decode all rows now, if that costs less than taking a few rows out of the batch for each
        of these subscriptions.
        """
        if self._is_small(subscriptions):
            self._rows = self.rows

    def picked(self, places: Sequence[int]) -> Arrival | None:
        """Copy a few events, so that keeping them does not keep the whole batch in memory. None if
        most are wanted: then keep the batch.
        """
        if not worth_copying(len(places), len(self)):
            return None
        assert self._parcel is not None, "a copy is not copied again"
        if self._rows is None or len(places) > ROWS_A_TAKE:
            return Arrival(self._parcel.take(places))
        few = Arrival.__new__(Arrival)
        few.publisher, few._parcel, few._batch = self.publisher, None, None
        few._shape = self.shape
        few._rows = [self._rows[place] for place in places]
        return few

    def _is_small(self, takes: int) -> bool:
        """True if decoding all rows takes less time than taking some of them this often."""
        return len(self) <= ROWS_A_TAKE * takes

    def __len__(self) -> int:
        if self._parcel is not None:
            return len(self._parcel)
        return len(self.rows)
