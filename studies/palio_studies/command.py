"""`palio study`: run the evaluations of the papers, and report what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from palio.cli.connecting import ProgressLine
from palio.cli.reporting import show, tell
from palio.cli.spark_session import spark_session
from palio_studies.catalogue import study_named
from palio_studies.names import STUDIES, Scale
from palio_studies.study import Study, points_of

if TYPE_CHECKING:
    from palio_studies.sweeping import Swept

__all__ = ["report", "run", "show_studies"]


def show_studies(*, as_json: bool) -> int:
    """The studies, with the runs of each scale."""
    studies = [study_named(name) for name in STUDIES]
    runs_by_scale = [
        {scale.value: len(points_of(each, scale)) for scale in Scale} for each in studies
    ]
    documents = [
        {
            "name": each.name,
            "title": each.title,
            "paper": each.paper,
            "runs": counts,
            "figures": [figure.name for figure in each.figures],
            "claims": [claim.name for claim in each.claims],
        }
        for each, counts in zip(studies, runs_by_scale, strict=True)
    ]
    if as_json:
        show({"studies": documents})
        return 0
    for study, counts in zip(studies, runs_by_scale, strict=True):
        runs = ", ".join(f"{count:,} runs {scale}" for scale, count in counts.items())
        figures, claims = len(study.figures), len(study.claims)
        show(f"{study.name}: {study.title}\n  {runs}; {figures} figures, {claims} claims")
    return 0


def run(names: list[str], scale: Scale, out: Path, master: str | None, *, as_json: bool) -> int:
    """Run studies one after the other; 1 if a run raised."""
    studies = [study_named(name) for name in dict.fromkeys(names)]
    settings = {} if master is None else {"master": master}
    documents, failed = [], 0
    with spark_session(**settings) as spark:
        from palio_studies.sweeping import sweep

        for study in studies:
            progress = ProgressLine(f"of {len(points_of(study, scale)):,} runs of {study.name}")
            try:
                swept = sweep(study, scale, out, spark, progress.show)
            except KeyboardInterrupt:
                tell(f"{study.name}: what is done is kept; the same command goes on with the rest")
                raise
            finally:
                progress.end()
            failed += len(swept.failures)
            for failure in swept.failures:
                tell(
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
                show(_said(study, swept, out))
    if as_json:
        show({"out": str(out), "studies": documents})
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


def report(directory: Path, *, as_json: bool) -> int:
    """Draw and check what was run; 1 if a claim fails."""
    from palio_studies.report import write_report

    reports = write_report(directory)
    claims = [(each.study.name, one) for each in reports for one in each.judged]
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
