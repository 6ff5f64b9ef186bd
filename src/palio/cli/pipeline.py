"""`palio pipeline`: run what a `pipeline.toml` says on Spark, or say what it would do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType

import msgspec

from palio.cli.reporting import show, tell
from palio.cli.spark_session import spark_session

__all__ = ["check", "run"]


def check(file: Path, *, as_json: bool) -> int:
    """Check a pipeline and say what it would do."""
    from palio.spark.pipeline import explain
    from palio.spark.plan import read_plan

    plan = read_plan(file)
    lines = explain(plan)
    if as_json:
        show({"valid": True, "pipeline": plan.name, "plan": lines})
    else:
        show("\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)))
    return 0


def run(file: Path, *, as_json: bool) -> int:
    """Run a pipeline to its end, or until Ctrl-C or SIGTERM where it is a stream."""
    from palio.spark.pipeline import run_pipeline
    from palio.spark.plan import read_plan
    from palio.spark.report import write_report

    plan = read_plan(file)
    with spark_session(**plan.spark) as spark:
        if plan.source.stream:
            with _stop_signals() as stop:
                report = run_pipeline(plan, spark, tell, stop)
        else:
            report = run_pipeline(plan, spark, tell)
    files = write_report(report, plan.report.path) if plan.report is not None else []
    if as_json:
        show({**msgspec.to_builtins(report, enc_hook=str), "files": files})
    else:
        show(report.markdown() if not files else f"{plan.name}: the report is in {files[0]}")
    return 0


@contextmanager
def _stop_signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set: the queries then stop, and go on the next time."""
    stop = Event()

    def asked(_number: int, _frame: FrameType | None) -> None:
        tell("stopping")
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
