"""From an archive to a backtest to a live stream, with the same filters throughout.

    python examples/quotes.py               all of it, on Spark in this process; about a minute
    python examples/quotes.py --data DIR    only write the example data, for `palio match`:

    palio match DIR/quotes.parquet --subscriptions DIR/subscriptions.jsonl --output DIR/matches \
        --key id --as-of at

Read it from top to bottom; each step is a cell of a notebook.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import palio.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPEN = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)
SYMBOLS = ["ACME", "BOLT", "CHIP", "DUNE", "ECHO"]
QUOTES = 20_000


def quotes(count: int, seed: int = 1) -> pa.Table:
    """A trading day: prices walk, a quote a second or so."""
    rng = np.random.default_rng(seed)
    symbol = rng.integers(0, len(SYMBOLS), count)
    walk = np.cumsum(rng.normal(0, 0.02, (count, len(SYMBOLS))), axis=0) + 20 * (1 + np.arange(5))
    at = [OPEN + timedelta(seconds=float(each)) for each in np.cumsum(rng.exponential(1.0, count))]
    return pa.table(
        {
            "id": np.arange(count),
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "symbol": [SYMBOLS[each] for each in symbol],
            "price": np.round(walk[np.arange(count), symbol], 2),
            "volume": rng.integers(1, 200, count) * 100,
        }
    )


def subscriptions() -> list[dict[str, object]]:
    """Three people; ann moved her threshold twice, with a row for each period."""
    ten, noon = (OPEN + timedelta(hours=each) for each in (1, 3))
    cheap = "symbol = 'BOLT' AND price < :limit"
    return [
        {"id": "cheap-bolt", "subscriber": "ann", "filter": cheap, "parameters": {"limit": 41},
         "valid_from": None, "valid_to": ten.isoformat()},
        {"id": "cheap-bolt", "subscriber": "ann", "filter": cheap, "parameters": {"limit": 39},
         "valid_from": ten.isoformat(), "valid_to": noon.isoformat()},
        {"id": "cheap-bolt", "subscriber": "ann", "filter": cheap, "parameters": {"limit": 43},
         "valid_from": noon.isoformat(), "valid_to": None},
        {"id": "blocks", "subscriber": "bob", "filter": "volume >= 19500"},
        {"id": "tech", "subscriber": "cleo",
         "filter": "symbol IN ('CHIP', 'ECHO') AND volume > 19000"},
        {"id": "oops", "subscriber": "cleo", "filter": "price >"},
    ]  # fmt: skip


def write(home: Path, count: int = QUOTES) -> tuple[Path, Path]:
    home.mkdir(parents=True, exist_ok=True)
    archive, subs = home / "quotes.parquet", home / "subscriptions.jsonl"
    pq.write_table(quotes(count), archive, row_group_size=5_000)
    subs.write_text("".join(json.dumps(row) + "\n" for row in subscriptions()))
    return archive, subs


# A block of a share, and within five minutes its price a good deal lower.
DROP = {"drop": "symbol = 'BOLT' AND volume > 19500 THEN price < 39.5 WITHIN 5m"}


def tour(spark: SparkSession, home: Path, count: int = QUOTES) -> None:
    archive, subs = write(home, count)

    # The archive: compile once; unreadable filters are reported, and spoil nothing.
    standing = palio.spark.subscriptions(subs, home / "set", time="at")
    print(f"{len(standing)} subscriptions, rejected:", standing.rejects["id"].to_pylist())

    # The backtest: what would have been delivered, with the thresholds of the time.
    matched = palio.spark.match(archive, standing, columns=["id", "at", "symbol", "price"])
    matched.groupBy("subscriber", "subscription").count().orderBy("subscriber").show()

    # Sequences in the archive.
    day = spark.read.parquet(str(archive))
    found = palio.spark.sequences(day, DROP, "symbol", "at", columns=["price", "volume"])
    print(f"{found.count()} drops after a block")

    # Live: the same match on a stream, whose subscriptions change while it runs.
    live = home / "live"
    live.mkdir()
    stream = spark.readStream.schema(day.schema).parquet(str(live))
    routed = palio.spark.match(stream, standing, "route", columns=["id"])
    query = routed.writeStream.format("memory").queryName("deliveries").start()
    pq.write_table(quotes(1_000, seed=2), live / "1.parquet")
    query.processAllAvailable()
    standing.refresh([{"id": "acme", "subscriber": "dan", "filter": "symbol = 'ACME'"}])
    pq.write_table(quotes(1_000, seed=3), live / "2.parquet")
    query.processAllAvailable()
    query.stop()
    spark.sql("SELECT subscriber, count(*) FROM deliveries GROUP BY subscriber").show()

    # Sequences live: the day once more, as a stream whose quotes may come ten seconds late.
    again = home / "again"
    again.mkdir()
    shutil.copy(archive, again)
    stream = spark.readStream.schema(day.schema).parquet(str(again))
    stream = stream.withWatermark("at", "10 seconds")
    followed = palio.spark.sequences(stream, DROP, "symbol", "at", columns=["price", "volume"])
    query = followed.writeStream.format("memory").queryName("drops").start()
    query.processAllAvailable()
    query.stop()
    print(f"{spark.table('drops').count()} of them are reported while the day continues")


def main() -> None:
    parser = argparse.ArgumentParser(description="From an archive to a live stream.")
    parser.add_argument("--data", type=Path, help="only write the example data to this directory")
    given = parser.parse_args()
    if given.data:
        archive, subs = write(given.data)
        print(f"{archive}\n{subs}")
        return
    spark = palio.spark.session(spark_ui_showConsoleProgress=False)
    with tempfile.TemporaryDirectory() as home:
        tour(spark, Path(home))
    palio.spark.stop(spark)


if __name__ == "__main__":
    main()
