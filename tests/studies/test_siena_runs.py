"""Experiments: their points, their rows, and what a row must agree with."""

from __future__ import annotations

import pytest

from palio_studies.names import Scale
from palio_studies.siena_runs import BEHAVIOUR, EXPERIMENTS
from palio_studies.study import Experiment, Point, Row, Value

BY_NAME = {each.name: each for each in EXPERIMENTS}


def point(experiment: str, **parameters: Value) -> Point:
    fixed: dict[str, Value] = {
        "architecture": "as",
        "objects": 1,
        "parties": 3,
        "sites": 100,
        "m": 2,
        "n": 2,
        "p": 1,
        "q": 1,
    }
    return Point(experiment, fixed | parameters, 1)


def rows_of(experiment: str, **parameters: Value) -> list[Row]:
    return BY_NAME[experiment].run(point(experiment, **parameters))


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
@pytest.mark.parametrize("scale", list(Scale))
def test_every_point_has_a_weight(experiment: Experiment, scale: Scale) -> None:
    assert all(experiment.weight(each) > 0 for each in experiment.points(scale))


def test_the_paper_scale_has_the_sizes_of_the_paper() -> None:
    points = [each.parameters for each in BY_NAME["costs"].points(Scale.PAPER)]
    assert {each["objects"] for each in points} == {1, 10, 100, 1000}
    assert min(each["parties"] for each in points) == 1
    assert max(each["parties"] for each in points) == 10_000
    assert {each["sites"] for each in points} == {100}
    assert max(each.seed for each in BY_NAME["costs"].points(Scale.PAPER)) == 10


def test_with_one_server_the_paper_scale_has_no_more_parties_than_are_affordable() -> None:
    points = [each.parameters for each in BY_NAME["costs"].points(Scale.PAPER)]
    most = {each["architecture"]: 0 for each in points}
    for each in points:
        most[each["architecture"]] = max(most[each["architecture"]], int(each["parties"]))
    assert most == {"ce": 1_000, "hs": 10_000, "as": 10_000, "aa": 10_000}


def test_a_row_of_costs_adds_up() -> None:
    (row,) = rows_of("costs", parties=5)
    classes = ("subscription", "advertisement", "notification")
    assert row["total"] == sum(float(row[f"{each}_cost"]) for each in classes) > 0
    assert row["requests"] == 2 * (2 + 2) + 5 * 2
    assert row["published"] == 4
    assert row["subscribed"] == row["delivered"] == 5
    assert row["cost_per_subscription"] == float(row["subscription_cost"]) / 5
    assert row["is_below"] is True


def test_one_server_is_not_drawn_below_saturation() -> None:
    (row,) = rows_of("costs", architecture="ce")
    assert row["is_below"] is False
    assert float(row["advertisement_cost"]) > 0


def test_what_nobody_wants_costs_nothing_in_as_and_the_way_to_the_root_in_hs() -> None:
    (peers,) = rows_of("vain", parties=0, m=1, n=4, p=0)
    (hierarchy,) = rows_of("vain", architecture="hs", parties=0, m=1, n=4, p=0)
    assert peers["total"] == 0
    assert hierarchy["total"] == hierarchy["notification_cost"] != 0


def test_parties_take_part_of_what_an_object_publishes() -> None:
    assert BEHAVIOUR["p"] * BEHAVIOUR["q"] < BEHAVIOUR["m"] * BEHAVIOUR["n"]
