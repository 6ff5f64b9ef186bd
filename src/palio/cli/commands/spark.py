"""Commands that run on Spark: `palio pipeline run` and `palio pipeline check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from palio.cli.application import AsJson, app

__all__: list[str] = []

pipeline_commands: Final = typer.Typer(
    no_args_is_help=True, help="Run a data pipeline on Spark, or check it."
)
app.add_typer(pipeline_commands, name="pipeline")

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline, such as pipeline.toml.")
]


@pipeline_commands.command("run")
def pipeline_run(file: PipelineFile, as_json: AsJson = False) -> int:
    """Run a pipeline: read, normalize, match, find sequences, write, report.

    A stream runs until Ctrl-C or SIGTERM, and goes on from its checkpoint the next time. Needs
    palio[spark].
    """
    from palio.cli.pipeline import run

    return run(file, as_json=as_json)


@pipeline_commands.command("check")
def pipeline_check(file: PipelineFile, as_json: AsJson = False) -> int:
    """Check a pipeline and say what it would do, without starting Spark."""
    from palio.cli.pipeline import check

    return check(file, as_json=as_json)
