"""The data pipeline against its bars, with every baseline in the same run.

    python -m benchmarks.spark                   200,000 events, about five minutes
    python -m benchmarks.spark --full            2,000,000 events, a million subscriptions
    python -m benchmarks.spark --only counts     one part: counts, pairs, million, stream

Prints a table and JSON. Events have 30 integer columns. Range subscriptions are three intervals of
a tenth each, so that one in a thousand matches. Rates are medians of runs in turns with their
baseline, wall time, on all cores that there are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import palio.spark
from benchmarks.spark_streaming import Stream, measure
from benchmarks.workloads import Workload, tell, workload
from palio.matching import Index
from palio.spark.compiling import CompiledSubscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from palio.spark.sets import SubscriptionSet

SEED: Final = 1
COLUMNS: Final = 30
VALUES: Final = 1000
WIDTH: Final = 100
ROUNDS: Final = 3
EVENTS_PER_S: Final = 2_000.0
"""What the source of the stream gives: little enough that latency is not a matter of queues."""

JOINED_PAIRS: Final = 40_000_000
"""Pairs of event and subscription that the nested loop is measured on; its cost is linear."""


class Size(NamedTuple):
    events: int
    ranges: tuple[int, ...]
    million: int


QUICK: Final = Size(200_000, (10_000,), 100_000)
FULL: Final = Size(2_000_000, (10_000, 100_000), 1_000_000)


class Bar(NamedTuple):
    number: int
    what: str
    target: float
    measured: float
    unit: str
    at_least: bool

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target


# --- data ---


def write_events(path: Path, events: int) -> None:
    rng = np.random.default_rng(SEED)
    names = [f"a{at:02}" for at in range(COLUMNS)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in names)])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, events, 100_000):
            count = min(100_000, events - first)
            drawn = rng.integers(0, VALUES, (COLUMNS, count))
            ids = pa.array(np.arange(first, first + count))
            writer.write_table(pa.Table.from_arrays([ids, *map(pa.array, drawn)], schema=schema))


class Ranges(NamedTuple):
    """Subscriptions to three neighbouring columns, each between `low` and `low + WIDTH - 1`."""

    firsts: Any
    lows: Any

    @classmethod
    def drawn(cls, count: int) -> Ranges:
        rng = np.random.default_rng(SEED + 1)
        return cls(rng.integers(0, COLUMNS, count), rng.integers(0, VALUES - WIDTH + 1, (count, 3)))

    def texts(self) -> list[str]:
        return [
            " AND ".join(
                f"a{(first + at) % COLUMNS:02} BETWEEN {low} AND {low + WIDTH - 1}"
                for at, low in enumerate(lows)
            )
            for first, lows in zip(self.firsts.tolist(), self.lows.tolist(), strict=True)
        ]

    def bounds(self) -> pa.Table:
        """The same as columns of bounds, for the nested loop."""
        count = len(self.firsts)
        low = np.zeros((COLUMNS, count), np.int64)
        high = np.full((COLUMNS, count), VALUES)
        for at in range(3):
            place = ((self.firsts + at) % COLUMNS, np.arange(count))
            low[place] = self.lows[:, at]
            high[place] = self.lows[:, at] + WIDTH - 1
        columns = {"subscription": np.arange(count)}
        for at in range(COLUMNS):
            columns |= {f"low{at:02}": low[at], f"high{at:02}": high[at]}
        return pa.table(columns)


# --- baselines ---


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def only_read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The kernel that does nothing: events are read, and their number is given."""
    yield pa.record_batch({"n": [sum(batch.num_rows for batch in batches)]})


def read_only(path: Path, spark: SparkSession) -> DataFrame:
    """Paths to the workers, Parquet read there with the columns that filters name, nothing done."""
    from pyspark.sql.types import LongType, StructType

    from palio.spark.events import ParquetEvents

    source = ParquetEvents(path, spark)
    layout = source.layout([name for name in source.columns if name != "id"], [])
    return source.run(only_read, layout, StructType().add("n", LongType()))


def nested_loop(path: Path, spark: SparkSession, ranges: Ranges, events: int) -> DataFrame:
    """What one would write in SQL: a broadcast join on all bounds, then counts."""
    from pyspark.sql import functions

    few = spark.read.parquet(str(path)).limit(events).repartition(os.cpu_count() or 1).cache()
    few.count()
    bounds = functions.broadcast(spark.createDataFrame(ranges.bounds()).cache())
    condition = " AND ".join(
        f"a{at:02} BETWEEN low{at:02} AND high{at:02}" for at in range(COLUMNS)
    )
    return few.join(bounds, functions.expr(condition)).groupBy("subscription").count()


