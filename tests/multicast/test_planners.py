"""All methods by name, and the best of them."""

from __future__ import annotations

import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.planners import METHODS, PlanLimits, compare, plan
from palio.multicast.plans import PlanReport, measure
from tests.multicast.plans import ring_of, some_traffic


def test_the_best_plan_is_the_cheapest_of_all() -> None:
    traffic = some_traffic(1)
    limits = PlanLimits(groups=20, graph=ring_of(9), send_price=0.5)
    found = compare(traffic, limits)
    assert sorted(name for name, _, _ in found) == sorted(METHODS)
    costs = [
        report.price + 0.5 * (report.sends + report.links)
        for _, _, report in found
        if isinstance(report, PlanReport)
    ]
    assert costs == sorted(costs)
    best = measure(plan(traffic, limits=limits), traffic)
    assert best.price + 0.5 * (best.sends + best.links) == pytest.approx(costs[0])


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
