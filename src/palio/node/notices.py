"""`Notice`: what stands for durable events that a journal cannot give back.

It goes where they would have gone, as a parcel of one row: it is carried, kept on disks and handed
over like an event, and each durable subscription that it concerns is told of a gap, which it
acknowledges. No client can publish one, since its columns begin with `$`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from palio.model.events import SEQ, TIME, TIMESTAMP
from palio.model.parcels import Parcel, Shape
from palio.protocol.messages import Gap

__all__ = ["ANYBODY", "Notice"]

ANYBODY: Final = "*"
"""The publisher of a gap of which nobody knows whose events were lost, nor how many."""

_LAST: Final = "$last_seq"
_EVENTS: Final = "$events"
_WHOSE: Final = "$whose"

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field(SEQ, pa.int64()),
    pa.field(TIME, TIMESTAMP),
    pa.field(_LAST, pa.int64()),
    pa.field(_EVENTS, pa.int64()),
    pa.field(_WHOSE, pa.utf8()),
]

_SHAPE: Final = Shape(pa.schema(_FIELDS))

_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Notice(NamedTuple):
    """Lost are some events of a publisher, or of `ANYBODY`.

    >>> notice = Notice("ann/1", 7, 9, 2, ("bob/prices",))
    >>> Notice.of(notice.parcel) == notice, Notice.of(Parcel("ann/1", pa.record_batch({"x": [1]})))
    (True, None)
    """

    publisher: str
    first_seq: int
    last_seq: int
    events: int
    whose: tuple[str, ...]
    """Durable subscriptions that may have lost them, and brokers whose all may have."""

    @classmethod
    def of(cls, parcel: Parcel) -> Notice | None:
        """The notice that a parcel is; None if it is events. `ValueError` if it is a broken one."""
        if parcel.shape.names != _SHAPE.names:
            return None
        row = parcel.rows[0] if len(parcel) == 1 else {}
        if parcel.shape != _SHAPE or len(row) != len(_SHAPE.names):
            raise ValueError("a notice of lost events has one row, and all of its values")
        first, last, events = row[SEQ], row[_LAST], row[_EVENTS]
        if not 0 <= first <= last or not 0 <= events <= last - first + 1:
            raise ValueError(f"a notice that {events} events were lost of {first} to {last}")
        try:
            whose = msgspec.json.decode(row[_WHOSE], type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise ValueError(f"a notice of lost events for nobody: {error}") from None
        return cls(parcel.publisher, first, last, events, whose)

    @property
    def parcel(self) -> Parcel:
        """The notice on its way."""
        whose = msgspec.json.encode(self.whose).decode()
        values = (self.first_seq, _NO_TIME, self.last_seq, self.events, whose)
        return Parcel.lone(self.publisher, _SHAPE, values)

    def without(self, done: Collection[str], gone: Iterable[str]) -> Notice:
        """The notice for those who have not heard of it, and for durable subscriptions elsewhere.

        >>> Notice(ANYBODY, 0, 0, 0, ("b1", "b2")).without({"b1"}, ["bob/prices"]).whose
        ('b2', 'bob/prices')
        """
        left = (each for each in self.whose if each not in done)
        return self._replace(whose=tuple(dict.fromkeys((*left, *gone))))

    def gap(self, key: int) -> Gap:
        """As the durable subscription of this key is told of it."""
        return Gap(self.publisher, self.first_seq, self.last_seq, self.events, key)
