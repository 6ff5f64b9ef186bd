"""The streaming source: a durable subscription as a stream of Spark, read again as often as asked.

The broker numbers the entries in its custody and gives each again until it is acknowledged. These
numbers are the offsets, and they are kept nowhere but in Spark's checkpoint:

1. `latestOffset` never waits for new events: it queries the broker for its backlog, receives that,
   and returns the last entry's number. It is passed the query's present offset, from Spark's log of
   finished batches; entries up to it are acked, and never needed again.
2. `partitions` returns the events themselves. After a restart Spark requests the unfinished batch
   by the same two offsets. Its entries were not acked, so the broker redelivers them, with the very
   rows they had.
3. `commit` acks.

A broker sends no more than its window (`WINDOW_BYTES`) of unacked entries, so a batch is smaller
than that, and nothing has to be put on disk here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from palio.errors import InvalidInput, PalioError, Unreachable
from palio.model.events import PUBLISHER, SEQ, TIME
from palio.model.masks import unpack_mask
from palio.protocol.limits import WINDOW_BYTES
from palio.protocol.messages import Deliver, Gaps, Query, Subscribe
from palio.protocol.names import check_name
from palio.spark.attributes import arrow_schema, reshaped
from palio.spark.connection import Connection
from palio.spark.options import Address, BrokerOptions, Seconds, bindings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY: Final = 1

BATCH_BYTES: Final = WINDOW_BYTES // 2
"""Entries of one batch, unless it is a single one. A broker that has restarted reckons the sizes of
entries a little otherwise; half of its window it gives again in any case."""

SAMPLE_ENTRIES: Final = 100
"""Entries whose columns are looked at where no schema is given."""


class StreamOptions(BrokerOptions, frozen=True, kw_only=True):
    """The options of a stream: the broker, the subscription, the pace."""

    client: str = "spark"
    durable: Address
    filter: str = "TRUE"
    param: dict[str, str] = msgspec.field(default_factory=dict)
    lease: Seconds = 0.0
    max_events_per_batch: Annotated[int, Meta(ge=0)] = 0
    """0 for what there is."""
    partitions: Annotated[int, Meta(ge=1)] = 1
    fail_on_data_loss: bool = True
    mode: Literal["failfast", "permissive"] = "failfast"

    @property
    def subscription(self) -> Subscribe:
        """The subscription to ask the broker for."""
        check_name(self.durable, "option 'durable': a durable subscription")
        values = bindings(self.filter, self.param)
        return Subscribe(0, KEY, self.filter, values, self.durable, self.lease)


class ReceivedEntry(NamedTuple):
    """Events that the broker gave for one acknowledgement."""

    publisher: str
    batch: pa.RecordBatch
    size: int
    """Bytes that the whole entry takes in the broker's window, with rows of other subscriptions."""


class OpenEntries:
    """Entries that came and are not acknowledged, in order of their numbers."""

    def __init__(self, source: StreamOptions) -> None:
        self.source = source
        self._login = source.login("client")
        self._subscription = source.subscription
        self.held: dict[int, ReceivedEntry] = {}
        self.last = 0
        """The last entry that waited when some were taken."""
        self._connection: Connection | None = None
        self._acknowledged = 0

    @property
    def broker(self) -> str:
        """The name of the broker at the other end."""
        return self._connected().broker

    def receive(self, through: int = 0) -> None:
        """Take in all that waits, as far as a batch goes, and at least through some entry.

        A broker sends deliveries when its windows allow it, before or after its other messages:
        so it is asked which entry is the last, and they are taken up to that one. One that it
        cannot read any more comes without events, after the gap for it.
        """
        connection = self._connected()
        self.last = connection.ask(Query(0, "waiting", KEY))["last"]
        until = monotonic() + self.source.timeout
        size = sum(entry.size for entry in self.held.values())
        while (newest := max(self.held, default=0)) < self.last:
            if self.held and size >= BATCH_BYTES and newest >= through:
                return
            message = connection.receive(until - monotonic())
            if message is None:
                raise Unreachable(
                    f"{self.source.url} reported entry {self.last}, and did not deliver "
                    f"it within {self.source.timeout:g} s"
                )
            size += self._receive_one(connection, message)

    def check(self, number: int) -> None:
        """Check that the last entry of a batch was redelivered, and so those before it."""
        if number not in self.held:
            raise InvalidInput(
                f"the durable subscription {self.source.durable!r} at {self.broker} does not give "
                f"entry {number} again, which this query was working on; it was taken by somebody "
                "else, or its lease is over. Start with a new checkpoint to continue without it"
            )

    def release(self, number: int) -> None:
        """Ack entries of batches that are in Spark's log of finished ones."""
        if number <= self._acknowledged:
            return
        self.held = {entry: held for entry, held in self.held.items() if entry > number}
        self._acknowledged = number
        self._connected().acknowledge(KEY, number)

    def close(self) -> None:
        """Close the connection; entries held here are redelivered."""
        connection, self._connection = self._connection, None
        self.held.clear()
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        """Return the connection, opened at the first use, with the entries to redeliver."""
        if self._connection is None:
            connection = Connection(self._login, timeout_s=self.source.timeout)
            try:
                connection.ask(self._subscription)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _receive_one(self, connection: Connection, message: Deliver | Gaps) -> int:
        """Process a message; return the bytes that it adds to those held."""
        match message:
            case Deliver(entry=entry) if entry <= self._acknowledged:
                connection.acknowledge(KEY, self._acknowledged)
            case Deliver(parcel, rows, entry=entry) if entry not in self.held:
                chosen = parcel.select(unpack_mask(rows, len(parcel)))
                self.held[entry] = ReceivedEntry(parcel.publisher, chosen.batch, parcel.nbytes)
                return parcel.nbytes
            case Gaps(gaps) if self.source.fail_on_data_loss and any(
                gap.key == KEY for gap in gaps
            ):
                lost = sum(gap.count for gap in gaps if gap.key == KEY)
                raise PalioError(
                    f"the durable subscription {self.source.durable!r} lost "
                    f"{lost or 'an unknown number of'} events at {self.broker}; continue without "
                    "them with option('failOnDataLoss', false)"
                )
        return 0


