"""A program that matches on a cluster, and tells what it has found.

    python cluster_job.py MASTER EVENTS SUBSCRIPTIONS HOME HOWS [HELD_UP ...]

EVENTS is a Parquet file, SUBSCRIPTIONS are JSON lines, HOWS kinds of answers between commas.
HOME/found.json becomes an object with the rows of each kind, from a DataFrame and from the path.
Then each kind in HELD_UP is asked for once more: every task says in HOME/KIND that it has begun,
and goes on when there is a file `go`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import palio.spark
from tests.spark.cluster import QUICK_JAVA, await_that

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 6

COUNTED = ("count", "sets")
"""Answers that have no columns of events."""


class Barrier:
    """An operator that passes everything on, once it is let go."""

    def __init__(self, home: str) -> None:
        self.home = home

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        home = Path(self.home)
        name = f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}"
        fresh = home / f"new-{name}-{os.getpid()}"
        fresh.write_text(str(Path.cwd()))  # a directory of its worker
        fresh.rename(home / f"begun-{name}-{os.getpid()}")
        await_that((home / "go").exists, "to be let go")
        yield from batches


def connected(master: str) -> SparkSession:
    """A session on a cluster all of whose processes are on this machine."""
    if master.startswith("sc://"):  # whose server has these settings
        return palio.spark.session(master)
    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.executor.memory": "512m",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.sql.adaptive.enabled": False,  # would make one task of a small shuffle
    }
    return palio.spark.session(master, **settings)


def rows(frame: DataFrame) -> list[list[Any]]:
    """All rows, in an order that does not depend on who was first."""
    return sorted(
        [sorted(cell) if isinstance(cell, list) else cell for cell in row]
        for row in frame.collect()
    )


def main(master: str, events: str, subscriptions: str, home: str, hows: str, *held_up: str) -> None:
    spark = connected(master)
    standing = palio.spark.subscriptions(subscriptions, Path(home, "set"), shards=2)
    frame = spark.read.parquet(events).repartition(PARTITIONS)
    found = {}
    for how in hows.split(","):
        columns = None if how in COUNTED else ["id"]
        found[how] = rows(palio.spark.match(frame, standing, how, columns))
        found[f"{how}, path"] = rows(palio.spark.match(events, standing, how, columns))
    for how in held_up:
        columns = None if how in COUNTED else ["id"]
        held = frame.mapInArrow(Barrier(str(Path(home, how))), frame.schema)
        found[f"{how}, held up"] = rows(palio.spark.match(held, standing, how, columns))
    Path(home, "found.json").write_text(json.dumps(found))
    palio.spark.stop(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