# --- measuring ---


def seconds(job: Callable[[], Any]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def in_turns(*jobs: Callable[[], Any]) -> list[float]:
    """The median time of each job, run in turns after a first round that is not counted."""
    rounds = [[seconds(job) for job in jobs] for _ in range(ROUNDS + 1)][1:]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def compiled(count: int, texts: list[str], home: Path) -> tuple[SubscriptionSet, float]:
    start = time.perf_counter()
    table = pa.table({"id": np.arange(count), "filter": texts})
    found = palio.spark.subscriptions(table, home)
    return found, time.perf_counter() - start


def from_columns(load: Workload, home: Path) -> SubscriptionSet:
    """A set whose filters are taken from columns: as texts they would be as many shapes as rows."""

    def compile_rows(table: pa.Table, rows: Any, _: str | None = None) -> CompiledSubscriptions:
        assert len(table) == len(rows)
        engine = Index()
        engine.add_many(rows, load.skeleton, load.columns)
        return CompiledSubscriptions(engine, load.skeleton.attributes, [])

    table = pa.table({"id": np.arange(load.filters), "filter": pa.repeat("TRUE", load.filters)})
    with patch("palio.spark.versions.compile_rows", compile_rows):
        return palio.spark.subscriptions(table, home, shards=1)


def counts(spark: SparkSession, size: Size, home: Path, facts: dict[str, float]) -> list[Bar]:
    """Bar 1: Parquet to counts against the identity kernel and the nested loop."""
    events = home / "events.parquet"
    bars = []
    for count in size.ranges:
        ranges = Ranges.drawn(count)
        tell(f"{count:,} range subscriptions: compiling")
        standing, built = compiled(count, ranges.texts(), home / f"ranges{count}")
        tell("counts against the identity kernel")
        read, matched = in_turns(
            lambda: noop(read_only(events, spark)),
            lambda standing=standing: noop(palio.spark.match(events, standing, "count")),  # type: ignore[misc]  # mypy does not infer a lambda with a default
        )
        few = max(100, min(size.events, JOINED_PAIRS // count))
        tell(f"nested loop on {few:,} events")
        job = nested_loop(events, spark, ranges, few)
        joined = in_turns(lambda job=job: job.collect())[0]  # type: ignore[misc]  # likewise
        oracle = {row.subscription: row["count"] for row in job.collect()}
        check_equal(spark, events, standing, few, oracle)
        name = f"counts, {count:,} range subscriptions"
        facts |= {
            f"{name}: compiled from text, s": built,
            f"{name}: identity kernel, events/s": size.events / read,
            f"{name}: match, events/s": size.events / matched,
            f"{name}: nested loop, events/s": few / joined,
        }
        if count <= 10_000:
            bars.append(Bar(1, f"{name}: share of identity", 0.5, read / matched, "", True))
        times = (size.events / matched) / (few / joined)
        target = 300.0 if count <= 10_000 else 500.0
        bars.append(Bar(1, f"{name}: against the nested loop", target, times, "times", True))
    return bars


def check_equal(
    spark: SparkSession, path: Path, standing: SubscriptionSet, few: int, oracle: dict[int, int]
) -> None:
    """The same events by both give the same counts (bar 5)."""
    frame = spark.read.parquet(str(path)).limit(few)
    found = palio.spark.match(frame, standing, "count").collect()
    assert {row.subscription: row["count"] for row in found} == oracle


def pairs(spark: SparkSession, size: Size, home: Path, facts: dict[str, float]) -> list[Bar]:
    """Bar 2: DataFrame in, pairs out, against identity over the same columns."""
    count = size.ranges[0]
    standing, _ = compiled(count, Ranges.drawn(count).texts(), home / f"ranges{count}")
    frame = spark.read.parquet(str(home / "events.parquet"))
    tell("pairs against the identity of mapInArrow")
    through, matched = in_turns(
        lambda: noop(frame.mapInArrow(identity, frame.schema)),
        lambda: noop(palio.spark.match(frame, standing, columns=["id"])),
    )
    name = f"pairs, {count:,} range subscriptions"
    facts |= {
        f"{name}: identity, events/s": size.events / through,
        f"{name}: match, events/s": size.events / matched,
    }
    return [Bar(2, f"{name}: share of identity", 0.6, through / matched, "", True)]


def stream(spark: SparkSession, size: Size, home: Path, facts: dict[str, float]) -> list[Bar]:
    """Bar 3: from source to sink with and without a match, and subscriptions replaced meanwhile."""
    count = size.ranges[0]
    tell("streams with a match and without, in turns")
    given = Stream(COLUMNS, VALUES, EVENTS_PER_S)
    ratio, late, more = measure(spark, given, Ranges.drawn(count).texts(), home)
    name = f"stream, {count:,} range subscriptions"
    facts |= {f"{name}: events/s": EVENTS_PER_S, **more}
    return [
        Bar(3, f"{name}: p50, of that without", 1.3, ratio, "times", False),
        Bar(3, f"{name}: micro-batches late to new ones", 0, late, "", False),
    ]


def million(spark: SparkSession, size: Size, home: Path, facts: dict[str, float]) -> list[Bar]:
    """Bars 1 and 4: counts of many podc10 subscriptions, and what a worker holds of them."""
    load = workload("podc10", size.million)
    events = home / "podc.parquet"
    rng = np.random.default_rng(SEED)
    with pq.ParquetWriter(events, load.events.schema) as writer:
        for first in range(0, size.events, 100_000):
            drawn = rng.integers(0, 10, (COLUMNS, min(100_000, size.events - first)))
            writer.write_table(pa.table(list(map(pa.array, drawn)), load.events.schema.names))
    tell(f"{size.million:,} podc10 subscriptions: compiling")
    start = time.perf_counter()
    standing = from_columns(load, home / "podc")
    built = time.perf_counter() - start
    del load
    tell("counts")
    spark.range(1).mapInArrow(identity, "id long").count()  # workers are there
    taken = seconds(lambda: noop(palio.spark.match(events, standing, "count")))
    name = f"{size.million:,} podc10 subscriptions"
    tell("memory of one worker")
    held, opened, mapped = worker_cost(standing)
    facts |= {
        f"{name}: compiled from columns, s": built,
        f"{name}: counts, events/s": size.events / taken,
        f"{name}: files, MB": mapped,
    }
    return [
        Bar(1, f"{name}: counts of {size.events:,} events", 120.0, taken, "s", False),
        Bar(4, f"{name}: a worker's own memory", 150.0, held, "MB", False),
        Bar(4, f"{name}: mapped by a new worker", 0.5, opened, "s", False),
    ]


_WORKER: Final = """
import json, sys, time
from pathlib import Path
import numpy as np, pyarrow as pa
from palio.matching import warming
from palio.spark.workers import _shard, mapped

def own():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024

warming.warm()
home = Path(sys.argv[1])
before, start = own(), time.perf_counter()
version = mapped(home)
shards = [_shard(version, number, 100) for number in range(version.meta.shards)]
opened = time.perf_counter() - start
rng = np.random.default_rng(2)
for _ in range(4):
    batch = pa.record_batch({f"a{at:02}": rng.integers(0, 10, 10_000) for at in range(30)})
    for index in shards:
        index.match(batch)
size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) / 2**20
print(json.dumps([own() - before, opened, size]))
"""


def worker_cost(standing: SubscriptionSet) -> tuple[float, float, float]:
    """MB that a fresh process has of its own once it matches, seconds to map, MB of files."""
    home = standing.path / "versions" / standing.version
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, str(home)], check=True, capture_output=True, text=True
    )
    held, opened, size = json.loads(done.stdout)
    return held, opened, size


PARTS: Final = {"counts": counts, "pairs": pairs, "stream": stream, "million": million}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--full", action="store_true", help="2,000,000 events")
    parser.add_argument("--events", type=int, help="another number of events")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    given = parser.parse_args()
    size = FULL if given.full else QUICK
    if given.events:
        size = size._replace(events=given.events)
    spark = palio.spark.session(
        spark_ui_showConsoleProgress=False, spark_driver_memory="4g", spark_log_level="ERROR"
    )
    facts: dict[str, float] = {"events": size.events, "load average": os.getloadavg()[0]}
    bars: list[Bar] = []
    try:
        with tempfile.TemporaryDirectory() as scratch:
            home = Path(scratch)
            tell(f"writing {size.events:,} events")
            write_events(home / "events.parquet", size.events)
            for name, part in PARTS.items():
                if given.only in (None, name):
                    bars += part(spark, size, home, facts)
    finally:
        palio.spark.stop(spark)
    if not given.json:
        print("| bar | what | target | measured | |\n|---|---|---|---|---|")
        for bar in bars:
            sign = ">=" if bar.at_least else "<="
            verdict = "met" if bar.met else "missed"
            print(
                f"| {bar.number} | {bar.what} | {sign} {bar.target:g} {bar.unit} "
                f"| {bar.measured:,.3g} | {verdict} |"
            )
        print()
    print(json.dumps({"bars": [bar._asdict() for bar in bars], "facts": facts}, indent=1))


if __name__ == "__main__":
    main()
