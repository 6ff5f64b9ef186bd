"""Points have names that depend on nothing but themselves; all studies are there, whole."""

from __future__ import annotations

import pytest

from palio.errors import InvalidInput
from palio_studies.names import STUDIES, Scale
from palio_studies.results import Results
from palio_studies.study import (
    Claim,
    Experiment,
    Point,
    Row,
    Study,
    grid,
    points_at,
    points_of,
    study_named,
    with_seeds,
)

CLAIMS = [(name, claim) for name in STUDIES for claim in study_named(name).claims]


def no_rows(_: Point) -> list[Row]:
    return []


def test_a_name_does_not_depend_on_the_order_of_parameters() -> None:
    one = Point("costs", {"a": 1, "b": 2}, 1)
    assert one.name == Point("costs", {"b": 2, "a": 1}, 1).name
    others = [
        Point("costs", {"a": 1, "b": 2}, 2),
        Point("costs", {"a": 1, "b": 3}, 1),
        Point("other", {"a": 1, "b": 2}, 1),
        Point("costs", {"a": 1}, 1),
    ]
    assert len({one.name, *(each.name for each in others)}) == 5


def test_points_have_each_seed_and_the_longest_come_first() -> None:
    experiment = Experiment(
        "sizes",
        no_rows,
        lambda scale: with_seeds("sizes", [{"n": 1}, {"n": 100}], 1 if scale == "small" else 3),
        weight=lambda point: float(point.parameters["n"]),
    )
    study = Study("a", "A", "", "", (), (experiment,), (), ())
    assert [point.parameters["n"] for point in points_of(study, Scale.SMALL)] == [100, 1]
    found = points_of(study, Scale.PAPER)
    assert [point.parameters["n"] for point in found] == [100] * 3 + [1] * 3
    assert {point.seed for point in found} == {1, 2, 3}


def test_points_are_those_of_a_scale() -> None:
    points = points_at("a", {Scale.SMALL: grid(n=[1, 2], m=[3])}, {Scale.SMALL: 2, Scale.PAPER: 9})
    found = [
        (point.parameters["n"], point.parameters["m"], point.seed) for point in points(Scale.SMALL)
    ]
    assert found == [(1, 3, 1), (1, 3, 2), (2, 3, 1), (2, 3, 2)]
    assert points(Scale.PAPER) == []


def test_an_unknown_study_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'podc' is no study; it is one of"):
        study_named("podc")


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_whole(name: str) -> None:
    study = study_named(name)
    assert study.name == name
    assert study.title
    assert study.paper
    assert study.method
    experiments = {each.name for each in study.experiments}
    assert {figure.experiment for figure in study.figures} <= experiments
    for what in (study.figures, study.claims, study.choices, study.experiments):
        names = [each.name for each in what]
        assert names
        assert len(set(names)) == len(names)
    for scale in Scale:
        points = points_of(study, scale)
        assert points
        assert len({point.name for point in points}) == len(points)
        assert {point.experiment for point in points} <= experiments
    assert {point.experiment for point in points_of(study, Scale.SMALL)} <= experiments


def test_a_cause_that_is_not_computed_says_when_it_was_found() -> None:
    assert [claim.name for _, claim in CLAIMS if bool(claim.reason) != bool(claim.seen)] == []


@pytest.mark.parametrize(("study", "claim"), CLAIMS, ids=lambda one: getattr(one, "name", one))
def test_of_nothing_no_claim_holds_or_fails(study: str, claim: Claim) -> None:
    assert claim.judge(Results({})).holds is None, study


@pytest.mark.parametrize("name", STUDIES)
def test_of_nothing_a_table_has_a_head(name: str) -> None:
    for table in study_named(name).tables:
        assert len(table.cells(Results({}))) == 1, table.name
