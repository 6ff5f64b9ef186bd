"""`palio match`: an archive of events against a set of subscriptions, on Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from palio.cli.reporting import show, tell
from palio.cli.spark_session import spark_session
from palio.errors import InvalidInput, PalioError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from palio.spark.sets import SubscriptionSet

__all__ = ["match"]

REJECTS: Final = "_rejects.jsonl"
"""Beside the result, under a name that readers of Parquet pass over."""

SHOWN_REJECTS: Final = 3


def match(
    events: str,
    subscriptions: str,
    out: str,
    how: str,
    key: str | None,
    as_of: str | None,
    *,
    as_json: bool,
) -> int:
    """Match, write Parquet, and say what came of it."""
    began = perf_counter()
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"{out!r} is there already; name another directory, or remove it")
    if not Path(events).exists():
        raise InvalidInput(f"cannot read events from {events!r}: no such file or directory")
    import palio.spark

    standing = palio.spark.subscriptions(subscriptions, time=as_of)
    tell(f"{len(standing):,} subscriptions compiled, {standing.meta.rejected:,} rejected")
    with spark_session() as spark:
        report = _written(spark, Path(events), standing, target, how, key)
    rejected = _write_rejects(standing, target)
    report |= {"subscriptions": len(standing), "rejected": len(rejected), "out": out}
    report["seconds"] = round(perf_counter() - began, 1)
    if as_json:
        show({**report, "rejects": rejected[:SHOWN_REJECTS]})
        return 0
    for row in rejected[:SHOWN_REJECTS]:
        reason = row["reason"].partition("\n")[0]
        tell(f"rejected: subscription {row['id']!r}: {reason}")
    if len(rejected) > SHOWN_REJECTS:
        tell(f"...and {len(rejected) - SHOWN_REJECTS:,} others, in {target / REJECTS}")
    show(f"{report['rows']:,} {_NOUNS[how]} written to {out} in {report['seconds']:.1f} s")
    return 0


_NOUNS: Final = {
    "pairs": "pairs of event and subscription",
    "any": "events",
    "count": "counts of subscriptions",
}


def _written(
    spark: SparkSession,
    events: Path,
    standing: SubscriptionSet,
    target: Path,
    how: str,
    key: str | None,
) -> dict[str, Any]:
    """Run the job; how many rows there are in what it wrote."""
    import pyarrow.parquet as pq
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
    from pyspark.errors import PySparkException

    import palio.spark
    from palio.spark.failures import first_cause
    from palio.spark.reading import JSON_LINES

    source: DataFrame | Path = events
    if events.suffix in JSON_LINES:
        if key is None and how != "count":
            raise InvalidInput("events in JSON lines need --key, the column that tells them apart")
        source = spark.read.json(str(events))
    columns = None if how == "count" else [key] if key is not None else ["$file", "$row"]
    found = palio.spark.match(source, standing, how, columns)
    for name in ("file", "row"):
        found = found.withColumnRenamed(f"${name}", name)
    tell("matching")
    try:
        found.write.mode("append").parquet(str(target))
    except (Py4JJavaError, PySparkException) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise PalioError(f"the job failed on Spark: {first_cause(str(error))}") from error
    return {"rows": sum(pq.read_metadata(each).num_rows for each in target.glob("*.parquet"))}


def _write_rejects(standing: SubscriptionSet, target: Path) -> list[dict[str, Any]]:
    rejected: list[dict[str, Any]] = standing.rejects.to_pylist()
    if rejected:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rejected)
        (target / REJECTS).write_text(lines, encoding="utf-8")
    return rejected
