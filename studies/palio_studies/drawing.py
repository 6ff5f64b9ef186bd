"""Pictures of a study: SVG and PNG, and beside each a CSV file with just the numbers drawn."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from math import ceil, isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from palio import files
from palio.errors import InvalidInput
from palio_studies.results import Mean, Results
from palio_studies.study import Figure, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#E69F00", "#56B4E9", "#000000", "#999999"),
)
"""Okabe and Ito's, which the colour-blind can tell apart, and grey instead of their yellow."""
MARKERS: Final = "osD^vPXx"
DASHES: Final = ("-", "--", "-.", ":")
MOST_LINES: Final = len(COLOURS) * len(DASHES)
"""More lines of one picture than this would look the same."""

PANEL_INCHES: Final = (4.6, 3.4)
MAP_INCHES: Final = 7.0
MOST_PANELS_ABREAST: Final = 3
MOST_MARKS: Final = 7
"""So many marks of an axis stand side by side without touching."""
LEGEND_INCHES: Final = 0.2
"""A line of the legend, which would be taken from the panels."""
HANDLE_INCHES: Final = 0.6
LETTER_INCHES: Final = 0.068
"""What the mark of a line and a letter of its name take in a legend, with what is between them."""
ROOM: Final = 2.0
"""How much further than the means a logarithmic axis goes."""
LABEL_LETTERS: Final = 28
"""A label that is longer is cut off beside a panel."""
MOST_BARS: Final = 60
"""In a panel with more error bars nothing else is seen: intervals are bands there."""
DOTS_PER_INCH: Final = 110

_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "palio",
    "svg.fonttype": "path",
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "legend.fontsize": 8.0,
}


class Series(NamedTuple):
    """One line of a figure: its panel, what tells it from the others, and its points in order."""

    panel: Value | None
    line: tuple[Value, ...]
    points: list[tuple[Value, Mean]]


def series_of(figure: Figure, results: Results) -> list[Series]:
    """The lines of a figure, panel by panel; none if its experiment was not run.

    >>> from palio_studies.study import Axis
    >>> figure = Figure("f", "Cost", "costs", Axis("n", "n"), Axis("cost", "cost"))
    >>> series_of(figure, Results({"costs": [{"n": 1, "seed": 1, "cost": 5.0}]}))[0].points[0][0]
    1
    """
    by = ([figure.panels] if figure.panels else []) + [*figure.lines, figure.x.column]
    found: dict[tuple[Value, ...], list[tuple[Value, Mean]]] = {}
    for key, mean in results.mean(
        figure.experiment, figure.y.column, by=by, **figure.where
    ).items():
        found.setdefault(key[:-1], []).append((key[-1], mean))
    return [
        Series(key[0], key[1:], points) if figure.panels else Series(None, key, points)
        for key, points in found.items()
    ]


def drawn_numbers(figure: Figure, series: Sequence[Series]) -> str:
    """The numbers of a figure as CSV: from this and its axes it can be drawn again."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    panel = [figure.panels] if figure.panels else []
    writer.writerow([*panel, *figure.lines, figure.x.column, "mean", "low", "high", "runs"])
    for each in series:
        place = [each.panel] if figure.panels else []
        for x, mean in each.points:
            interval = [mean.low, mean.high] if isfinite(mean.half) else ["", ""]
            writer.writerow([*place, *each.line, x, mean.value, *interval, mean.runs])
    return text.getvalue()


Places: TypeAlias = Mapping[tuple[Value, ...], int]
"""The lines of a figure and their places, which decide what they look like."""


def places_of(figure: Figure, series: Iterable[Series]) -> Places:
    """Number the lines of a figure, of which no more than look different are drawn."""
    lines = dict.fromkeys(each.line for each in series)
    if len(lines) > MOST_LINES:
        raise InvalidInput(
            f"figure {figure.name!r} has {len(lines)} lines, more than the {MOST_LINES} that "
            "look different; pick some with `where`, or make panels"
        )
    return {line: place for place, line in enumerate(lines)}


def draw(figure: Figure, results: Results, home: Path, name: str) -> list[Path]:
    """Write `NAME.svg`, `NAME.png` and `NAME.csv`; nothing if there is nothing to draw."""
    series = series_of(figure, results)
    if not series:
        return []
    strokes = strokes_of(figure, results) if figure.to else {}
    paths = [home / f"{name}{suffix}" for suffix in (".svg", ".png", ".csv")]
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        picture = _map(figure, strokes) if strokes else _picture(figure, series)
        with files.replaced(paths[0]) as file:
            picture.savefig(file, format="svg", metadata={"Date": None})
        with files.replaced(paths[1]) as file:
            picture.savefig(file, format="png", dpi=DOTS_PER_INCH)
    with files.replaced(paths[2]) as file:
        text = _stroke_numbers(figure, strokes) if strokes else drawn_numbers(figure, series)
        file.write(text.encode())
    return paths


Strokes: TypeAlias = Mapping[tuple[Value, ...], Sequence[tuple[float, ...]]]
"""By what tells them apart, from where to where they go."""


def strokes_of(figure: Figure, results: Results) -> Strokes:
    """The strokes of a map, of the first seed: means of places would be no places."""
    columns = (figure.x.column, figure.y.column, *(figure.to or ()))
    found: dict[tuple[Value, ...], list[tuple[float, ...]]] = {}
    for row in results.rows(figure.experiment, seed=1, **figure.where):
        line = tuple(row[name] for name in figure.lines)
        found.setdefault(line, []).append(tuple(float(row[name]) for name in columns))
    return dict(sorted(found.items()))


def _stroke_numbers(figure: Figure, strokes: Strokes) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*figure.lines, figure.x.column, figure.y.column, *(figure.to or ())])
    writer.writerows([*line, *ends] for line, own in strokes.items() for ends in own)
    return text.getvalue()


def _map(figure: Figure, strokes: Strokes) -> Any:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(MAP_INCHES, MAP_INCHES), layout="constrained")
    axes = picture.subplots()
    for place, (line, own) in enumerate(strokes.items()):
        colour = COLOURS[place % len(COLOURS)]
        ends = [((x, y), (to_x, to_y)) for x, y, to_x, to_y in own]
        label = _label(figure.names, line)
        axes.add_collection(LineCollection(ends, colors=colour, linewidths=1.3, label=label))
        along, up = zip(*(end for both in ends for end in both), strict=True)
        axes.plot(along, up, "o", color=colour, markersize=2.5)
    axes.set_aspect("equal")
    axes.set_axis_off()
    _add_legend(picture, [axes], [_label(figure.names, line) for line in strokes])
    return picture


def _picture(figure: Figure, series: Sequence[Series]) -> Any:
    from matplotlib.figure import Figure as Picture

    looks = places_of(figure, series)
    panels = list(dict.fromkeys(each.panel for each in series))
    abreast = 2 if len(panels) == 4 else min(len(panels), MOST_PANELS_ABREAST)
    down = ceil(len(panels) / abreast)
    width, height = PANEL_INCHES
    below = LEGEND_INCHES * ceil(len(looks) / (2 * abreast))  # about two names a panel
    picture = Picture(figsize=(width * abreast, height * down + below), layout="constrained")
    grid = picture.subplots(down, abreast, squeeze=False).flatten()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid, panels, strict=False):
        own = [each for each in series if each.panel == panel]
        (_bars if figure.bars else _lines)(axes, figure, own, looks)
        _dress(axes, figure, panel, own)
    if figure.lines:
        _add_legend(picture, grid[: len(panels)], [_label(figure.names, line) for line in looks])
    return picture


def _add_legend(picture: Any, panels: Iterable[Axes], labels: Sequence[str]) -> None:
    """Below all panels, in as many columns as there is room for."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    width = HANDLE_INCHES + LETTER_INCHES * max(map(len, labels))
    picture.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=max(1, min(len(labels), int(picture.get_figwidth() / width))),
        frameon=False,
    )


