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


def test_sizes_have_the_same_parties_for_each_site() -> None:
    points = [each.parameters for each in BY_NAME["sizes"].points(Scale.BEYOND)]
    assert {each["sites"] for each in points} == {100, 1_000, 10_000}
    assert {each["architecture"] for each in points} == {"ce", "hs", "as", "aa"}
    assert all(
        each["parties"] == float(each["parties_per_site"]) * int(each["sites"]) for each in points
    )


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


def test_the_breakdown_is_that_of_the_costs() -> None:
    (whole,) = rows_of("costs", architecture="aa")
    parts = {str(row["what"]): row["amount"] for row in rows_of("breakdown", architecture="aa")}
    assert parts.pop("plain siena") == whole["plain_messages"]
    assert parts.pop("Palio") == whole["messages"]
    assert parts == {
        each: whole[f"{each}_cost"] for each in ("subscription", "advertisement", "notification")
    }


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


def test_covering_saves_subscriptions_where_interests_are_skewed() -> None:
    skewed = {"parties": 60, "skew": 1.0}
    (covered,) = rows_of("interests", **skewed)
    (uncovered,) = rows_of("interests", architecture="fs", **skewed)
    assert float(covered["subscription_cost"]) < 0.8 * float(uncovered["subscription_cost"])
    assert covered["delivered"] == uncovered["delivered"]


def steady(experiment: str, architecture: str, seed: int = 1, /, **parameters: Value) -> Row:
    fixed: dict[str, Value] = {"objects": 10, "parties": 5, "publications": 60}
    given = Point(experiment, fixed | {"architecture": architecture} | parameters, seed)
    (row,) = BY_NAME[experiment].run(given)
    return row


@pytest.mark.parametrize(
    ("experiment", "architecture", "own"),
    [("load", "hs", {"load": 4.0}), ("delegation", "pa", {"sources": 2, "steps": 3})],
)
def test_a_row_depends_on_its_point_alone(
    experiment: str, architecture: str, own: dict[str, Value]
) -> None:
    one, again = (steady(experiment, architecture, **own) for _ in range(2))
    assert one == again
    assert steady(experiment, architecture, 2, **own) != one


def test_the_load_that_is_bearable_is_the_same_at_any_load() -> None:
    rows = [steady("load", "hs", load=load) for load in (0.5, 4.0)]
    assert float(rows[0]["bearable"]) == pytest.approx(float(rows[1]["bearable"]), rel=1e-3)
    assert float(rows[1]["busiest"]) == pytest.approx(8 * float(rows[0]["busiest"]), rel=1e-3)
    assert rows[0]["delivered"] == rows[1]["delivered"]
    assert 0 < float(rows[0]["latency_ms"]) <= float(rows[0]["slow_ms"])
    assert float(rows[0]["latency_ms"]) < float(rows[1]["latency_ms"])


def test_a_hierarchy_bears_less_where_most_is_ignored() -> None:
    hierarchy, peers = (steady("load", each, load=1.0) for each in ("hs", "as"))
    assert hierarchy["at_root"] == 1.0
    assert float(hierarchy["bearable"]) < float(peers["bearable"])
    assert hierarchy["delivered"] == peers["delivered"]


@pytest.mark.parametrize("sources", [1, 2])
def test_delegation_finds_the_same_for_less(sources: int) -> None:
    by_parties, by_servers = (
        steady("delegation", each, sources=sources, steps=3) for each in ("aa", "pa")
    )
    assert by_parties["occurrences"] == by_servers["occurrences"]
    assert int(by_parties["notification_cost"]) > int(by_servers["notification_cost"])
    assert by_parties["carried_cost"] == by_parties["notification_cost"]


def test_composites_count_for_each_of_their_events_in_what_is_carried() -> None:
    row = steady("delegation", "pa", sources=1, steps=3)
    assert int(row["occurrences"]) > 0
    assert row["carried_cost"] == 3 * int(row["notification_cost"]) > 0
