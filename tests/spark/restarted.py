"""A program that carries events from a broker through a match to the broker, and dies on the way.

    python restarted.py URL HOME [POINT TIMES]

HOME has `checkpoint`, `set`, and `subscriptions.jsonl`, which are put in force at each start. With
a point of `POINTS` the program, its JVM and its workers are killed by SIGKILL as they come there
for that many times in HOME/ticks; with the point `later` somebody else does it, and a line is
printed for each batch; without one the program ends when nothing waits any more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

import palio.spark
from palio.spark.sink import Sender, StreamWriter, TaskReport
from palio.spark.source import PalioDataSource
from palio.spark.streaming import StreamReader
from palio.spark.tasks import TaskPlace
from tests.spark.cluster import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition, WriterCommitMessage
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

POINTS: Final = (
    "offsets known",  # and not yet in the log of offsets
    "offsets logged",
    "partitions made",
    "reading",
    "matched",
    "encoding",
    "encoded",
    "publishing",
    "half published",
    "published",  # and not yet in the log of commits
    "acknowledging",
    "acknowledged",
)
"""Where a micro-batch can be, in their order."""

EVENTS_PER_BATCH: Final = 10


class Doom(NamedTuple):
    """Where to die, and whom to take along."""

    home: str
    point: str
    times: int
    group: int

    def comes_to(self, point: str) -> bool:
        """Count that a point was reached; whether it is the end."""
        if point != self.point:
            return False
        with Path(self.home, "ticks").open("ab") as ticks:
            ticks.write(b".")
            return ticks.tell() == self.times

    def at(self, point: str) -> None:
        """Die, if this is the end."""
        if self.comes_to(point):
            self.die()

    def die(self) -> None:
        """Spark's Python processes are in groups of their own; this one dies at once."""
        os.killpg(self.group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class DoomedReader(StreamReader):
    """The source, dying."""

    doom: Doom

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        found = super().latestOffset(start, limit)
        if found != start:
            self.doom.at("offsets known")
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.doom.at("offsets logged")
        found = super().partitions(start, end)
        self.doom.at("partitions made")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self.doom.at("reading")
        return super().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self.doom.at("acknowledging")
        super().commit(end)
        self.doom.at("acknowledged")


@dataclass
class DoomedSender:
    """The sink, dying."""

    inner: Sender
    doom: Doom

    def send(self, batches: Iterator[pa.RecordBatch], place: TaskPlace) -> WriterCommitMessage:
        self.doom.at("encoding")
        report = self.inner.send(batches, place)
        self.doom.at("encoded")
        return report

    def finish(self, reports: Sequence[WriterCommitMessage | None], batch: int) -> None:
        self.doom.at("publishing")
        if self.doom.comes_to("half published"):
            self.inner.finish([_half(each) for each in reports], batch)
            self.doom.die()
        self.inner.finish(reports, batch)
        self.doom.at("published")


def _half(written: Any) -> TaskReport:
    table = pa.ipc.open_stream(written.events).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.slice(0, table.num_rows // 2))
    return TaskReport(written.query, written.partition, sink.getvalue().to_pybytes())


def doomed(doom: Doom) -> type[PalioDataSource]:
    """The data source `palio`, with a source and a sink that die."""

    class Doomed(PalioDataSource):
        def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
            reader = DoomedReader(super().streamReader(schema).source, schema)
            reader.doom = doom
            return reader

        def streamWriter(  # noqa: N802  # Spark's name
            self, schema: StructType, overwrite: bool
        ) -> StreamWriter:
            sender = super().streamWriter(schema, overwrite).sender
            return StreamWriter(DoomedSender(sender, doom))

    return Doomed


@dataclass(frozen=True)
class Matched:
    """An operator behind the match, dying."""

    doom: Doom

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.doom.at("matched")
            yield batch


def main(url: str, home: str, point: str = "", times: str = "0") -> None:
    spark = palio.spark.session(
        "local[2]", spark_ui_showConsoleProgress=False, spark_driver_extraJavaOptions=QUICK_JAVA
    )
    doom = Doom(home, point, int(times), os.getpgrp())
    spark.dataSource.register(doomed(doom))
    standing = palio.spark.subscriptions(f"{home}/subscriptions.jsonl", f"{home}/set")
    reader = spark.readStream.format("palio").option("url", url).option("durable", "in")
    if point:
        reader = reader.option("maxEventsPerBatch", EVENTS_PER_BATCH)
    events = reader.option("filter", "y >= 0").schema("x BIGINT, y BIGINT").load()
    found = palio.spark.match(events, standing, columns=["x"])
    writer = found.mapInArrow(Matched(doom), found.schema).writeStream.format("palio")
    writer = writer.option("url", url).option("checkpointLocation", f"{home}/checkpoint")
    query = (writer if point else writer.trigger(availableNow=True)).start()
    last = -1
    while query.isActive:
        query.awaitTermination(1)
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > last:
            last = progress["batchId"]
            sys.stdout.write(f"{last}\n")
            sys.stdout.flush()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    palio.spark.stop(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
