"""Commands that run on Spark: `palio match` and `palio pipeline`."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from palio.cli.application import AsJson
from palio.cli.reporting import print_status, show
from palio.errors import InvalidInput, PalioError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from palio.spark.sets import SubscriptionSet

pipeline_commands: Final = typer.Typer(
    no_args_is_help=True, help="Run a data pipeline on Spark, or check it."
)

REJECTS: Final = "_rejects.jsonl"
"""Beside the result, under a name that readers of Parquet pass over."""

SHOWN_REJECTS: Final = 3


How: TypeAlias = Literal["pairs", "any", "count"]
"""The kinds of result that `palio match` writes."""

_NOUNS: Final[dict[How, str]] = {
    "pairs": "pairs of event and subscription",
    "any": "events",
    "count": "counts of subscriptions",
}


def match(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS",
            help="A Parquet file, a directory of them, or JSON lines.",
            show_default=False,
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Option(
            metavar="SUBS",
            help="Parquet or JSON lines: id, filter, and if need be subscriber, parameters, "
            "valid_from, valid_to.",
        ),
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Where Parquet is written.")],
    how: Annotated[
        How,
        typer.Option(help="Events with each subscription they match, with any, or counts."),
    ] = "pairs",
    key: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What to call an event by; else its file and row."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The events' time: a row counts from valid_from up to valid_to of it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Match an archive of events with subscriptions, on Spark.

    Subscriptions that cannot be read spoil nothing: they are listed in DIR/_rejects.jsonl. Needs
    palio[spark].
    """
    began = perf_counter()
    target = Path(output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"output directory {output!r} is not empty; choose another or delete it")
    if not Path(events).exists():
        raise InvalidInput(f"cannot read events from {events!r}: no such file or directory")
    import palio.spark

    standing = palio.spark.subscriptions(subscriptions, time=as_of)
    print_status(f"{len(standing):,} subscriptions compiled, {standing.meta.rejected:,} rejected")
    with spark_session() as spark:
        report = _written(spark, Path(events), standing, target, how, key)
    rejected = _write_rejects(standing, target)
    report |= {"subscriptions": len(standing), "rejected": len(rejected), "output": output}
    report["seconds"] = round(perf_counter() - began, 1)
    if as_json:
        show({**report, "rejects": rejected[:SHOWN_REJECTS]})
        return 0
    for row in rejected[:SHOWN_REJECTS]:
        reason = row["reason"].partition("\n")[0]
        print_status(f"rejected: subscription {row['id']!r}: {reason}")
    if len(rejected) > SHOWN_REJECTS:
        print_status(f"...and {len(rejected) - SHOWN_REJECTS:,} others, in {target / REJECTS}")
    show(f"{report['rows']:,} {_NOUNS[how]} written to {output} in {report['seconds']:.1f} s")
    return 0


def _written(
    spark: SparkSession,
    events: Path,
    standing: SubscriptionSet,
    target: Path,
    how: How,
    key: str | None,
) -> dict[str, Any]:
    """Run the job; how many rows there are in what it wrote."""
    import pyarrow.parquet as pq
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
    from pyspark.errors import PySparkException

    import palio.spark
    from palio.spark.reading import JSON_LINES
    from palio.spark.sessions import first_cause

    source: DataFrame | Path = events
    if events.suffix in JSON_LINES:
        if key is None and how != "count":
            raise InvalidInput("events in JSON lines need --key, the column that identifies them")
        source = spark.read.json(str(events))
    columns = None if how == "count" else [key] if key is not None else ["$file", "$row"]
    found = palio.spark.match(source, standing, how, columns)
    for name in ("file", "row"):
        found = found.withColumnRenamed(f"${name}", name)
    print_status("matching")
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


@contextmanager
def spark_session(**settings: Any) -> Iterator[SparkSession]:
    """The session there is, with some settings; or one that is stopped with the command."""
    from palio.spark.sessions import running_session, session, stop

    if running_session() is not None:
        yield session(**settings)
        return
    print_status("starting Spark")
    settings = {"spark.ui.showConsoleProgress": sys.stderr.isatty()} | settings
    spark = session(**settings)
    try:
        yield spark
    finally:
        stop(spark)


# --- pipelines ---

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline, such as pipeline.toml.")
]


@pipeline_commands.command("run")
def pipeline_run(file: PipelineFile, as_json: AsJson = False) -> int:
    """Run a pipeline: read, normalize, match, find sequences, write, report.

    A stream runs until Ctrl-C or SIGTERM, and resumes from its checkpoint the next time. Needs
    palio[spark].
    """
    import msgspec

    from palio.spark.pipeline import run_pipeline
    from palio.spark.plan import read_plan
    from palio.spark.report import write_report

    plan, received = read_plan(file), list[int]()
    with spark_session(**plan.spark) as spark:
        if plan.source.stream:
            with _stop_signals(received) as stop:
                report = run_pipeline(plan, spark, print_status, stop)
        else:
            report = run_pipeline(plan, spark, print_status)
    files = write_report(report, plan.report.path) if plan.report is not None else []
    if as_json:
        show({**msgspec.to_builtins(report, enc_hook=str), "files": files})
    else:
        show(report.markdown() if not files else f"{plan.name}: the report is in {files[0]}")
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    return 0


@pipeline_commands.command("check")
def pipeline_check(file: PipelineFile, as_json: AsJson = False) -> int:
    """Check a pipeline and print its steps, without starting Spark."""
    from palio.spark.pipeline import explain
    from palio.spark.plan import read_plan

    plan = read_plan(file)
    lines = explain(plan)
    text = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    show({"valid": True, "pipeline": plan.name, "plan": lines} if as_json else text)
    return 0


@contextmanager
def _stop_signals(received: list[int]) -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set: the queries then stop, and resume the next time."""
    stop = Event()

    def asked(number: int, _frame: FrameType | None) -> None:
        print_status("stopping")
        received.append(number)
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
