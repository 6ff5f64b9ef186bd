"""Pictures have what was asked for, and the numbers beside them are those that are drawn."""

from __future__ import annotations

import csv
import re
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest

from palio.errors import InvalidInput
from palio_studies.drawing import (
    MOST_BARS,
    MOST_LINES,
    draw,
    drawn_numbers,
    series_of,
)
from palio_studies.results import Results, mean_of
from palio_studies.study import Axis, Figure, Row
from tests.studies.toy import study

pytestmark = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs palio[studies]")

ROWS: list[Row] = [
    {"size": size, "gait": gait, "seed": seed, "way": float(size * factor + seed)}
    for size in (1, 10)
    for gait, factor in (("fast", 2), ("slow", 1))
    for seed in (1, 2)
]
RESULTS = Results({"walk": ROWS})
WAY, GAITS, NONE = study().figures


def test_lines_are_means_over_seeds() -> None:
    fast, slow = series_of(WAY, RESULTS)
    assert (fast.panel, fast.line, slow.line) == (None, ("fast",), ("slow",))
    assert fast.points == [(1, mean_of([3.0, 4.0])), (10, mean_of([21.0, 22.0]))]


def test_panels_part_lines() -> None:
    found = series_of(GAITS, RESULTS)
    assert [each.panel for each in found] == [1, 10]
    assert [x for x, _ in found[0].points] == ["fast", "slow"]


def test_the_numbers_are_those_drawn(tmp_path: Path) -> None:
    svg, png, data = draw(WAY, RESULTS, tmp_path, "toy-way")
    assert b"<svg" in svg.read_bytes()
    assert png.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(StringIO(data.read_text())))
    assert data.read_text() == drawn_numbers(WAY, series_of(WAY, RESULTS))
    assert [(row["gait"], row["size"], float(row["mean"])) for row in rows] == [
        ("fast", "1", 3.5),
        ("fast", "10", 21.5),
        ("slow", "1", 2.5),
        ("slow", "10", 11.5),
    ]
    assert all(float(row["low"]) < float(row["mean"]) < float(row["high"]) for row in rows)
    assert {row["runs"] for row in rows} == {"2"}


def test_a_picture_is_the_same_when_drawn_again(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in draw(GAITS, RESULTS, tmp_path, "a")]
    assert first == [path.read_bytes() for path in draw(GAITS, RESULTS, tmp_path, "b")]
    assert not re.search(rb"\d{4}-\d\d-\d\dT", first[0])  # no date


def test_one_run_has_no_error_bar(tmp_path: Path) -> None:
    one = Results({"walk": ROWS[:1]})
    assert drawn_numbers(WAY, series_of(WAY, one)).splitlines()[1] == "fast,1,3.0,,,1"
    assert len(draw(WAY, one, tmp_path, "one")) == 3


def test_what_was_not_run_is_not_drawn(tmp_path: Path) -> None:
    assert draw(NONE, RESULTS, tmp_path, "none") == []
    assert not list(tmp_path.iterdir())


def test_more_lines_than_look_different_are_refused(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"size": 1, "gait": str(gait), "seed": 1, "way": 1.0} for gait in range(MOST_LINES + 1)
    ]
    with pytest.raises(InvalidInput, match="33 lines, more than the 32"):
        draw(WAY, Results({"walk": rows}), tmp_path, "many")
    assert draw(WAY, Results({"walk": rows[:-1]}), tmp_path, "many")


def test_names_are_not_drawn_over(tmp_path: Path) -> None:
    figure = Figure("f", "f", "walk", Axis("gait", "gait"), Axis("way", "way"))
    with pytest.raises(InvalidInput, match="draw bars instead"):
        draw(figure, RESULTS, tmp_path, "names")


def test_a_logarithmic_axis_is_marked_where_something_was_run(tmp_path: Path) -> None:
    svg, *_ = draw(WAY, RESULTS, tmp_path, "marks")
    # Text is drawn as paths, each after a comment that has it.
    marks = re.findall(r"<!-- ([\d,.]+) -->", svg.read_text())
    assert marks[:2] == ["1", "10"]


def test_a_map_has_strokes_of_the_first_seed(tmp_path: Path) -> None:
    links = Figure(
        *("map", "Map", "links", Axis("x", "x"), Axis("y", "y")), lines=("kind",), to=("u", "v")
    )
    ends = [("near", 0, 0, 1, 1), ("far", 1, 1, 5, 0)]
    rows: list[Row] = [
        {"seed": seed, **dict(zip(("kind", "x", "y", "u", "v"), each, strict=True))}
        for seed in (1, 2)
        for each in ends
    ]
    paths = draw(links, Results({"links": rows}), tmp_path, "map")
    assert [path.suffix for path in paths] == [".svg", ".png", ".csv"]
    assert paths[2].read_text() == "kind,x,y,u,v\nfar,1.0,1.0,5.0,0.0\nnear,0.0,0.0,1.0,1.0\n"


@pytest.mark.parametrize(("places", "is_band"), [(MOST_BARS, False), (MOST_BARS + 1, True)])
def test_more_bars_than_can_be_told_apart_are_a_band(
    places: int, is_band: bool, tmp_path: Path
) -> None:
    rows: list[Row] = [
        {"size": size, "seed": seed, "gait": "slow", "way": float(size + seed)}
        for size in range(1, places + 1)
        for seed in (1, 2, 3)
    ]
    svg, *_ = draw(WAY, Results({"walk": rows}), tmp_path, "bars")
    assert ("FillBetween" in svg.read_text()) is is_band
