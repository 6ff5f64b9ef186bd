"""The figures of `routing_parameters`: what was measured, and the factors against the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

from benchmarks.routing_parameters import RESUBSCRIPTIONS, SERVICES_US, US_PER_MS, WAYS

mpl.use("Agg")
from matplotlib import pyplot as plt

Row = dict[str, Any]

MEASURES: Final = {
    "delay_ms": "delay, ms",
    "spurious": "spurious events",
    "delivered": "events delivered",
    "messages": "requests on links",
}
PAPER: Final = {"delay": 6.0, "throughput": 8.0}
"""The greatest factors that the paper reports. (Spurious events are too few for a line.)"""
TICKS: Final = (1, 2, 3, 6, 10, 20, 50, 100)
PAPER_SCALING: Final = 2.25
"""Its factor of throughput at 1,000 updates a second and subscriber."""


def draw_measures(rows: list[Row], service_ms: float, path: Path) -> None:
    """A panel for each workload and measure, a line for each way, at one service time."""
    names = _workloads(rows)
    figure, panels = plt.subplots(
        len(names), len(MEASURES), figsize=(3.6 * len(MEASURES), 2.8 * len(names)), squeeze=False
    )
    for panel_row, name in zip(panels, names, strict=True):
        for panel, (column, title) in zip(panel_row, MEASURES.items(), strict=True):
            for way in WAYS:
                points = [
                    (row["updates_per_s"], row[column])
                    for row in rows
                    if (row["workload"], row["way"]) == (name, way.name)
                    and row["service_ms"] == service_ms
                    and row["joined"]
                ]
                panel.plot(*zip(*points, strict=True), marker="o", markersize=4, label=way.name)
            panel.set(xscale="log", title=f"{name}: {title}")
            panel.set_ylim(bottom=0)
            panel.set_xlabel("updates a second")
            panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize="small")
    figure.suptitle(f"A broker works {service_ms} ms on a request or event")
    _save(figure, path)


def draw_factors(rows: list[Row], path: Path) -> None:
    """A panel for each workload and factor, a line for each service time and order."""
    names = _workloads(rows)
    figure, panels = plt.subplots(
        len(names), len(PAPER), figsize=(5 * len(PAPER), 3 * len(names)), squeeze=False
    )
    for panel_row, name in zip(panels, names, strict=True):
        for panel, (column, paper) in zip(panel_row, PAPER.items(), strict=True):
            for number, service_us in enumerate(SERVICES_US):
                for way, style in zip(RESUBSCRIPTIONS, ("-", ":"), strict=True):
                    points = [
                        (row["updates_per_s"], row[column])
                        for row in rows
                        if (row["workload"], row["way"]) == (name, way.name)
                        and row["service_ms"] == service_us / US_PER_MS
                        and row["joined"]
                        and row[column] is not None
                    ]
                    if points:
                        label = f"{service_us / US_PER_MS} ms, {way.name}"
                        xs, ys = zip(*points, strict=True)
                        panel.plot(xs, ys, style, color=f"C{number}", marker=".", label=label)
            told = PAPER_SCALING if (name, column) == ("scaling", "throughput") else paper
            panel.axhline(told, color="black", linestyle="--", linewidth=0.8)
            panel.axhline(1, color="grey", linewidth=0.6)
            panel.set(xscale="log", yscale="log", title=f"{name}: {column} (paper: {told:g})")
            panel.set_yticks(TICKS, [str(tick) for tick in TICKS], minor=False)
            panel.set_yticks([], minor=True)
            top = max(told, *(row[column] for row in rows if row["workload"] == name))
            panel.set_ylim(0.9, 1.4 * top)
            panel.set_xlabel("updates a second")
            panel.grid(alpha=0.3)
    panels[0][1].legend(fontsize="x-small", ncols=2, loc="upper left")
    figure.suptitle("Re-subscription against UPD: factors in favour of UPD")
    _save(figure, path)


def _workloads(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["workload"] for row in rows))


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
