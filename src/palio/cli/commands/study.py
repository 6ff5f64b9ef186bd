"""Commands of the studies: `palio study run`, `report` and `list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from palio.cli.application import AsJson, app
from palio_studies.names import STUDIES, Scale

__all__: list[str] = []

study_commands: Final = typer.Typer(
    no_args_is_help=True, help="Repeat the evaluations of the papers behind Palio."
)
app.add_typer(study_commands, name="study")


@study_commands.command("list")
def study_list(as_json: AsJson = False) -> int:
    """Show which studies there are, with the number of their runs at each scale."""
    from palio.cli.study import show_studies

    return show_studies(as_json=as_json)


@study_commands.command("run")
def study_run(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help=f"Of {', '.join(STUDIES)}.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the rows of runs are kept.")],
    scale: Annotated[
        Scale,
        typer.Option(
            help="small: seconds; paper: the sizes of the paper; beyond: what it left out."
        ),
    ] = Scale.SMALL,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The master of a Spark cluster, whose workers must see DIR; else all cores here.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run studies on Spark.

    Each run is kept in a file of its own once it is whole: after an interruption the same command
    goes on with what is missing. Ends with 1 if runs failed. Needs palio[spark].
    """
    from palio.cli.study import run

    return run(names, scale, out, master, as_json=as_json)


@study_commands.command("report")
def study_report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where studies were run.", show_default=False)
    ],
    as_json: AsJson = False,
) -> int:
    """Draw the figures of what was run, and check the papers' claims.

    Writes DIR/report.md, DIR/report.html and DIR/figures: SVG, PNG, and CSV of the numbers drawn.
    Needs palio[studies].
    """
    from palio.cli.study import report

    return report(directory, as_json=as_json)
