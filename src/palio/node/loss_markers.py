"""`LossMarker`: stands in a queue for durable events that a journal lost.

It takes their path as a batch of one row: it is transferred, stored, handed over and deduplicated
like an event. Each durable subscription that it concerns receives a gap, which it acknowledges. No
client can publish one, since its columns begin with `$`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa

from palio.model.events import SEQ, TIME, timestamp_type
from palio.model.parcels import Parcel
from palio.model.shapes import Shape
from palio.node.effects import ANYBODY, Heading
from palio.protocol.limits import MAX_NUMBER, MAX_PUBLISHER_CHARS
from palio.protocol.messages import Deliver, Gap, Gaps

_PUBLISHER: Final = "$publisher"
_FIRST: Final = "$first_seq"
_LAST: Final = "$last_seq"
_EVENTS: Final = "$events"

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field(SEQ, pa.int64()),
    pa.field(TIME, timestamp_type()),
    pa.field(_PUBLISHER, pa.utf8()),
    pa.field(_FIRST, pa.int64()),
    pa.field(_LAST, pa.int64()),
    pa.field(_EVENTS, pa.int64()),
]

_SHAPE: Final = Shape.of(pa.schema(_FIELDS))

_NO_EVENTS: Final = pa.RecordBatch.from_arrays(  # of lists of values Arrow asks pandas
    [pa.nulls(0, pa.int64()), pa.nulls(0, timestamp_type())], names=[SEQ, TIME]
)

_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LossMarker(NamedTuple):
    """The loss of some events that a broker had under one of its entry numbers.

    >>> notice = LossMarker.at("b1", 12, Heading("ann/1", 7, 9, 0), 2)
    >>> (
    ...     LossMarker.of(notice.parcel) == notice,
    ...     LossMarker.of(Parcel("ann/1", pa.record_batch({"x": [1]}))),
    ... )
    (True, None)
    """

    source: str
    """The broker, and when it took the entry. With the entry's number that identifies the marker,
    even after the broker has lost its disk."""
    entry: int
    publisher: str
    """The publisher of the events; `ANYBODY` if that is unknown, and the other fields with it."""
    first_seq: int
    last_seq: int
    events: int

    @classmethod
    def at(cls, broker: str, entry: int, heading: Heading, events: int) -> LossMarker:
        """Return the marker for a broker's entry, of which at most the heading can be read."""
        publisher, first, last, wall_us = heading
        return cls(f"{broker} {wall_us}", entry, publisher, first, last, events)

    @classmethod
    def of(cls, parcel: Parcel) -> LossMarker | None:
        """Return the marker that a parcel is; None if it contains events, or is empty, as a hop has
        taken them out. `ValueError` if the marker is malformed.
        """
        if not len(parcel) or parcel.shape.names != _SHAPE.names:
            return None
        row = parcel.rows[0] if len(parcel) == 1 else {}
        if parcel.shape != _SHAPE or len(row) != len(_SHAPE.names):
            raise ValueError("a loss marker has one row, and all of its values")
        first, last, events = row[_FIRST], row[_LAST], row[_EVENTS]
        if not (0 <= first <= last <= MAX_NUMBER and 0 <= events <= last - first + 1):
            raise ValueError(f"a loss marker of {events} events within {first} to {last}")
        if len(row[_PUBLISHER]) > MAX_PUBLISHER_CHARS:
            raise ValueError("a loss marker whose publisher has too long a name")
        return cls(parcel.publisher, row[SEQ], row[_PUBLISHER], first, last, events)

    @property
    def parcel(self) -> Parcel:
        """The marker as it is transferred."""
        lost = (self.publisher, self.first_seq, self.last_seq, self.events)
        return Parcel.lone(self.source, _SHAPE, (self.entry, _NO_TIME, *lost))

    @property
    def anonymous(self) -> LossMarker:
        """The same for subscriptions that must not learn the publisher."""
        return self._replace(publisher=ANYBODY, first_seq=0, last_seq=0, events=0)

    def delivery_for(self, key: int, entry: int) -> tuple[Gaps, Deliver]:
        """Return the messages for a durable subscription: a gap, and an entry without events, whose
        acknowledgement confirms the gap.
        """
        gap = Gap(self.publisher, self.first_seq, self.last_seq, self.events, key)
        return Gaps((gap,)), Deliver(Parcel(self.publisher, _NO_EVENTS), None, key, entry)


def heading_of(parcel: Parcel, wall_us: int) -> Heading:
    """Return the heading of an entry whose events can no longer be read; an anonymous one for a
    marker.
    """
    names = parcel.shape.names
    if not len(parcel) or SEQ not in names or names == _SHAPE.names:
        return Heading(ANYBODY, 0, 0, wall_us)
    numbers = parcel.seqs
    return Heading(parcel.publisher, numbers[0], numbers[-1], wall_us)
