"""The runs of the multicast study, at a size that takes no time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from palio.multicast.broker_sets import words_of
from palio.multicast.clustered import ClusteredGroups
from palio.multicast.documents import pack
from palio.multicast.listed import ListedGroups
from palio.multicast.merging import approximated
from palio_studies.multicast_prices import run_prices
from palio_studies.multicast_queues import EVENT_BYTES, run_latency
from palio_studies.multicast_runs import (
    ANEW,
    EVERY,
    FEW,
    FIXED,
    KEPT,
    MEMBERSHIP_BYTES,
    renewed,
    run_approximation,
    run_drift,
    run_groups,
    run_links,
    upkeep_of,
)
from palio_studies.multicast_scenes import (
    METHODS,
    NON_REGIONAL,
    PUBLISHER_REGIONAL,
    REGIONAL,
    Clientele,
)
from palio_studies.study import Point, Row, Value
from tests.studies.test_multicast_network import small_wan, walked

Run = Callable[[Point], list[Row]]

COMMON: dict[str, Value] = {
    "kind": REGIONAL,
    "match": 1.0,
    "regionalism": 0.5,
    "stubs": 1,
    "events": 40,
}
QUEUED: dict[str, Value] = {**COMMON, "groups": 20, "rate": 500.0, "ambient": 0.3}
PRICED: dict[str, Value] = {**COMMON, "events": 30, "groups": 600}
CHANGING: dict[str, Value] = {
    "match": 0.1,
    "drift": 0.3,
    "stubs": 1,
    "learned": 200,
    "events": 20,
    "groups": 40,
    "periods": 5,
}
RUNS: list[tuple[Run, dict[str, Value]]] = [
    (run_links, {**COMMON, "groups": 20}),
    (run_latency, QUEUED),
    (run_approximation, {**COMMON, "groups": 20}),
    (run_prices, PRICED),
    (run_drift, CHANGING),
]


@pytest.mark.parametrize(("run", "parameters"), RUNS)
def test_a_run_depends_on_its_point_alone(run: Run, parameters: dict[str, Value]) -> None:
    rows = run(Point("x", parameters, 1))
    assert rows == run(Point("x", dict(reversed(parameters.items())), 1))
    assert rows != run(Point("x", parameters, 2))
    assert len({tuple(row) for row in rows}) == 1, "rows differ in their columns"
    assert not {*rows[0]} & {*parameters, "seed"}, "a parameter is measured"


@pytest.mark.parametrize("kind", [NON_REGIONAL, REGIONAL, PUBLISHER_REGIONAL])
def test_all_methods_bring_events_to_all_who_want_them(kind: str) -> None:
    rows = run_links(Point("x", {**COMMON, "kind": kind, "groups": 20}, 1))
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        assert row["missed"] == 0
        assert float(row["links"]) >= float(rows[0]["links"])
        assert float(row["precision"]) == pytest.approx(
            float(row["wanted"]) / (float(row["wanted"]) + float(row["waste"]))
        )


def test_total_regionalism_is_found_and_stays_within_a_region() -> None:
    everywhere, regional, local = (
        run_links(Point("x", {**COMMON, "kind": kind, "regionalism": degree, "groups": 20}, 1))[0]
        for kind, degree in ((REGIONAL, 0.0), (REGIONAL, 1.0), (PUBLISHER_REGIONAL, 1.0))
    )
    assert float(everywhere["regionalism_found"]) < 0.1
    assert regional["regionalism_found"] == pytest.approx(1.0)
    assert regional["regions_found"] == 1.0
    assert local["backbone"] == 0.0 < float(regional["backbone"])


def test_what_is_sent_at_once_is_matched_twice_and_hop_by_hop_more_often() -> None:
    rows = {row["method"]: row for row in run_latency(Point("x", QUEUED, 1))}
    assert {name for name, row in rows.items() if row["matched"] == 2.0} == {*rows} - {"neighbours"}
    assert float(rows["neighbours"]["matched"]) > 2
    assert all(row["deliveries"] == row["wanted"] for row in rows.values())


def test_groups_are_as_many_as_plans_have() -> None:
    rows = run_groups(Point("groups", {"brokers": 14, "clusters": 3}, 1))
    brokers = tuple(f"b{place}" for place in range(14))
    clusters = [each.tolist() for each in np.array_split(np.arange(14), 3)]
    for row, threshold in zip(rows, (None, 1, 2, 3, 4), strict=True):
        assert row["needed"] == ClusteredGroups(brokers, clusters, threshold).group_count


def test_more_groups_waste_less() -> None:
    few, many = (
        {
            row["method"]: row
            for row in run_approximation(Point("x", {**COMMON, "groups": groups}, 1))
        }
        for groups in (2, 30)
    )
    for name in ("approximated", "approximated, sets known"):
        assert float(many[name]["waste"]) < float(few[name]["waste"])
    assert few["flooding"] == many["flooding"]
    assert float(many["approximated, sets known"]["waste"]) < float(many["approximated"]["waste"])


def test_nothing_is_cheaper_than_the_optimum_and_the_ideal_comes_near() -> None:
    rows = run_prices(Point("x", PRICED, 1))
    assert min(float(row["of_optimum"]) for row in rows) == 1.0
    for row in rows:
        if row["planner"] == "ideal":
            assert 1 <= float(row["of_optimum"]) < 1.5
    told = {(row["planner"], row["by_price"]) for row in rows}
    for planner in ("approximated", "hybrid", "best", "neighbours"):
        assert {(planner, "yes"), (planner, "no")} <= told


def by_method() -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in run_drift(Point("drift", CHANGING, 1)):
        found[str(row["method"])].append(row)
    return found


def test_plans_are_made_anew_when_it_is_time_and_take_effort_then_only() -> None:
    found = by_method()
    assert set(found) == {"ideal", *FIXED, *EVERY, FEW}
    for rows in found.values():
        assert [row["period"] for row in rows] == [1, 2, 3, 4, 5]
        assert not any(row["missed"] for row in rows)
    times = {
        name: [row["period"] for row in rows if row["replan_links"]] for name, rows in found.items()
    }
    assert {name: when for name, when in times.items() if when} == {
        "anew, every 4th": [5],
        "anew, every 2nd": [3, 5],
        ANEW: [2, 3, 4, 5],
        FEW: [2, 3, 4, 5],
    }
    assert found[ANEW][0]["links"] == found[KEPT][0]["links"] == found[FEW][0]["links"]
    assert found[ANEW][2]["links"] != found[KEPT][2]["links"]
    moved = [sum(int(row["moved"]) for row in found[name]) for name in (FEW, ANEW)]
    assert 0 < moved[0] < moved[1]


def test_the_effort_is_that_of_walking_from_each_broker_that_joins_or_leaves() -> None:
    wan = small_wan()
    random = np.random.default_rng(1)
    masks = random.random((7, len(wan.subscribers))) < 0.4
    before, after = (
        ListedGroups("approximated", wan.subscribers, words_of(masks[rows]))
        for rows in ([0, 1, 2, 3, 4], [3, 4, 5, 6])
    )
    found = upkeep_of(wan, before, after)
    root = len(wan.subscribers)
    assert found.moved == masks[[0, 1, 2, 5, 6]].sum()
    assert found.rejoined == masks.sum() + masks[[3, 4]].sum()
    crossed = sum(
        len(walked(wan, root, [broker]))
        for row in (*range(7), 3, 4)
        for broker in np.flatnonzero(masks[row]).tolist()
    )
    told = len(pack(after)) * len(walked(wan, root, list(range(len(wan.brokers)))))
    expected = (told + MEMBERSHIP_BYTES * crossed) / EVENT_BYTES
    assert found.replan_links == pytest.approx(expected)


def test_a_plan_is_made_of_the_period_before_and_keeps_the_number_of_groups() -> None:
    scene = Clientele(CHANGING, 1).scene(200, 10)
    plan = approximated(scene.learned, 12)
    every = "anew, every 2nd"
    assert renewed(every, plan, 2, scene.published, 1) is plan
    same, other = (renewed(every, plan, 3, each, 1) for each in (scene.learned, scene.published))
    assert upkeep_of(scene.wan, plan, same).moved == 0, "of the same events it is the same plan"
    assert upkeep_of(scene.wan, plan, other).moved > 0
    assert other.group_count <= 12
