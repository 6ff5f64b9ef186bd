"""What a run of `benchmarks.peers` found, and how it is shown: text, Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from benchmarks.peer_systems.bench import Figures


class Report(msgspec.Struct):
    """A run."""

    machine: str
    load_average: float
    """When the run began: what else the machine was doing."""
    seconds: float
    filters: int
    clients: int
    names: dict[str, str] = {}
    figures: dict[str, dict[str, Figures]] = {}
    """By system and row."""
    cannot: dict[str, dict[str, str]] = {}
    """Rows that a system has no figure for, and why."""
    notes: dict[str, str] = {}
    versions: dict[str, str] = {}
    left_out: dict[str, str] = {}
    """Systems that are not installed here."""
    problems: dict[str, str] = {}
    """Systems that failed, or delivered what they should not."""


class Line(NamedTuple):
    """A line of the table: figures of rows, with something between them."""

    title: str
    parts: tuple[tuple[str, str], ...]
    form: str = "{}"


LINES: Final = (
    Line("quiet: one event to one subscriber, p50 us", (("quiet", "p50_us"),)),
    Line(
        "the same, CPU us an event: broker / clients",
        (("quiet", "broker_us"), ("quiet", "clients_us")),
        "{} / {}",
    ),
    Line("one publish call a turn, events/s", (("turn", "rate"),)),
    Line("1,000 publish calls a turn, events/s", (("burst", "rate"),)),
    Line("fan-out: single events, 512 on their way, events/s", (("fanout", "rate"),)),
    Line(
        "the same, CPU us an event: broker / clients",
        (("fanout", "broker_us"), ("fanout", "clients_us")),
        "{} / {}",
    ),
    Line("the same quiet, until all clients have it, p50 ms", (("fanout-quiet", "p50_ms"),)),
    Line("all filters in force, s", (("filters", "s"),)),
    Line("the same, memory of broker and clients, MB", (("filters", "mb"),)),
    Line("a filter moved until the first event there, p50 ms: alone", (("alone", "p50_ms"),)),
    Line("the same beside all filters", (("beside", "p50_ms"),)),
    Line("durable, one on its way, acknowledged, p50 us", (("durable", "p50_us"),)),
    Line("durable, 64 on their way, acknowledged events/s", (("durable-64", "rate"),)),
    Line("four workers of one group, durable, done events/s", (("groups", "rate"),)),
    Line(
        "the same, CPU us an event: broker / clients",
        (("groups", "broker_us"), ("groups", "clients_us")),
        "{} / {}",
    ),
    Line("broker ready: CPU s; MB resident", (("ready", "cpu_s"), ("ready", "mb")), "{}; {}"),
)

Table = tuple[list[str], list[list[str]]]


def _figure(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _cell(rows: dict[str, Figures], line: Line) -> str:
    if any(row not in rows for row, _ in line.parts):
        return ""
    return line.form.format(*(_figure(rows[row][name]) for row, name in line.parts))


def _table(report: Report) -> Table:
    heads = ["", *(report.names[each] for each in report.figures)]
    rows = [
        [line.title, *(_cell(found, line) for found in report.figures.values())] for line in LINES
    ]
    return heads, [row for row in rows if any(row[1:])]


def _about(report: Report) -> str:
    return (
        f"{report.machine}; load average {report.load_average:.1f} when the run began; rounds of "
        f"{report.seconds:g} s. The fan-out has {report.filters:,} filters of {report.clients:,} "
        "clients."
    )


def _words(report: Report) -> Iterator[str]:
    """What is to be known of the figures."""
    compared = {
        int(rows["fanout"]["pairs"])
        for rows in report.figures.values()
        if "pairs" in rows.get("fanout", {})
    }
    if compared:
        yield (
            "Every system delivered exactly the right pairs of event and client in the fan-out, "
            f"{min(compared):,} or more of them"
        )
    for name, note in report.notes.items():
        versions = f" ({report.versions[name]})" if report.versions[name] else ""
        yield f"{report.names[name]}{versions}: {note[:1].lower()}{note[1:]}"
    for name, rows in report.cannot.items():
        for why in dict.fromkeys(rows.values()):
            without = ", ".join(_row(row) for row, reason in rows.items() if reason == why)
            yield f"{report.names[name]}, no figure for {without}: {why}"
    for name, why in report.left_out.items():
        yield f"{report.names[name]} is left out: {why}"
    for name, why in report.problems.items():
        yield f"{report.names[name]} failed: {why}"


def _row(row: str) -> str:
    return row.replace("durable-64", "64 durable events on their way")


def text(report: Report) -> str:
    """Tables for a terminal."""
    heads, rows = _table(report)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [_spaced(row, widths) for row in (heads, *rows)]
    return "\n\n".join(
        [_about(report), "\n".join(lines), *(f"- {each}." for each in _words(report))]
    )


def _spaced(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def markdown(report: Report) -> str:
    """The same for docs/measured/peers.md."""
    heads, rows = _table(report)
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    words = "\n".join(f"- {each}." for each in _words(report))
    return "\n\n".join([_about(report), "\n".join(lines), words])
