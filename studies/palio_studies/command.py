"""`palio study`: run the evaluations of the papers, and report what came of them.

The entry point `study` of the group `palio.commands` leads from `palio` to `commands`. What a
command needs is imported when it runs, so that `palio study --help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from palio.cli.application import AsJson
from palio.cli.reporting import print_status, show
from palio_studies.names import STUDIES, Scale

if TYPE_CHECKING:
    from palio_studies.study import Study
    from palio_studies.sweeping import Swept

LINE_EVERY_S: Final = 60.0
"""Runs at the papers' sizes take up to an hour: a line a minute is read."""

commands: Final = typer.Typer(
    help="Repeat the evaluations of the papers behind Palio.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


class ProgressLines:
    """A line of progress now and then, where there is no terminal on which a count could change.

    >>> ProgressLines("siena", 40, now=lambda: 0.0).is_due(10)
    True
    """

    def __init__(self, name: str, points: int, now: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._points = points
        self._now = now
        self._last: tuple[int, float] | None = None

    def is_due(self, done: int) -> bool:
        """Whether to tell so many: the first, and then after a minute if there are more."""
        if self._last is None:
            return True
        before, when = self._last
        return done > before and self._now() - when >= LINE_EVERY_S

    def tell(self, done: int) -> None:
        """So many runs are done."""
        if self.is_due(done):
            self._last = (done, self._now())
            print_status(f"{self._name}: {done:,} of {self._points:,} runs done")


@commands.command("list")
def list_studies(as_json: AsJson = False) -> int:
    """Show which studies there are, with the number of their runs at each scale."""
    from palio_studies.study import points_of, study_named

    studies = [study_named(name) for name in STUDIES]
    runs_by_scale = [
        {scale.value: len(points_of(study, scale)) for scale in Scale} for study in studies
    ]
    documents = [
        {
            "name": study.name,
            "title": study.title,
            "paper": study.paper,
            "runs": counts,
            "figures": [figure.name for figure in study.figures],
            "claims": [claim.name for claim in study.claims],
        }
        for study, counts in zip(studies, runs_by_scale, strict=True)
    ]
    if as_json:
        show({"studies": documents})
        return 0
    for study, counts in zip(studies, runs_by_scale, strict=True):
        runs = ", ".join(f"{count:,} runs {scale}" for scale, count in counts.items())
        figures, claims = len(study.figures), len(study.claims)
        show(f"{study.name}: {study.title}\n  {runs}; {figures} figures, {claims} claims")
    return 0


@commands.command()
def run(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help=f"Of {', '.join(STUDIES)}.", show_default=False),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where the rows of runs are kept.")],
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
    goes on with what is missing. Ends with 1 if runs failed.
    """
    from palio.cli.connecting import ProgressLine
    from palio.cli.spark import spark_session
    from palio_studies.study import points_of, study_named

    studies = [study_named(name) for name in dict.fromkeys(names)]
    # One line of progress: Spark's own would overwrite it.
    settings: dict[str, Any] = {"spark.ui.showConsoleProgress": "false"}
    if master is not None:
        settings["master"] = master
    documents, failed = [], 0
    with spark_session(**settings) as spark:
        from palio_studies.sweeping import sweep

        for study in studies:
            progress = ProgressLine(f"of {len(points_of(study, scale)):,} runs of {study.name}")
            lines = ProgressLines(study.name, len(points_of(study, scale)))
            told = progress.show if sys.stderr.isatty() else lines.tell
            try:
                swept = sweep(study, scale, output, spark, told)
            except KeyboardInterrupt:
                print_status(
                    f"{study.name}: what is done is kept; the same command goes on with the rest"
                )
                raise
            finally:
                progress.end()
            failed += len(swept.failures)
            for failure in swept.failures:
                print_status(
                    f"{study.name}: the run of {failure.point.experiment} with "
                    f"{dict(failure.point.parameters)} and seed {failure.point.seed} failed:\n"
                    f"{failure.problem}"
                )
            documents.append(
                {
                    "study": study.name,
                    "scale": scale.value,
                    "runs": swept.points,
                    "kept": swept.kept,
                    "failed": len(swept.failures),
                    "cpu_s": swept.cpu_s,
                }
            )
            if not as_json:
                show(_said(study, swept, output))
    if as_json:
        show({"output": str(output), "studies": documents})
    return 1 if failed else 0


def _said(study: Study, swept: Swept, out: Path) -> str:
    if swept.failures:
        return (
            f"{study.name}: {len(swept.failures):,} of {swept.points:,} runs failed; the same "
            "command tries them again"
        )
    before = f", {swept.kept:,} of them before" if swept.kept else ""
    return (
        f"{study.name}: {swept.points:,} runs done{before}, in {swept.cpu_s / 60:.1f} minutes of "
        f"CPU; see `palio study report {out}`"
    )


@commands.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where studies were run.", show_default=False)
    ],
    as_json: AsJson = False,
) -> int:
    """Draw the figures of what was run, and check the papers' claims.

    Writes DIR/report.md, DIR/report.html and DIR/figures: SVG, PNG, and CSV of the numbers drawn.
    Ends with 0 whatever the claims came to: one that fails is a result.
    """
    from palio_studies.report import write_report

    reports = write_report(directory)
    claims = [(report.study.name, judged) for report in reports for judged in report.judged]
    if as_json:
        show(
            {
                "report": str(directory / "report.md"),
                "claims": [
                    {
                        "study": name,
                        "claim": claim.name,
                        "says": claim.says,
                        "expected": claim.expected,
                        "found": evidence.numbers,
                        "holds": evidence.holds,
                    }
                    for name, (claim, evidence) in claims
                ],
            }
        )
        return 0
    words = {True: "holds", False: "FAILS", None: "not decided"}
    for name, (claim, evidence) in claims:
        show(f"{words[evidence.holds]:<11} {name}: {claim.says}\n{'':<12}found {evidence.numbers}")
    show(f"The report is {directory / 'report.md'} and {directory / 'report.html'}.")
    return 0
