"""`palio match`: an archive of events against a set of subscriptions, on Spark."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from palio.cli.reporting import show
from palio.errors import InvalidInput, PalioError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from palio.spark.sets import SubscriptionSet

__all__ = ["first_cause", "match"]

JSON_LINES: Final = frozenset({".jsonl", ".ndjson", ".json"})

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
    _tell(f"{len(standing):,} subscriptions compiled, {standing.meta.rejected:,} rejected")
    spark, is_ours = _session()
    try:
        report = _written(spark, Path(events), standing, target, how, key)
    finally:
        if is_ours:
            palio.spark.stop(spark)
    rejected = _write_rejects(standing, target)
    report |= {"subscriptions": len(standing), "rejected": len(rejected), "out": out}
    report["seconds"] = round(perf_counter() - began, 1)
    if as_json:
        show({**report, "rejects": rejected[:SHOWN_REJECTS]})
        return 0
    for row in rejected[:SHOWN_REJECTS]:
        reason = row["reason"].partition("\n")[0]
        _tell(f"rejected: subscription {row['id']!r}: {reason}")
    if len(rejected) > SHOWN_REJECTS:
        _tell(f"...and {len(rejected) - SHOWN_REJECTS:,} others, in {target / REJECTS}")
    show(f"{report['rows']:,} {_NOUNS[how]} written to {out} in {report['seconds']:.1f} s")
    return 0


_NOUNS: Final = {
    "pairs": "pairs of event and subscription",
    "any": "events",
    "count": "counts of subscriptions",
}


def _session() -> tuple[SparkSession, bool]:
    """A session, and whether it is for us to stop."""
    import palio.spark

    is_ours = True
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        is_ours = SparkSession.getActiveSession() is None
    if not is_ours:
        return palio.spark.session(), False
    _tell("starting Spark")
    return palio.spark.session(spark_ui_showConsoleProgress=sys.stderr.isatty()), True


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

    source: DataFrame | Path = events
    if events.suffix in JSON_LINES:
        if key is None and how != "count":
            raise InvalidInput("events in JSON lines need --key, the column that tells them apart")
        source = spark.read.json(str(events))
    columns = None if how == "count" else [key] if key is not None else ["$file", "$row"]
    found = palio.spark.match(source, standing, how, columns)
    for name in ("file", "row"):
        found = found.withColumnRenamed(f"${name}", name)
    _tell("matching")
    try:
        found.write.mode("append").parquet(str(target))
    except (Py4JJavaError, PySparkException) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise PalioError(f"the job failed on Spark: {first_cause(str(error))}") from error
    return {"rows": sum(pq.read_metadata(each).num_rows for each in target.glob("*.parquet"))}


def first_cause(trace: str) -> str:
    """The line of a failure's trace that says what was wrong: a worker's error, or the root cause.

    >>> first_cause(
    ...     "An error occurred.\\n: Job aborted\\nCaused by: java.io.IOException: disk full"
    ... )
    'java.io.IOException: disk full'
    """
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("palio.errors.")]
    roots = [line for line in lines if line.startswith("Caused by: ")]
    return ["", *lines[:1], *roots, *told][-1].removeprefix("Caused by: ")


def _write_rejects(standing: SubscriptionSet, target: Path) -> list[dict[str, Any]]:
    rejected: list[dict[str, Any]] = standing.rejects.to_pylist()
    if rejected:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rejected)
        (target / REJECTS).write_text(lines, encoding="utf-8")
    return rejected


def _tell(what: str) -> None:
    sys.stderr.write(f"palio: {what}\n")
    sys.stderr.flush()
