"""The study as a whole: what it is made of fits together."""

from __future__ import annotations

import msgspec
import pytest

from palio_studies.drawing import series_of
from palio_studies.gryphon import STUDY
from palio_studies.gryphon_workload import MatchingWorkload, held_decay
from palio_studies.names import Scale
from palio_studies.results import Results
from palio_studies.study import Point, points_of


@pytest.mark.parametrize("scale", list(Scale))
def test_every_point_has_a_workload(scale: Scale) -> None:
    for point in points_of(STUDY, scale):
        given = point.parameters
        if given.get("matches"):
            workload = msgspec.convert(dict(given), MatchingWorkload)
            size = int(given["subscriptions"])
            assert 0 < held_decay(workload, float(given["matches"]), size) < 1


def test_every_figure_draws_what_its_experiment_measures_and_times_are_declared() -> None:
    tables = {}
    for experiment in STUDY.experiments:
        point = next(iter(experiment.points(Scale.SMALL)))
        given = dict(point.parameters)
        if "subscriptions" in given:
            given |= {"attributes": 5, "values": 3, "subscriptions": 60}
        rows = experiment.run(Point(point.experiment, given, 1))
        tables[experiment.name] = [{**given, "seed": 1, **row} for row in rows]
        assert {name for name in rows[0] if name.endswith("_us")} == set(experiment.timed)
    results = Results(tables)
    for figure in STUDY.figures:
        assert series_of(figure, results), figure.name


def test_the_largest_runs_begin_first() -> None:
    sizes = [point.parameters.get("subscriptions", 0) for point in points_of(STUDY, Scale.PAPER)]
    assert sizes[0] == 32_000
