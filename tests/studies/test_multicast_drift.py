"""Plans in periods in which subscriptions change."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from palio.multicast.broker_sets import words_of
from palio.multicast.listed import ListedGroups
from palio.multicast.merging import approximated
from palio.multicast.packing import pack
from palio_studies.multicast_drift import (
    ANEW,
    EVERY,
    FEW,
    FIXED,
    KEPT,
    MEMBERSHIP_BYTES,
    PlanKeeper,
    run_drift,
    upkeep_of,
)
from palio_studies.multicast_queues import EVENT_BYTES
from palio_studies.multicast_scenes import Clientele
from palio_studies.study import Point, Row, Value
from tests.studies.test_multicast_network import small_wan, walked

COMMON: dict[str, Value] = {
    "match": 0.1,
    "drift": 0.3,
    "stubs": 1,
    "learned": 200,
    "events": 20,
    "groups": 40,
    "periods": 4,
}


def by_method(**others: Value) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for row in run_drift(Point("drift", {**COMMON, **others}, 1)):
        found[str(row["method"])].append(row)
    return found


def test_a_run_depends_on_its_point_alone_and_has_all_methods_in_all_periods() -> None:
    found = by_method()
    assert found == by_method()
    assert set(found) == {"ideal", *FIXED, *EVERY, FEW}
    for rows in found.values():
        assert [row["period"] for row in rows] == [1, 2, 3, 4]
        assert not any(row["missed"] for row in rows)
        assert not {*rows[0]} & {*COMMON, "seed"}, "a parameter is measured"


def test_plans_are_made_anew_when_it_is_time_and_take_effort_then_only() -> None:
    found = by_method(periods=5)
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
        for plan in ([0, 1, 2, 3, 4], [3, 4, 5, 6])
        for row in plan
        for broker in np.flatnonzero(masks[row]).tolist()
    )
    told = len(pack(after)) * len(walked(wan, root, list(range(len(wan.brokers)))))
    expected = (told + MEMBERSHIP_BYTES * crossed) / EVENT_BYTES
    assert found.replan_links == pytest.approx(expected)


def test_a_keeper_looks_at_the_period_before_and_keeps_the_number_of_groups() -> None:
    scene = Clientele(COMMON, 1).scene(200, 10)
    keeper = PlanKeeper(scene.wan, approximated(scene.learned, 12), every=2)
    assert keeper.step(2, scene.published).replan_links == 0
    assert keeper.step(3, scene.learned).moved == 0, "of the same events it is the same plan"
    assert keeper.step(5, scene.published).moved > 0
    assert keeper.plan.group_count <= 12
