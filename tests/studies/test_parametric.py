from __future__ import annotations

import pytest

from palio_studies import parametric
from palio_studies.drawing import series_of
from palio_studies.names import Scale
from palio_studies.parametric import STUDY
from palio_studies.parametric_workloads import UPD, WAYS
from palio_studies.results import Results
from palio_studies.study import Point, Row, points_of


def rows_of(experiment: str) -> list[Row]:
    """Made up, one for each point of the paper's scale."""
    columns = ("delay_ms", "delivered_per_s", "spurious_per_s", "spurious_share", "missed")
    measured: Row = dict.fromkeys((*columns, "requests_per_s", "doubled_per_s", "unheard"), 9.0)
    measured["cpu_ms_per_s"] = 5.0
    found: list[Row] = []
    for point in points_of(STUDY, Scale.PAPER):
        if point.experiment == experiment:
            each: Row = {"seed": point.seed, **dict(point.parameters), **measured}
            of_brokers: Row = {"way": UPD, "updates_per_s": 10} if experiment == "brokers" else {}
            found.append({**each, **of_brokers})
    return found


@pytest.mark.parametrize("scale", Scale)
def test_all_ways_are_run_on_the_same_seeds(scale: Scale) -> None:
    seen: dict[str, set[tuple[object, ...]]] = {}
    for point in points_of(STUDY, scale):
        of = dict(point.parameters)
        if point.experiment == "brokers" or (point.experiment, scale) == ("scaling", Scale.SMALL):
            continue
        way = str(of.pop("way"))
        seen.setdefault(way, set()).add((point.experiment, *sorted(of.items()), point.seed))
    assert set(seen) == set(WAYS)
    assert len({frozenset(each) for each in seen.values()}) == 1


def test_the_papers_scale_has_five_seeds_and_joins_on_all_sides_or_on_none() -> None:
    points = points_of(STUDY, Scale.PAPER)
    assert {point.seed for point in points} == {1, 2, 3, 4, 5}
    joined = [point.parameters["joined"] for point in points if point.experiment == "adaptation"]
    assert joined.count(True) == joined.count(False)


def test_at_is_run_at_a_thousand_updates_where_brokers_have_two_lines() -> None:
    most = {
        (point.parameters["engine"], point.parameters["joined"], point.parameters["way"])
        for point in points_of(STUDY, Scale.PAPER)
        if point.experiment == "adaptation" and point.parameters["updates_per_s"] == 1_000
    }
    assert most == {("rete", joined, way) for joined in (False, True) for way in WAYS}


def test_without_namespaces_real_brokers_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parametric, "why_not", lambda: "not permitted")
    assert not [point for point in points_of(STUDY, Scale.SMALL) if point.experiment == "brokers"]


def test_every_figure_has_something_to_draw() -> None:
    tables = {each.name: rows_of(each.name) for each in STUDY.experiments}
    results = Results({name: rows for name, rows in tables.items() if rows})
    for figure in STUDY.figures:
        if tables[figure.experiment]:
            assert series_of(figure, results), figure.name


def test_a_small_run_of_each_simulated_experiment_has_the_columns_of_its_figures() -> None:
    ran: dict[str, Row] = {}
    for point in points_of(STUDY, Scale.SMALL):
        if point.experiment != "brokers" and point.experiment not in ran:
            light = Point(point.experiment, {**point.parameters, "updates_per_s": 5}, 1)
            (row,) = STUDY.experiment(point.experiment).run(light)
            ran[point.experiment] = {**row, **dict(point.parameters)}
    for figure in STUDY.figures:
        if figure.experiment in ran:
            wanted = {figure.x.column, figure.y.column, *figure.lines, *figure.where}
            assert wanted <= set(ran[figure.experiment]), figure.name
