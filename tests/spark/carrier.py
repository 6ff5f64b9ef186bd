"""A program that carries events from a durable subscription to publications until it is killed.

    python carrier.py URL CHECKPOINT [drain]

Prints a line for each micro-batch; with `drain` it ends when nothing waits any more.
"""

from __future__ import annotations

import sys

import palio.spark


def main(url: str, checkpoint: str, mode: str = "") -> None:
    spark = palio.spark.session("local[2]", spark_ui_showConsoleProgress=False)
    reader = spark.readStream.format("palio").option("url", url).option("durable", "in")
    if not mode:
        reader = reader.option("maxEventsPerBatch", 10)
    events = reader.option("filter", "x >= 0").schema("x BIGINT").load()
    found = palio.spark.match(events, [{"id": 1, "filter": "x >= 0"}], "any")
    writer = found.selectExpr("x AS y").writeStream.format("palio").option("url", url)
    writer = writer.option("checkpointLocation", checkpoint)
    query = (writer.trigger(availableNow=True) if mode else writer).start()
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
