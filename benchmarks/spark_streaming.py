"""A stream from a source to a sink in Python, with a match in between and without.

The source gives events at a fixed rate, in blocks that say when they were due; the sink notes, when
a micro-batch is done, how long ago that was. Both are part of `benchmarks.spark`.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

import palio.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from palio.spark.sets import SubscriptionSet

BLOCK: Final = 500
"""Events that are due together."""

TASKS: Final = 2

WARM_BATCHES: Final = 5
"""Micro-batches of each run that are not counted..."""

BATCHES: Final = 12
"""...and those that are."""

ROUNDS: Final = 7
"""Short runs in turns: each ratio is one of neighbours, under the same load."""

PATIENCE_S: Final = 300.0


# --- the source and the sink ---


@dataclass(frozen=True)
class Blocks(InputPartition):
    first: int
    last: int


class Clocked(DataSourceStreamReader):
    def __init__(self, columns: int, values: int, rate: float) -> None:
        self.columns = columns
        self.values = values
        self.rate = rate

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        return {"block": self._due()}

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        del limit
        return {"block": max(start["block"], self._due())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        edges = np.linspace(start["block"], end["block"], TASKS + 1).astype(int).tolist()
        return [Blocks(first, last) for first, last in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Blocks)
        rng = np.random.default_rng(partition.first)
        names = ["due", *(f"a{at:02}" for at in range(self.columns))]
        for block in range(partition.first, partition.last):
            due = pa.array(np.full(BLOCK, block * BLOCK / self.rate))
            drawn = rng.integers(0, self.values, (self.columns, BLOCK))
            yield pa.RecordBatch.from_arrays([due, *map(pa.array, drawn)], names)

    def _due(self) -> int:
        return int(time.time() * self.rate / BLOCK)


@dataclass
class Noted(WriterCommitMessage):
    due: list[float]
    counts: list[int]
    subscriptions: tuple[int, int] | None
    """The least and the greatest id."""


class Noting(DataSourceStreamArrowWriter):
    def __init__(self, path: str) -> None:
        self.path = path

    def write(  # type: ignore[override]  # as pyspark's own writers of Arrow do
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Noted:
        due, counts, ids = [], [], []
        for batch in iterator:
            found, count = np.unique(batch.column("due").to_numpy(), return_counts=True)
            due += found.tolist()
            counts += count.tolist()
            if batch.num_rows and "subscription" in batch.schema.names:
                seen = batch.column("subscription").to_numpy()
                ids += [int(seen.min()), int(seen.max())]
        return Noted(due, counts, (min(ids), max(ids)) if ids else None)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's name
    ) -> None:
        now = time.time()
        noted = [each for each in messages if isinstance(each, Noted)]
        ids = [each for note in noted for each in note.subscriptions or ()]
        line = {
            "batch": batchId,
            "latency": [now - due for note in noted for due in note.due],
            "counts": [count for note in noted for count in note.counts],
            "ids": [min(ids), max(ids)] if ids else None,
        }
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Nothing was noted."""


