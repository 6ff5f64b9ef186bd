"""Experiments: their points, their rows, and what a row must agree with."""

from __future__ import annotations

import pytest

from palio_studies.names import Scale
from palio_studies.siena_runs import BEHAVIOUR, EXPERIMENTS, MODEL_DEGREE
from palio_studies.simulator.site_networks import STUB_LINKED, TRANSIT_LINKED
from palio_studies.study import Experiment, Point, Row, Value
from tests.studies.simulator.test_site_networks import expected_links

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


def test_the_degree_of_the_model_is_that_of_its_chances() -> None:
    links = 12 + expected_links(4, TRANSIT_LINKED) + 12 * expected_links(8, STUB_LINKED)
    assert pytest.approx(2 * links / 100, abs=1e-4) == MODEL_DEGREE


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
    classes = ("subscription", "advertisement", "notification", "upkeep")
    assert row["total"] == sum(float(row[f"{each}_cost"]) for each in classes) > 0
    assert row["requests"] == 2 * (2 + 2) + 5 * 2
    assert row["published"] == 4
    assert row["subscribed"] == row["delivered"] == 5
    assert row["cost_per_subscription"] == float(row["subscription_cost"]) / 5
    assert row["ignored"] == 3
    assert row["is_below"] is True


def test_one_server_is_not_drawn_below_saturation() -> None:
    (row,) = rows_of("costs", architecture="ce")
    assert row["is_below"] is False
    assert float(row["advertisement_cost"]) > 0


def test_loads_are_ranked_and_begin_with_the_busiest() -> None:
    (whole,) = rows_of("costs")
    rows = rows_of("loads")
    sites = [row["cost"] for row in rows if row["of"] == "site"]
    assert sites[0] == whole["worst_site"]
    assert sites == sorted(sites, reverse=True)
    links = [float(row["cost"]) for row in rows if row["of"] == "link"]
    assert sum(links) == whole["total"]


def test_what_nobody_wants_costs_nothing_in_as_and_the_way_to_the_root_in_hs() -> None:
    (peers,) = rows_of("vain", parties=0, m=1, n=4, p=0)
    (hierarchy,) = rows_of("vain", architecture="hs", parties=0, m=1, n=4, p=0)
    assert peers["total"] == 0
    assert hierarchy["total"] == hierarchy["ignored_cost"]
    assert hierarchy["ignored"] == peers["ignored"] == 4


def test_networks_have_a_row_each() -> None:
    (row,) = BY_NAME["networks"].run(Point("networks", {"sites": 100}, 1))
    assert row["mean_degree"] == 2 * int(row["links"]) / 100
    assert 2 < float(row["mean_hops"]) < int(row["diameter"])


def test_parties_take_part_of_what_an_object_publishes() -> None:
    assert BEHAVIOUR["p"] * BEHAVIOUR["q"] < BEHAVIOUR["m"] * BEHAVIOUR["n"]
