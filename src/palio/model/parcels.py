"""`Parcel`: events on their way, as a record batch or, where there is one, as its bare values.

A batch costs a broker the same whether it has one row or a thousand, so an event that travels by
itself does so as a tuple of values beside its `Shape`, and is matched as a mapping. Columns are
made when `Parcel.batch` is asked for. Both forms mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from palio.engine import np, npt, pa
from palio.model.events import SEQ, STAMP_BYTES, RowMask, in_python, stamped, without_nulls
from palio.model.events import rows as rows_of
from palio.model.limits import MAX_LONE_BYTES
from palio.model.shapes import Shape
from palio.model.values import INT64_MAX

COPY_SHARE: Final = 4
"""Rows are copied where no more than one in this many is wanted; else their batch is kept."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_LONE_BYTES: Final = 256
"""About the bytes of memory that a single event takes beside its values and texts."""

_VALUE_BYTES: Final = 16
"""About the bytes of memory that one value takes."""

_BATCH_BYTES: Final = 256
"""About what a batch takes on the wire beside its columns."""

_COLUMN_BYTES: Final = 500
"""About what Arrow takes for a column, beside the values: measured, 5 KiB for a row of ten."""


def event_bytes(event: Mapping[str, Any]) -> int:
    """About the bytes of memory that a single event takes.

    >>> event_bytes({"x": 1, "text": "abc"})
    291
    """
    texts = sum(len(value) for value in event.values() if isinstance(value, str | bytes))
    return _LONE_BYTES + _VALUE_BYTES * len(event) + texts


