"""The report of a pipeline's run: as data, and as Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec


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
    """Write `report.md` and `report.json`; the files, by their paths."""
    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    (home / "report.md").write_text(report.markdown(), encoding="utf-8")
    document = msgspec.to_builtins(report, enc_hook=str)
    (home / "report.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    return [str(home / "report.md"), str(home / "report.json")]


def _table(title: str, names: tuple[str, ...], rows: list[Any]) -> list[str]:
    if not rows:
        return []
    lines = ["", f"## {title}", "", f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def _share(count: int, events: int) -> str:
    return f"{count / events:.2%}" if events else ""
