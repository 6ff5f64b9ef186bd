"""The study as a whole: its figures and claims are about what it runs."""

from __future__ import annotations

import pytest

from palio_studies.drawing import series_of
from palio_studies.names import Scale
from palio_studies.results import Results
from palio_studies.siena import STUDY
from palio_studies.study import Figure, Point, Row

ROWS: dict[str, list[Row]] = {}


def cheapest(experiment: str) -> Point:
    """A point that is quick to run, of the smallest scale at which the experiment is run."""
    own = STUDY.experiment(experiment)
    for scale in Scale:
        points = list(own.points(scale))
        if points:
            return min(points, key=own.weight)
    raise AssertionError(f"{experiment} has no points")


def rows_of(experiment: str) -> list[Row]:
    if experiment not in ROWS:
        point = cheapest(experiment)
        found = STUDY.experiment(experiment).run(point)
        ROWS[experiment] = [{**point.parameters, "seed": 1, **row} for row in found]
    return ROWS[experiment]


@pytest.mark.parametrize("figure", STUDY.figures, ids=lambda figure: figure.name)
def test_each_figure_finds_its_columns(figure: Figure) -> None:
    rows = [{**row, **figure.where} for row in rows_of(figure.experiment)]
    named = {*figure.where, *figure.lines, figure.x.column, figure.y.column}
    assert named <= rows_of(figure.experiment)[0].keys()
    assert series_of(figure, Results({figure.experiment: rows}))


def test_every_experiment_is_drawn_or_checked() -> None:
    drawn = {each.experiment for each in STUDY.figures}
    assert {each.name for each in STUDY.experiments} - drawn <= {"wanted"}
