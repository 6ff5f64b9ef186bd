"""`RowParcel`: a parcel that is given as mappings, numbered beside them.

Simulated clients publish mappings of any types, by the thousand: they are columns only for an
engine that asks for some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palio.engine import np, npt, pa
from palio.model.events import RowMask, to_batches
from palio.model.parcels import Parcel, event_bytes
from palio.model.shapes import Shape


class RowParcel(Parcel):
    """Events of one publisher as mappings without system columns, numbered from `first_seq` on.

    They may be of several shapes. Then they are several `batches`, and there is no one `batch`.

    >>> parcel = RowParcel("sensor", [{"x": 1}, {"x": "a"}], first_seq=7)
    >>> parcel.seqs, len(parcel.batches), parcel.select(np.array([False, True])).event
    ((7, 8), 2, {'x': 'a'})
    """

    __slots__ = ("_rows", "_seqs", "epoch")

    def __init__(
        self,
        publisher: str,
        rows: Iterable[Mapping[str, Any]],
        first_seq: int = 0,
        *,
        seqs: Sequence[int] | None = None,
        source: str | None = None,
        epoch: int = 0,
        shape: Shape | None = None,
    ) -> None:
        self.publisher = publisher
        self.values = None
        self._rows = tuple(map(dict, rows))
        counted = range(first_seq, first_seq + len(self._rows))
        self._seqs = tuple(counted if seqs is None else seqs)
        self.count = len(self._rows)
        self.nbytes = self.held_bytes = sum(map(event_bytes, self._rows))
        self.source = source
        self.epoch = epoch
        if shape is not None:
            self.shape = shape

    @property
    def event(self) -> dict[str, Any] | None:
        """The one event, if there is one."""
        return self._rows[0] if len(self._rows) == 1 else None

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """The events as they were given."""
        return self._rows

    @property
    def seqs(self) -> tuple[int, ...]:
        """The number of each event."""
        return self._seqs

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The number of each event, as an array."""
        return np.array(self._seqs, np.int64)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The events as columns, in order: several batches where a type changes."""
        return list(to_batches(self._rows))

    @property
    def batch(self) -> pa.RecordBatch:
        """The events as columns; `ValueError` where a type changes."""
        (batch,) = self.batches
        return batch

    def select(self, mask: RowMask) -> RowParcel:
        """The events of some rows; this very parcel if that is all of them."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def take(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> RowParcel:
        """The events of some rows."""
        return self._like([self._rows[row] for row in rows], [self._seqs[row] for row in rows])

    def replace(self, rows: Iterable[Mapping[str, Any]]) -> RowParcel:
        """Other events under the same numbers."""
        return self._like(rows, self._seqs)

    def _like(self, rows: Iterable[Mapping[str, Any]], seqs: Sequence[int]) -> RowParcel:
        shape = getattr(self, "shape", None)  # only events that came as values have one
        return RowParcel(
            self.publisher, rows, seqs=seqs, source=self.source, epoch=self.epoch, shape=shape
        )

    def __repr__(self) -> str:
        return f"RowParcel({self.publisher!r}, {self._seqs})"
