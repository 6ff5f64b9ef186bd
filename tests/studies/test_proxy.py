"""The study as a whole: what it is made of fits together."""

from __future__ import annotations

from palio_studies.drawing import series_of
from palio_studies.names import Scale
from palio_studies.proxy import STUDY
from palio_studies.results import Results
from palio_studies.study import Point, points_of


def test_every_figure_draws_what_its_experiment_measures() -> None:
    tables: dict[str, list[dict[str, bool | int | float | str]]] = {}
    for experiment in STUDY.experiments:
        for point in experiment.points(Scale.SMALL):
            if point.seed == 1 and experiment.name not in tables and not _is_slow(point):
                rows = experiment.run(point)
                tables[experiment.name] = [{**point.parameters, "seed": 1, **row} for row in rows]
    results = Results(tables)
    for figure in STUDY.figures:
        assert series_of(figure, results), figure.name


def _is_slow(point: Point) -> bool:
    return int(point.parameters.get("brokers", 0)) > 5


def test_every_scale_has_runs_and_more_at_paper_scale() -> None:
    counts = {scale: len(points_of(STUDY, scale)) for scale in Scale}
    assert 0 < counts[Scale.SMALL] < counts[Scale.PAPER]
    assert counts[Scale.BEYOND] > 0
