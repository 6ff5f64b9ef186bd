"""What a run of the matching benchmark found, and how it is shown: text, Markdown, a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

BEGIN: Final = "<!-- measured: python -m benchmarks.matching --full --docs docs/measured -->"
END: Final = "<!-- end of measured -->"


class Throughput(msgspec.Struct):
    """One workload with so many filters. Rates count CPU time of the thread; latencies are wall."""

    workload: str
    filters: int
    matches_an_event: float
    events_per_cpu_s: float
    events_per_wall_s: float
    single_us: float
    """Median wall time of one event, a one-row batch."""
    single_dict_us: float
    bytes_a_filter: float
    by_hand_per_cpu_s: float | None = None
    times: float | None = None
    """Median of paired runs: CPU time of numpy by hand over that of the engine."""


class Other(msgspec.Struct):
    """Another engine on a thousand filters, wall time."""

    workload: str
    engine: str
    events_per_wall_s: float
    times: float
    """The engine's rate on the same events over this one."""


class Bar(msgspec.Struct):
    """A bar of the issue: at least or at most a target, and which clock was read."""

    number: int
    name: str
    target: float
    measured: float
    unit: str
    clock: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target


class Results(msgspec.Struct):
    """A run."""

    size: str
    machine: str
    load_average: float
    """When the run began: what else the machine was doing."""
    throughput: list[Throughput] = []
    others: list[Other] = []
    bars: list[Bar] = []
    facts: dict[str, float | str] = {}
    """Figures beside the bars."""
    left_out: list[str] = []


Table = tuple[list[str], list[list[str]]]


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _bars(results: Results) -> Table:
    heads = ["bar", "what", "target", "measured", "clock", ""]
    rows = []
    for bar in sorted(results.bars, key=lambda each: each.number):
        sign = "at least" if bar.at_least else "at most"
        rows.append(
            [
                str(bar.number),
                bar.name,
                f"{sign} {_figure(bar.target)} {bar.unit}".rstrip(),
                _figure(bar.measured),
                bar.clock,
                "met" if bar.met else "missed",
            ]
        )
    return heads, rows


def _throughput(results: Results) -> Table:
    heads = [
        "workload",
        "filters",
        "matches an event",
        "events/s (CPU)",
        "events/s (wall)",
        "numpy by hand (CPU)",
        "times (CPU)",
        "one event, p50 us (wall)",
        "as a dict",
        "bytes a filter",
    ]
    rows = [
        [
            each.workload,
            f"{each.filters:,}",
            _figure(each.matches_an_event),
            _figure(each.events_per_cpu_s),
            _figure(each.events_per_wall_s),
            _figure(each.by_hand_per_cpu_s),
            _figure(each.times),
            _figure(each.single_us),
            _figure(each.single_dict_us),
            _figure(each.bytes_a_filter),
        ]
        for each in results.throughput
    ]
    return heads, rows


def _others(results: Results) -> Table:
    heads = ["workload", "engine", "events/s (wall)", "Index, times as fast"]
    rows = [
        [each.workload, each.engine, _figure(each.events_per_wall_s), _figure(each.times)]
        for each in results.others
    ]
    return heads, rows


def _facts(results: Results) -> Table:
    rows = [
        [name, _figure(value) if isinstance(value, float) else str(value)]
        for name, value in results.facts.items()
    ]
    return ["also", ""], rows


def _tables(results: Results) -> list[Table]:
    tables = [_bars(results), _throughput(results), _others(results), _facts(results)]
    return [table for table in tables if table[1]]


def _about(results: Results) -> str:
    return (
        f"{results.machine}; load average {results.load_average:.1f} when the run began; "
        f"`--{results.size}`."
    )


def text(results: Results) -> str:
    """Tables for a terminal."""
    blocks = [_about(results)]
    for heads, rows in _tables(results):
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (heads, *rows)
        ]
        blocks.append("\n".join(lines))
    blocks += [f"left out: {each}" for each in results.left_out]
    return "\n\n".join(blocks)


def markdown(results: Results) -> str:
    """The same for docs/measured/matching.md."""
    blocks = [_about(results)]
    for heads, rows in _tables(results):
        lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
        blocks.append("\n".join(lines))
    blocks += [f"Left out: {each}." for each in results.left_out]
    return "\n\n".join(blocks)


def rewrite(results: Results, page: Path, begin: str = BEGIN) -> None:
    """Put the tables in place of those that a page has, behind a line that says how they came."""
    replace(markdown(results), page, begin)


def replace(tables: str, page: Path, begin: str) -> None:
    """The same with any text."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{begin}\n\n{tables}\n\n{END}{after}", encoding="utf-8")


def plot(results: Results, path: Path) -> None:
    """Events a second against the number of filters: the engine, and numpy by hand."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.2))
    for name in dict.fromkeys(each.workload for each in results.throughput):
        points = [each for each in results.throughput if each.workload == name]
        sizes = [each.filters for each in points]
        (line,) = axes.loglog(sizes, [each.events_per_cpu_s for each in points], "o-", label=name)
        compared = [each for each in points if each.by_hand_per_cpu_s is not None]
        if compared:
            axes.loglog(
                [each.filters for each in compared],
                [each.by_hand_per_cpu_s or 0 for each in compared],
                "s:",
                color=line.get_color(),
                label=f"{name}, numpy by hand",
            )
    axes.set_xlabel("filters")
    axes.set_ylabel("events a second of CPU time, one thread")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
