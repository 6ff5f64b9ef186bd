"""All methods by name, and the best of them."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.broker_sets import words_of
from palio.multicast.planners import METHODS, PlanLimits, compare, plan, planned
from palio.multicast.plans import GroupPlan, halves, measure
from palio.multicast.traffic import GroupTraffic
from tests.multicast.plans import ring_of, some_traffic


def test_the_best_plan_is_the_cheapest_of_all() -> None:
    traffic = some_traffic(1)
    limits = PlanLimits(groups=20, graph=ring_of(9), send_price=0.5)
    found, cannot = compare(traffic, limits)
    assert sorted([*(each.plan.method for each in found), *cannot]) == sorted(METHODS)
    costs = [each.report.price + 0.5 * (each.report.sends + each.report.links) for each in found]
    assert costs == sorted(costs)
    assert plan(traffic, limits=limits).document() == found[0].plan.document()
    best = planned(traffic, limits=limits)
    assert (best.plan.document(), best.report) == (found[0].plan.document(), found[0].report)


def one_by_one(seed: int, events: int) -> GroupTraffic:
    """Events for a quarter of 16 brokers, by chance: hardly any set occurs twice."""
    masks = np.random.default_rng(seed).random((events, 16)) < 0.25
    return GroupTraffic.counted([f"b{place}" for place in range(16)], words_of(masks))


def test_the_best_plan_is_the_cheapest_for_events_to_come() -> None:
    sample, to_come = one_by_one(1, 200), one_by_one(2, 4_000)
    limits = PlanLimits(groups=150)

    def cost(made: GroupPlan, traffic: GroupTraffic) -> float:
        report = measure(made, traffic)
        return report.price + report.sends + report.links

    plans = [each.plan for each in compare(sample, limits).plans]
    by_its_own, best = min(plans, key=lambda made: cost(made, sample)), plans[0]
    assert (by_its_own.method, best.method) == ("approximated", "clustered")
    assert cost(best, to_come) < 0.75 * cost(by_its_own, to_come)
    assert best.method == min(plans, key=lambda made: cost(made, to_come)).method


def test_what_is_judged_by_half_may_still_need_more_groups_than_there_are() -> None:
    """Of half of the events the ideal plan has few enough."""
    sample = one_by_one(1, 200)
    assert len(halves(sample).kept) <= 150 < len(sample)
    assert "ideal" in compare(sample, PlanLimits(groups=150)).impossible


@pytest.mark.parametrize("groups", [1, 8, 9, 30, 200])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_method_uses_more_groups_than_there_may_be(method: str, groups: int) -> None:
    traffic = some_traffic(2)
    limits = PlanLimits(groups=groups, graph=ring_of(9))
    needed = {"ideal": len(traffic), "clustered": 9, "threshold": 9, "hybrid": 18}
    if groups < needed.get(method, 1):
        with pytest.raises(LimitExceeded):
            plan(traffic, method, limits)
        return
    made = plan(traffic, method, limits)
    # Groups of neighbours are for each broker's own neighbours, and known to nobody else.
    assert made.group_count <= groups or method == "neighbours"


def test_what_is_given_is_used() -> None:
    traffic = some_traffic(3)
    given = (("b0", "b4", "b8"), ("b1", "b2", "b3"), ("b5", "b6", "b7"))
    made = plan(traffic, "clustered", PlanLimits(groups=30, clusters=given))
    assert made.document() == {"clusters": [[0, 4, 8], [1, 2, 3], [5, 6, 7]]}
    by_size = plan(traffic, "threshold", PlanLimits(groups=40, cluster_size=5, threshold=2))
    assert by_size.document()["threshold"] == 2
    assert [len(each) for each in by_size.document()["clusters"]] in ([5, 4], [4, 5])


@pytest.mark.parametrize(
    ("method", "limits", "match"),
    [
        ("nonsense", {}, "is no method"),
        ("neighbours", {}, "needs the links"),
        ("clustered", {"clusters": (("b0", "b99"),)}, "'b99'"),
        ("clustered", {"prices": (1.0,)}, "one price for each broker"),
        ("approximated", {"prices": (0.0,) * 9}, "one price for each broker"),
    ],
)
def test_what_cannot_be_is_told(method: str, limits: dict[str, object], match: str) -> None:
    traffic = some_traffic(3)
    with pytest.raises(InvalidInput, match=match):
        plan(traffic, method, PlanLimits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        ({"groups": 0}, "one group"),
        ({"send_price": -1.0}, "price of a send"),
        ({"send_price": float("nan")}, "price of a send"),
    ],
)
def test_limits_are_numbers_that_mean_something(limits: dict[str, float], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        PlanLimits(**limits)  # type: ignore[arg-type]