class Clock(DataSource):
    """Options: `columns`, `values` and `rate` of the source, `path` of the sink."""

    @classmethod
    def name(cls) -> str:
        return "clock"

    def schema(self) -> str:
        names = [f"a{at:02} BIGINT" for at in range(int(self.options["columns"]))]
        return ", ".join(["due DOUBLE", *names])

    def streamReader(self, schema: StructType) -> Clocked:  # noqa: N802  # Spark's name
        del schema
        options = self.options
        return Clocked(int(options["columns"]), int(options["values"]), float(options["rate"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Noting:  # noqa: N802  # Spark's name
        del schema, overwrite
        return Noting(self.options["path"])


# --- measuring ---


class Stream(NamedTuple):
    """What the stream of a benchmark is like."""

    columns: int
    values: int
    rate: float


class Cost(NamedTuple):
    """What one run came to, each a median or a mean of the micro-batches that are counted."""

    p50_ms: float
    """From when an event was due to when it was written."""
    micro_batch_ms: float
    processor_ms: float
    """Of the JVM and all its workers for a micro-batch, which other programs do not change much."""


class Measured(NamedTuple):
    """What the stream came to."""

    ratio: float
    """The latency with a match to that without: the median over rounds, of medians over events."""
    late: int
    """Micro-batches that began when other subscriptions were in force, and had the old ones."""
    facts: dict[str, float]


def measure(spark: SparkSession, stream: Stream, texts: Sequence[str], home: Path) -> Measured:
    """Latencies in turns; in the last run the subscriptions are replaced while it goes on."""
    spark.dataSource.register(Clock)
    standing = palio.spark.subscriptions(_numbered(texts, 0), home / "standing")
    runs: dict[str, list[Cost]] = {"without": [], "matched": []}
    for number in range(ROUNDS):
        for name, costs in runs.items():
            events = _events(spark, stream)
            frame = events.select("due", "a00")
            if name == "matched":
                frame = palio.spark.match(events, standing, columns=["due"])
            with _running(frame, home / f"{name}{number}") as run:
                costs.append(run.cost())
    late, facts = _swapped(spark, stream, texts, standing, home)
    for name, costs in runs.items():
        for what, values in zip(Cost._fields, zip(*costs, strict=True), strict=True):
            facts[f"stream, {name}: {what.replace('_', ' ')}"] = statistics.median(values)
    pairs = zip(*runs.values(), strict=True)
    ratio = statistics.median(after.p50_ms / before.p50_ms for before, after in pairs)
    return Measured(ratio, late, facts)


def _swapped(
    spark: SparkSession, stream: Stream, texts: Sequence[str], standing: SubscriptionSet, home: Path
) -> tuple[int, dict[str, float]]:
    """Replace all subscriptions under load; micro-batches begun later that have the old ones."""
    frame = palio.spark.match(_events(spark, stream), standing, columns=["due"])
    with _running(frame, home / "swapped") as run:
        run.await_batches(WARM_BATCHES)
        start = time.time()
        standing.refresh(_numbered(texts, len(texts)))
        swapped = time.time()
        run.await_batches(len(run.lines()) + 2 * WARM_BATCHES)
        began = run.began()
        late = 0
        for line in run.lines():
            if line["ids"] is None:
                continue
            is_old, is_new = line["ids"][0] < len(texts), line["ids"][1] >= len(texts)
            assert is_old != is_new, f"micro-batch {line['batch']} was matched with two versions"
            late += is_old and began.get(line["batch"], 0.0) > swapped
        assert line["ids"][1] >= len(texts)
        return late, {
            "stream, replaced: compiled under load, s": swapped - start,
            "stream, replaced: p50 ms": run.p50_ms(WARM_BATCHES),
        }


class _Run:
    def __init__(self, query: StreamingQuery, path: Path) -> None:
        self.query = query
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]

    def await_batches(self, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(self.lines()) < count:
            if self.query.awaitTermination(1) or time.monotonic() > until:
                raise RuntimeError(f"the stream ended or hangs: {self.query.exception()}")

    def cost(self) -> Cost:
        """What the micro-batches cost after the first few."""
        self.await_batches(WARM_BATCHES)
        first, before = len(self.lines()), _processor_ms()
        self.await_batches(first + BATCHES)
        processor = (_processor_ms() - before) / (len(self.lines()) - first)
        taken = [each["durationMs"]["triggerExecution"] for each in self._progress()[first:]]
        return Cost(self.p50_ms(first), float(statistics.median(taken)), processor)

    def p50_ms(self, first: int) -> float:
        """The median latency of events."""
        counted = self.lines()[first:]
        latency = [each for line in counted for each in line["latency"]]
        weights = [each for line in counted for each in line["counts"]]
        return 1000 * _weighted_median(latency, weights)

    def began(self) -> dict[int, float]:
        """When each micro-batch began."""
        return {
            each["batchId"]: datetime.fromisoformat(each["timestamp"]).timestamp()
            for each in self._progress()
            if each["numInputRows"]
        }

    def _progress(self) -> list[Any]:
        return [each for each in self.query.recentProgress if each["numInputRows"]]


@contextmanager
def _running(frame: DataFrame, home: Path) -> Iterator[_Run]:
    home.mkdir()
    path = home / "noted.jsonl"
    query = (
        frame.writeStream.format("clock")
        .option("path", str(path))
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    try:
        yield _Run(query, path)
    finally:
        query.stop()


def _events(spark: SparkSession, stream: Stream) -> DataFrame:
    reader = spark.readStream.format("clock")
    for name, value in stream._asdict().items():
        reader = reader.option(name, value)
    return reader.load()


def _numbered(texts: Sequence[str], first: int) -> pa.Table:
    return pa.table({"id": np.arange(first, first + len(texts)), "filter": list(texts)})


def _processor_ms() -> float:
    """Processor time of all processes that this one has started; 0 where there is no /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))  # with those of children that have ended

    def is_ours(process: int) -> bool:
        while process in parents and parents[process] != os.getpid():
            process = parents[process]
        return process in parents

    return 1000 * sum(ticks[each] for each in ticks if is_ours(each)) / os.sysconf("SC_CLK_TCK")


def _weighted_median(values: Sequence[float], weights: Sequence[int]) -> float:
    order = np.argsort(values)
    summed = np.cumsum(np.asarray(weights)[order])
    return float(np.asarray(values)[order][np.searchsorted(summed, summed[-1] / 2)])
