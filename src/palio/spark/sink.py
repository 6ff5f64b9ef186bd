"""The sink: a stream's rows as durable publications, each exactly once however often it is tried.

Tasks only encode; the driver publishes a batch when all of its tasks are done (`commit`), so what a
failed or a second attempt of a task has made is never published. Should the driver die in between,
Spark runs the batch again under its old number, and it is published again *under the same names and
numbers*, which the homes of durable subscriptions drop:

- the publisher is `name/query.part`, the query's id being in Spark's checkpoint;
- each batch has `PART_ROWS` numbers for itself, `(batch + 1) * PART_ROWS` and on, and a part is so
  many of its rows: those of all partitions, one after another, are divided so.

Homes remember just as many of the newest numbers of each publisher, and what is tried again is
always the newest. That the rows of the second run are those of the first, in their
order, is Spark's promise for sources that can be read again and for everything but what shuffles;
after a shuffle name the columns that order the rows (`orderBy`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from palio.errors import InvalidEvent, InvalidInput
from palio.model.events import is_system_name
from palio.protocol.dedup_window import BLOCK
from palio.protocol.limits import WINDOW_BLOCKS
from palio.spark.attributes import arrow_schema, attributes_of, column_at, fit
from palio.spark.connection import Connection
from palio.spark.options import BrokerOptions
from palio.spark.tasks import TaskPlace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PART_ROWS: Final = WINDOW_BLOCKS * BLOCK
"""Numbers of one publisher that homes remember."""

# --- what all sinks do ---


class Sender(Protocol):
    """Sends rows somewhere, where nothing is ever taken back."""

    def send(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> WriterCommitMessage:
        """The work of a task; what is returned goes to the driver."""

    def finish(self, reports: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """The work of the driver once all tasks are done."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the micro-batches of a stream."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    def write(  # type: ignore[override]  # as pyspark's own writers of Arrow do
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Called in each task."""
        return self.sender.send(iterator, TaskPlace.here())

    def commit(  # noqa: D102  # Spark's
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        self.sender.finish(messages, batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        """Nothing can be undone; what was sent has the same keys the next time."""


class BatchWriter(DataSourceArrowWriter):
    """Sends a static DataFrame, under a new name each time that it is written."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self._job = str(uuid4())

    def write(  # type: ignore[override]  # as pyspark's own writers of Arrow do
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Called in each task."""
        return self.sender.send(iterator, TaskPlace.here()._replace(query=self._job))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called once all tasks are done."""
        self.sender.finish(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be undone."""


class Encoding:
    """The work of a task: rows in, events in the model's types out."""

    def __init__(self, schema: StructType, order: tuple[str, ...] = ()) -> None:
        arrow = arrow_schema(schema)
        self.paths = {
            name: path for name, path in attributes_of(arrow).items() if not is_system_name(name)
        }
        _check_columns(arrow, self.paths, order)

    def events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The events of a batch."""
        arrays = [column_at(batch, path) for path in self.paths.values()]
        events, misfits = fit(pa.RecordBatch.from_arrays(arrays, list(self.paths)))
        for misfit in misfits:
            raise InvalidEvent(f"a row has no value for {misfit.attribute!r}: {misfit.reason}")
        return events


def _check_columns(
    schema: pa.Schema, paths: dict[str, tuple[str, ...]], order: tuple[str, ...]
) -> None:
    roots = {path[0] for path in paths.values()}
    for field in schema:
        if field.name not in roots and not is_system_name(field.name):
            raise InvalidInput(
                f"column {field.name!r} is {field.type}, which is no attribute; "
                "drop it, or turn it into a text with to_json"
            )
    for name in order:
        if name not in paths:
            raise InvalidInput(
                f"orderBy names {name!r}, which is no column; there are {', '.join(sorted(paths))}"
            )


# --- publishing ---


class PublishOptions(BrokerOptions, frozen=True, kw_only=True):
    """The options of publishing."""

    publisher: str = "spark"
    order_by: str = ""
    """Names of columns, with commas between them."""
    checkpoint_location: str = ""
    query_name: str = ""
    path: str = ""

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that rows are put in order by."""
        return tuple(name.strip() for name in self.order_by.split(",") if name.strip())


@dataclass
class TaskReport(WriterCommitMessage):
    """The report of a task: what it published."""

    query: str
    partition: int
    events: bytes
    """An Arrow stream."""


class Publisher:
    """Publishes what tasks have encoded (see `Sender`)."""

    def __init__(self, options: PublishOptions, schema: StructType) -> None:
        self.order = options.order
        self._login = options.login("publisher")
        self._timeout_s = options.timeout
        self._encoding = Encoding(schema, options.order)

    def send(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> TaskReport:
        """Encode the events of a partition."""
        events = [self._encoding.events(batch) for batch in batches if batch.num_rows]
        stream = pa.BufferOutputStream()
        if events:
            with pa.ipc.new_stream(stream, events[0].schema) as writer:
                for event in events:
                    writer.write_batch(event)
        return TaskReport(place.query, place.partition, stream.getvalue().to_pybytes())

    def finish(self, reports: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Publish the events of all partitions."""
        written = sorted(
            (report for report in reports if isinstance(report, TaskReport) and report.events),
            key=lambda report: report.partition,
        )
        if not written:
            return
        table = pa.concat_tables(pa.ipc.open_stream(report.events).read_all() for report in written)
        if self.order:
            table = table.sort_by([(name, "ascending") for name in self.order])
        for part, first, rows in numbered(table, batch):
            incarnation = f"{written[0].query}.{part}"
            connection = Connection(self._login, incarnation, timeout_s=self._timeout_s)
            try:
                connection.publish(rows.combine_chunks().to_batches(), first)
            finally:
                connection.close()


def numbered(table: pa.Table, batch: int) -> Iterator[tuple[int, int, pa.Table]]:
    """The rows of a batch in parts, each with its number and that of its first event.

    >>> table = pa.table({"x": range(PART_ROWS + 1)})
    >>> [(part, first // PART_ROWS, len(rows)) for part, first, rows in numbered(table, 2)]
    [(0, 3, 65536), (1, 3, 1)]
    """
    for part, start in enumerate(range(0, table.num_rows, PART_ROWS)):
        yield part, (batch + 1) * PART_ROWS, table.slice(start, PART_ROWS)
