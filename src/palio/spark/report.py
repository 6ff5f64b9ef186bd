"""The report of a pipeline's run: as data, as Markdown, and drawn where there is matplotlib."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

DRAWN_SUBSCRIPTIONS: Final = 10_000
"""Points of the figure; more are no easier to see."""


class StageTime(msgspec.Struct, frozen=True):
    """A part of the work: how long it took, and how many rows came of it."""

    name: str
    seconds: float
    rows: int | None = None


class RankedCount(msgspec.Struct, frozen=True):
    """A subscription or an event, and how many matches it has."""

    name: Any
    count: int


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a run."""

    pipeline: str
    started: str
    seconds: float
    stages: tuple[StageTime, ...]
    events: int
    subscriptions: int = 0
    rejected: int = 0
    """Subscriptions that match nothing because they do not compile."""
    matches: int | None = None
    matched_subscriptions: int | None = None
    busiest: tuple[RankedCount, ...] = ()
    dead: tuple[Any, ...] = ()
    """Some of the subscriptions that matched nothing."""
    dead_count: int | None = None
    hot: tuple[RankedCount, ...] = ()
    """The events with the most matches, of those with several."""
    skew: float | None = None
    """The rows of the fullest partition of matches, over the mean of all."""
    batches: int | None = None
    """Of a stream."""
    late: int = 0
    """Events of a stream that came after the watermark had passed them, and are in no sequence."""
    counts: tuple[int, ...] = ()
    """Matches by subscription, in descending order, as far as they are drawn."""

    def markdown(self) -> str:
        """The report for people."""
        lines = [f"# {self.pipeline}", "", f"{self.started}, {self.seconds:.1f} s", ""]
        lines += [f"- {name}: {value}" for name, value in self._facts()]
        lines += _table("Cost", ("stage", "seconds", "rows"), self._stage_rows())
        rates = [
            (busy.name, f"{busy.count:,}", _share(busy.count, self.events)) for busy in self.busiest
        ]
        lines += _table("Busiest subscriptions", ("subscription", "matches", "of events"), rates)
        hot = [(json.dumps(key.name, default=str), f"{key.count:,}") for key in self.hot]
        lines += _table("Hottest events", ("event", "matches"), hot)
        if self.dead_count:
            shown = ", ".join(map(str, self.dead))
            more = "" if self.dead_count <= len(self.dead) else ", ..."
            lines += ["", "## Dead filters", "", f"{self.dead_count:,}: {shown}{more}"]
        return "\n".join(lines) + "\n"

    def _facts(self) -> list[tuple[str, str]]:
        facts: list[tuple[str, Any]] = [
            ("events", self.events),
            ("micro-batches", self.batches),
            ("events too late for sequences", self.late or None),
            ("subscriptions", self.subscriptions or None),
            ("rejected subscriptions", self.rejected or None),
            ("matches", self.matches),
            ("subscriptions that match", self.matched_subscriptions),
        ]
        shown = [(name, f"{value:,}") for name, value in facts if value is not None]
        if self.skew is not None:
            shown.append(("fullest partition", f"{self.skew:.1f} times the mean"))
        return shown

    def _stage_rows(self) -> list[tuple[str, str, str]]:
        return [
            (stage.name, f"{stage.seconds:.2f}", "" if stage.rows is None else f"{stage.rows:,}")
            for stage in self.stages
        ]


def write_report(report: RunReport, directory: str | Path) -> list[str]:
    """Write `report.md`, `report.json` and figures; the files, by their paths."""
    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    figures = _figures(report, home) if find_spec("matplotlib") else []
    text = report.markdown() + "".join(f"\n![{figure.stem}]({figure.name})\n" for figure in figures)
    (home / "report.md").write_text(text, encoding="utf-8")
    document = msgspec.to_builtins(report, enc_hook=str)
    (home / "report.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    return [str(home / "report.md"), str(home / "report.json"), *map(str, figures)]


def _figures(report: RunReport, home: Path) -> list[Path]:
    from matplotlib.figure import Figure

    drawn = []
    figure = Figure(figsize=(7, 0.5 * len(report.stages) + 1.5), layout="constrained")
    axes = figure.subplots()
    names = [stage.name for stage in report.stages]
    axes.barh(names[::-1], [stage.seconds for stage in report.stages][::-1])
    axes.set_xlabel("seconds")
    axes.set_title("Cost by stage")
    figure.savefig(home / "cost.png", dpi=120)
    drawn.append(home / "cost.png")
    if report.counts and report.events:
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        rates = [count / report.events for count in report.counts]
        axes.loglog(range(1, len(rates) + 1), rates, marker=".")
        axes.set_xlabel("subscription, by rank")
        axes.set_ylabel("share of events it matches")
        axes.set_title("Match rate by subscription")
        figure.savefig(home / "rates.png", dpi=120)
        drawn.append(home / "rates.png")
    return drawn


def _table(title: str, names: tuple[str, ...], rows: list[Any]) -> list[str]:
    if not rows:
        return []
    lines = ["", f"## {title}", "", f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def _share(count: int, events: int) -> str:
    return f"{count / events:.2%}" if events else ""