def _lines(axes: Axes, figure: Figure, series: Sequence[Series], looks: Places) -> None:
    has_bars = sum(len(each.points) for each in series) <= MOST_BARS
    for each in series:
        place = looks[each.line]
        along, means = [_number(x) for x, _ in each.points], [mean for _, mean in each.points]
        if not has_bars:
            axes.fill_between(
                along,
                [mean.value - mean.bar for mean in means],
                [mean.value + mean.bar for mean in means],
                color=COLOURS[place % len(COLOURS)],
                alpha=0.15,
                linewidth=0,
            )
        axes.errorbar(
            along,
            [mean.value for mean in means],
            yerr=[mean.bar for mean in means] if has_bars else None,
            label=_label(figure.names, each.line),
            color=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            linestyle=DASHES[place // len(COLOURS) % len(DASHES)],
            markersize=4,
            linewidth=1.3,
            capsize=2,
        )


def _bars(axes: Axes, figure: Figure, series: Sequence[Series], looks: Places) -> None:
    lines = list(looks)
    kinds = list(dict.fromkeys(x for each in series for x, _ in each.points))
    width = 0.8 / len(lines)
    for each in series:
        place = lines.index(each.line)
        axes.bar(
            [kinds.index(x) + width * (place - (len(lines) - 1) / 2) for x, _ in each.points],
            [mean.value for _, mean in each.points],
            width,
            yerr=[mean.bar for _, mean in each.points],
            label=_label(figure.names, each.line),
            color=COLOURS[looks[each.line] % len(COLOURS)],
            capsize=2,
        )
    axes.set_xticks(range(len(kinds)), [str(figure.names.get(str(x), x)) for x in kinds])
    if len(kinds) > 4:
        axes.tick_params(axis="x", labelrotation=30)


def _dress(axes: Axes, figure: Figure, panel: Value | None, series: Sequence[Series]) -> None:
    """Labels and scales: an axis of what is never below 0 begins there, unless it is logarithmic,
    and has its marks where something was run, if that was at few places.
    """
    axes.set_xlabel(figure.x.label)
    axes.set_ylabel(fill(figure.y.label, LABEL_LETTERS))
    if figure.x.log:
        axes.set_xscale("log")
        places = sorted({_number(x) for each in series for x, _ in each.points})
        if len(places) <= MOST_MARKS:
            axes.set_xticks(places, [f"{place:,g}" for place in places])
            axes.set_xticks([], minor=True)
    means = [mean.value for each in series for _, mean in each.points]
    if figure.y.log:
        axes.set_yscale("log")
        if min(means) > 0:  # the intervals of few runs may go down to nothing, which is far here
            axes.set_ylim(min(means) / ROOM, max(means) * ROOM)
    elif min(means) >= 0:
        axes.set_ylim(bottom=0)
    if panel is not None:
        shown = figure.names.get(str(panel))
        axes.set_title(shown if shown is not None else f"{figure.panels}: {panel}")


def _number(value: Value) -> float:
    if isinstance(value, str):
        raise InvalidInput(f"{value!r} is no number to draw over; draw bars instead")
    return float(value)


def _label(names: Mapping[str, str], line: tuple[Value, ...]) -> str:
    return ", ".join(names.get(str(part), str(part)) for part in line)
