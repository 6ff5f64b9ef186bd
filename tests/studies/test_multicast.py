"""The multicast study as a whole: what it is made of fits together."""

from __future__ import annotations

import pytest

from palio_studies.drawing import series_of
from palio_studies.multicast import STUDY
from palio_studies.multicast_scenes import decay_for
from palio_studies.names import Scale
from palio_studies.results import Results
from palio_studies.study import Point, Row, Value, points_of


def test_every_figure_draws_what_its_experiment_measures() -> None:
    little: dict[str, Value] = {"events": 10, "groups": 600, "stubs": 1}
    tables: dict[str, list[Row]] = {}
    for experiment in STUDY.experiments:
        match = 1.0
        chosen = {
            point.parameters.get("kind"): point
            for point in experiment.points(Scale.SMALL)
            if point.seed == 1
            and point.parameters.get("match", match) == match
            and (point.parameters.get("regionalism", 0.0) == 0.0)
        }
        tables[experiment.name] = [
            {**point.parameters, "seed": 1, **row}
            for point in chosen.values()
            for row in experiment.run(
                Point(point.experiment, {**point.parameters, **little}, 1)
                if "events" in point.parameters
                else point
            )
        ]
    results = Results(tables)
    for figure in STUDY.figures:
        assert series_of(figure, results), figure.name


@pytest.mark.parametrize("scale", list(Scale))
def test_every_point_asks_for_a_match_rate_within_reach(scale: Scale) -> None:
    for point in points_of(STUDY, scale):
        given = point.parameters
        if "match" in given:
            regions = 5 * int(given.get("stubs", 2))
            degree = float(given.get("regionalism", 0.0))
            decay = decay_for(float(given["match"]) / 100, degree, regions)
            assert 0.01 < decay < 0.99


def test_the_longest_runs_begin_first() -> None:
    points = points_of(STUDY, Scale.PAPER)
    assert points[0].experiment in {"match-rate", "regionalism"}
    assert points[-1].experiment in {"groups", "endpoints", "matching-sets"}