@dataclass(frozen=True)
class EntryShare(InputPartition):
    """Events of a batch for one task, in the schema of the query."""

    batches: tuple[bytes, ...]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a durable subscription.

    With `availableNow` it stops at what waited when it began.
    """

    def __init__(self, source: StreamOptions, schema: StructType) -> None:
        self.source = source
        self.schema = schema
        self.entries = OpenEntries(source)
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Before everything that waits."""
        self.entries.receive()
        return {"broker": self.entries.broker, "entry": 0}

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """The end of what may be read from `start`; entries are not divided."""
        self.entries.receive()
        self._check_broker(start)
        self.entries.release(start["entry"])
        self.entries.receive()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sys.maxsize
        end, rows, size = start["entry"], 0, 0
        for number, entry in self.entries.held.items():
            rows += entry.batch.num_rows
            size += entry.size
            is_full = (rows > most or size > BATCH_BYTES) and end > start["entry"]
            if is_full or (self._last is not None and number > self._last):
                break
            end = number
        return {"broker": start["broker"], "entry": end}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """`maxEventsPerBatch`, if it was given."""
        most = self.source.max_events_per_batch
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Read only the events that wait now."""
        self.entries.receive()
        self._last = self.entries.last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The events between two offsets, dealt out to tasks in order."""
        self.entries.receive()
        self._check_broker(end)
        first, last = start["entry"], end["entry"]
        self.entries.release(first)
        self.entries.receive(through=last)
        if last > first:
            self.entries.check(last)
        chosen = [
            self._shaped(entry)
            for number, entry in self.entries.held.items()
            if first < number <= last
        ]
        return [EntryShare(tuple(share)) for share in _shares(chosen, self.source.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a portion."""
        assert isinstance(partition, EntryShare)
        for batch in partition.batches:
            yield pa.ipc.read_record_batch(pa.py_buffer(batch), self._target)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to an offset is done."""
        self.entries.release(end["entry"])

    def stop(self) -> None:
        """The query has ended."""
        self.entries.close()

    @cached_property
    def _target(self) -> pa.Schema:
        return arrow_schema(self.schema)

    def _shaped(self, entry: ReceivedEntry) -> bytes:
        batch = entry.batch
        if PUBLISHER in self._target.names:
            batch = batch.append_column(PUBLISHER, pa.repeat(entry.publisher, batch.num_rows))
        origin = f"publisher {entry.publisher!r}"
        shaped = reshaped(batch, self._target, origin, permissive=self.source.mode == "permissive")
        return bytes(shaped.serialize())

    def _check_broker(self, offset: dict[str, Any]) -> None:
        if offset["broker"] != self.entries.broker:
            raise InvalidInput(
                f"this checkpoint has read from the broker {offset['broker']!r}, and "
                f"{self.source.url} is {self.entries.broker!r}, which numbers its entries "
                "otherwise; go back to that broker, or start with a new checkpoint"
            )


def _shares(batches: list[bytes], count: int) -> list[list[bytes]]:
    """Runs of about equal bytes, in order; no more than there are batches, and at least one."""
    total = sum(map(len, batches))
    shares: list[list[bytes]] = [[]]
    size = 0
    for batch in batches:
        if shares[-1] and size >= total * len(shares) / count:
            shares.append([])
        shares[-1].append(batch)
        size += len(batch)
    return shares


def events_schema(source: StreamOptions) -> StructType:
    """Return the columns of a durable subscription's backlog, which stays there."""
    from pyspark.sql.pandas.types import from_arrow_schema

    entries = OpenEntries(source)
    try:
        entries.receive()
        held = islice(entries.held.values(), SAMPLE_ENTRIES)
        schemas = [entry.batch.schema for entry in held]
    finally:
        entries.close()
    columns: dict[str, pa.DataType] = {}
    for schema in schemas:
        for field in schema:
            if columns.setdefault(field.name, field.type) != field.type:
                raise InvalidInput(
                    f"attribute {field.name!r} is {columns[field.name]} in some events and "
                    f"{field.type} in others; choose a type with .schema(...)"
                )
    if not columns:
        raise InvalidInput(
            f"no events wait for the durable subscription {source.durable!r} from which their "
            "columns could be read; give them with .schema(...)"
        )
    system = {name: columns.pop(name) for name in (SEQ, TIME)}
    columns[PUBLISHER] = pa.utf8()
    return from_arrow_schema(pa.schema([*columns.items(), *system.items()]))