class Parcel:
    """Events of one publisher in its order and of one shape, with their encoded form once it is
    made.

    At and after the publisher's own broker they have the system columns `$seq` and `$time`. It is
    what a router is asked about, and what travels between brokers and to subscribers.

    >>> shape = Shape(("x", "s"), (int, str))
    >>> lone = Parcel.lone("p", shape, (1, None))
    >>> lone.event, lone.batch.to_pylist()
    ({'x': 1}, [{'x': 1, 's': None}])
    """

    __slots__ = (
        "_batch",
        "_event",
        "_is_copy",
        "_payload",
        "count",
        "held_bytes",
        "nbytes",
        "publisher",
        "shape",
        "source",
        "values",
    )

    epoch: int = 0
    """Grows whenever the publisher restarts its numbers, in simulations. A node gives a publisher
    that does so another name.
    """

    def __init__(
        self,
        publisher: str,
        batch: pa.RecordBatch,
        payload: Any = None,
        shape: Shape | None = None,
        nbytes: int = 0,
    ) -> None:
        self.publisher = publisher
        self.source: str | None = None
        """The broker where the events were published, for routers that follow that."""
        self.shape = shape or Shape.of(batch.schema)
        self.values: tuple[Any, ...] | None = None
        """Those of the one event, in the order of its shape, if it came as such."""
        self.count = batch.num_rows
        """How many events there are."""
        if not nbytes:
            nbytes = batch.nbytes + _BATCH_BYTES if payload is None else payload.size
        self.nbytes = nbytes
        """About what it takes on the wire and in a queue. It never changes, so that what is added
        to an account is what is taken from it."""
        self.held_bytes = nbytes + _COLUMN_BYTES * len(self.shape.names)
        """About what it takes in memory; as constant as `nbytes`."""
        self._batch: pa.RecordBatch | None = batch
        self._payload = payload
        self._event: dict[str, Any] | None = None
        self._is_copy = False

    @classmethod
    def lone(
        cls, publisher: str, shape: Shape, values: tuple[Any, ...], text_bytes: int = -1
    ) -> Parcel:
        """One event as values that `fits` has seen; `text_bytes` is what its texts take, if that is
        known.
        """
        if text_bytes < 0:
            text_bytes = 0
            for place in shape.text_columns:
                text_bytes += len(values[place] or "")
        parcel = cls.__new__(cls)
        parcel.publisher = publisher
        parcel.source = None
        parcel.shape = shape
        parcel.values = values
        parcel.count = 1
        parcel.nbytes = _LONE_BYTES + _VALUE_BYTES * len(values) + text_bytes
        parcel.held_bytes = parcel.nbytes
        parcel._batch = parcel._payload = parcel._event = None
        parcel._is_copy = False
        return parcel

    @classmethod
    def of(cls, publisher: str, batch: pa.RecordBatch) -> Parcel:
        """A batch; if it has one row, not too large, the values of that."""
        if batch.num_rows == 1 and batch.nbytes <= MAX_LONE_BYTES:
            shape = Shape.of(batch.schema)
            with suppress(ValueError, OverflowError):  # a time that Python does not have
                values = tuple([in_python(column)[0] for column in batch.columns])
                if shape.fits(values):
                    return cls.lone(publisher, shape, values)
        return cls(publisher, batch)

    @property
    def batch(self) -> pa.RecordBatch:
        """The events as columns."""
        if self._batch is None and self.values is None:  # let go of, by `payload`
            return pa.ipc.read_record_batch(self._payload, self.shape.schema)
        if self._batch is None:
            assert self.values is not None
            schema = self.shape.schema
            arrays = [
                pa.array([value], kind)
                for value, kind in zip(self.values, schema.types, strict=True)
            ]
            self._batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return self._batch

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The events as columns, in order: one batch, as they are of one shape."""
        return [self.batch]

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """The events as mappings, absent attributes left out; made when asked for."""
        event = self.event
        return list(rows_of(self.batch)) if event is None else [event]

    @property
    def event(self) -> dict[str, Any] | None:
        """A single event as a mapping without its nulls, not to be changed; None for a batch."""
        event = self._event
        if event is None and self.values is not None:
            event = self._event = without_nulls(self.shape.names, self.values)
        return event

    @property
    def value_rows(self) -> Iterator[tuple[Any, ...]]:
        """The values of each event, in the order of the shape, None for an absent one."""
        return zip(*map(in_python, self.batch.columns), strict=True)

    @property
    def text_bytes(self) -> int:
        """About the bytes that the texts of a single event take."""
        assert self.values is not None, "it is a single event"
        return self.nbytes - _LONE_BYTES - _VALUE_BYTES * len(self.values)

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The `$seq` of each event."""
        if self.values is not None:
            return np.array(self.seqs, np.int64)
        numbers: npt.NDArray[np.int64] = self.batch.column(SEQ).to_numpy()
        return numbers

    @property
    def seqs(self) -> tuple[int, ...]:
        """The `$seq` of each event, as Python's integers."""
        if self.values is not None:
            return (self.values[self.shape.system_columns[0]],)
        return tuple(self.numbers.tolist())

    @property
    def payload(self) -> Any:
        """The batch as an Arrow message without its schema; made once, a buffer.

        Rows that were copied for one receiver are kept in this form only: it is the smaller one.
        """
        if self._payload is None:
            self._payload = self.batch.serialize()
            if self._is_copy:
                self._batch = None
        return self._payload

    def stamped(self, publisher: str, first_seq: int, time_us: int) -> Parcel:
        """Return the events as their broker forwards them: with publisher, numbers and time."""
        shape = self.shape.stamped
        if self.values is not None:
            time = _EPOCH + timedelta(microseconds=time_us)
            return Parcel.lone(publisher, shape, (*self.values, first_seq, time), self.text_bytes)
        # To add up the sizes of columns costs more than to add to the present size.
        nbytes = self.nbytes + STAMP_BYTES * self.count
        return Parcel(publisher, stamped(self.batch, first_seq, time_us), None, shape, nbytes)

    def select(self, mask: RowMask) -> Parcel:
        """The events of some rows; this very parcel if that is all of them."""
        if mask.all():
            return self
        copy = self.take(np.flatnonzero(mask))
        copy._is_copy = True
        return copy

    def slice(self, first: int, end: int) -> Parcel:
        """The events from one row to before another, copied: they do not keep the others."""
        return self.take(range(first, end))

    def take(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> Parcel:
        """The events of some rows, copied; this very parcel if that is all of them."""
        if len(rows) == self.count:
            return self
        indices = np.asarray(rows, np.int64)
        copy = Parcel(self.publisher, self.batch.take(indices), None, self.shape)
        copy.source = self.source
        return copy

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"Parcel({self.publisher!r}, {self.count} events)"


def worth_copying(wanted: int, rows: int) -> bool:
    """Decide whether to copy the wanted rows of a batch rather than to keep it with a mask.

    >>> worth_copying(2, rows=8), worth_copying(3, rows=8)
    (True, False)
    """
    return wanted * COPY_SHARE <= rows


def runs(numbers: Iterable[int], block: int = INT64_MAX) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges of neighbours, of which none crosses a multiple of `block`.

    >>> list(runs([1, 2, 3, 7])), list(runs([1, 2, 3], block=2))
    ([(1, 3), (7, 7)], [(1, 1), (2, 3)])
    """
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = number
        elif number != last + 1 or not number % block:
            yield first, last
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last
