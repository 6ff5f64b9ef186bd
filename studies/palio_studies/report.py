"""The report of studies: their method, choices, figures and claims, as Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from palio import files
from palio.errors import InvalidInput
from palio_studies.drawing import draw
from palio_studies.names import STUDIES
from palio_studies.results import Results, read_results
from palio_studies.study import Claim, Evidence, Study, study_named
from palio_studies.sweeping import PLAN, SweepPlan

FIGURES: Final = "figures"

HELD: Final = {True: "holds", False: "**fails**", None: "not decided"}

_STYLE: Final = """
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; font-size: 0.9em; margin: 1rem 0; }
th, td { border: 1px solid #ccc; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
img { max-width: 100%; }
"""


class Judged(NamedTuple):
    """A claim, and what came of it."""

    claim: Claim
    evidence: Evidence


class StudyReport(NamedTuple):
    """A study that was run, and its claims."""

    study: Study
    plan: SweepPlan
    results: Results
    judged: tuple[Judged, ...]


def report_of(study: Study, directory: Path) -> StudyReport | None:
    """What a directory has of a study; None if nothing."""
    path = directory / study.name / PLAN
    if not path.exists():
        return None
    plan = msgspec.json.decode(path.read_bytes(), type=SweepPlan)
    results = read_results(directory / study.name)
    judged = tuple(Judged(claim, claim.judge(results)) for claim in study.claims) if results else ()
    return StudyReport(study, plan, results, judged)


def write_report(directory: Path) -> list[StudyReport]:
    """Write `report.md`, `report.html` and `figures/` for all studies that a directory has."""
    found = [report_of(study_named(name), directory) for name in STUDIES]
    reports = [each for each in found if each is not None]
    if not reports:
        raise InvalidInput(
            f"{str(directory)!r} has no study; run one first: "
            f"palio study run NAME --output {directory}"
        )
    if unfinished := [each.study.name for each in reports if not each.results]:
        raise InvalidInput(
            f"not all runs of {', '.join(unfinished)} are there; go on with the same command "
            "that began them"
        )
    figures = files.make_inside(directory, FIGURES)
    text = "\n".join(_lines(reports, figures)) + "\n"
    with files.replaced(directory / "report.md") as file:
        file.write(text.encode())
    with files.replaced(directory / "report.html") as file:
        file.write(_html(text).encode())
    return reports


def _lines(reports: Sequence[StudyReport], figures: Path) -> Iterator[str]:
    yield "# The studies: what the papers found, and what was found here"
    yield ""
    yield "| study | scale | runs | minutes of CPU | claims that hold | that fail | not decided |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for each in reports:
        counts = [sum(one.evidence.holds is holds for one in each.judged) for holds in HELD]
        cells = (
            f"[{each.study.name}](#{each.study.name})",
            each.plan.scale,
            f"{each.plan.points:,}",
            f"{each.plan.cpu_s / 60:.1f}",
        )
        yield _row((*cells, *map(str, counts)))
    yield ""
    yield (
        f"Palio {reports[0].plan.version}. Lines are means over seeds, bars their 95% intervals "
        "(Student's t). Beside each picture is a CSV file with the numbers drawn."
    )
    for each in reports:
        yield from _study(each, figures)


def _study(report: StudyReport, figures: Path) -> Iterator[str]:
    study = report.study
    yield from ("", f"## {study.name}", "", f"**{study.title}.** {study.paper}", "", study.method)
    yield from ("", f"### Choices of {study.name}", "")
    yield _row(("what", "the paper", "here", "why"))
    yield "|---|---|---|---|"
    for choice in study.choices:
        yield _row((choice.name, choice.paper or "lost or not given", choice.taken, choice.why))
    yield from ("", f"### Claims of {study.name}", "")
    yield _row(("claim", "expected", "found", "")) + "\n|---|---|---|---|"
    for claim, evidence in report.judged:
        yield _row((claim.says, claim.expected, evidence.numbers, HELD[evidence.holds]))
    yield from _reasons(report.judged)
    for table in study.tables:
        head, *lines = table.cells(report.results)
        yield from ("", f"### {table.title}", "")
        if lines:
            yield from (_row(head), "|" + "---|" * len(head), *map(_row, lines))
        else:
            yield f"Not run at this scale ({report.plan.scale})."
        yield from ("", table.caption)
    yield from ("", f"### Figures of {study.name}")
    for figure in study.figures:
        yield from ("", f"#### {figure.title}", "")
        name = f"{study.name}-{figure.name}"
        if draw(figure, report.results, figures, name):
            yield f"![{figure.title}]({FIGURES}/{name}.svg)"
            yield from ("", f"{figure.caption} [Numbers]({FIGURES}/{name}.csv).".strip())
        else:
            yield f"Not run at this scale ({report.plan.scale})."


def _reasons(judged: Iterable[Judged]) -> Iterator[str]:
    failed = [one for one in judged if one.evidence.holds is False]
    if failed:
        yield from ("", "Why those that fail do:", "")
    for claim, evidence in failed:
        causes = [evidence.cause] if evidence.cause else []
        if claim.reason:
            causes.append(f"{claim.reason} (Found {claim.seen}.)")
        yield f"- *{claim.name}*: {' '.join(causes) or 'the cause has not been found.'}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _html(text: str) -> str:
    from markdown_it import MarkdownIt

    title = text.partition("\n")[0].lstrip("# ")
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    for name in STUDIES:
        body = body.replace(f"<h2>{name}</h2>", f'<h2 id="{name}">{name}</h2>')
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
