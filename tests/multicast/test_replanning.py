"""Changes of a plan by samples of traffic: never dearer, bounded, and none for equal traffic."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.multicast.broker_sets import numbered, rows_of
from palio.multicast.clustered import ClusteredGroups
from palio.multicast.listed import ListedGroups, flooding
from palio.multicast.plans import measure
from palio.multicast.replanning import (
    CHANGES,
    MOST_REPLANNED,
    SAMPLED,
    SentSample,
    TrafficReport,
    can_replan,
    changed,
    read_report,
)
from palio.multicast.traffic import GroupTraffic

NAMES = tuple(f"b{place}" for place in range(6))
ALL = (1 << len(NAMES)) - 1
sets = st.integers(1, ALL)


def plan_of(groups: list[int]) -> ListedGroups:
    rows = np.array(sorted({*groups, ALL}), np.uint64).reshape(-1, 1)
    return ListedGroups("approximated", NAMES, rows)


def groups_of(plan: ListedGroups) -> set[int]:
    return {int(row[0]) for row in plan.groups}


def traffic_of(reports: list[TrafficReport]) -> GroupTraffic:
    """The traffic that reports stand for, both halves together."""
    counted = Counter[int]()
    for report in reports:
        for half in report.halves:
            for digits, count in half.items():
                counted[int(digits, 16)] += count
    rows = np.array(list(counted), np.uint64).reshape(-1, 1)
    return GroupTraffic.counted(NAMES, rows, np.array(list(counted.values()), np.float64))


halves = st.dictionaries(sets.map(lambda bits: f"{bits:x}"), st.integers(1, 9), max_size=8)


@st.composite
def some_reports(draw: st.DrawFn) -> list[TrafficReport]:
    """Reports whose samples are all events, so that their sum is the traffic."""
    several = draw(st.lists(st.tuples(halves, halves), min_size=1, max_size=3))
    size = 72  # each half stands for as many events
    padded = [
        tuple(
            {**half, f"{ALL:x}": size - sum(half.values()) + half.get(f"{ALL:x}", 0)}
            for half in pair
        )
        for pair in several
    ]
    return [TrafficReport(1, size, (one, other)) for one, other in padded]


@given(st.lists(sets, max_size=6), some_reports())
def test_changes_never_waste_more_and_come_to_an_end(
    groups: list[int], reports: list[TrafficReport]
) -> None:
    plan, traffic = plan_of(groups), traffic_of(reports)
    for _ in range(100):
        before = measure(plan, traffic)
        new = changed(plan, reports)
        assert (changed(plan, reports) is None) == (new is None), "equal traffic, equal plan"
        if new is None:
            return
        assert measure(new, traffic).waste < before.waste
        assert new.group_count == plan.group_count
        assert len(groups_of(new) - groups_of(plan)) <= CHANGES
        assert ALL in groups_of(new)
        plan = new
    raise AssertionError("changes of equal traffic go on and on")


def test_sets_that_occur_once_change_nothing() -> None:
    """They would fit the half that proposes, and not the one that judges."""
    plan = plan_of([3, 12])
    one, other = {"5": 1, "9": 1, "11": 1}, {"6": 1, "a": 1, "12": 1}
    assert changed(plan, [TrafficReport(1, 6, (one, other))]) is None
    both = changed(plan, [TrafficReport(1, 6, (one, one))])
    assert both is not None


def test_a_report_weighs_as_much_as_its_broker_sends() -> None:
    plan = plan_of([3])
    busy = TrafficReport(1, 1_000, ({"c": 1}, {"c": 1}))
    idle = TrafficReport(1, 10, ({"3": 100}, {"3": 100}))
    assert groups_of(plan) == {3, ALL}
    new = changed(plan, [busy, idle])
    assert new is not None
    assert groups_of(new) == {15, ALL}
    assert (
        changed(plan, [TrafficReport(1, 10, busy.halves), TrafficReport(1, 1_000, idle.halves)])
        is None
    )


def test_a_sample_is_uniform_and_bounded() -> None:
    sample = SentSample()
    for place in range(40 * SAMPLED):
        sample.add(("b0",) if place % 4 else ("b1",))
    report = read_report(sample.report(7, NAMES))
    assert report is not None
    assert (report.plan, report.events) == (7, 40 * SAMPLED)
    counted = Counter(report.halves[0]) + Counter(report.halves[1])
    assert sum(counted.values()) == SAMPLED
    assert counted["1"] / SAMPLED == pytest.approx(3 / 4, abs=0.1)
    assert all(half["1"] > half["2"] > 0 for half in report.halves)


@pytest.mark.parametrize("count", [SAMPLED - 1, SAMPLED, SAMPLED + 1])
def test_a_sample_has_so_many_events_and_no_more(count: int) -> None:
    sample = SentSample()
    for _ in range(count):
        sample.add(("b0", "b5", "elsewhere"))
    report = read_report(sample.report(7, NAMES))
    assert report is not None
    assert report.events == count
    assert sum(half["21"] for half in report.halves) == min(count, SAMPLED)


def made(events: object = 1, half: object = None, **more: object) -> str:
    return json.dumps({"plan": 1, "events": events, "halves": [half or {}, {}], **more})


@pytest.mark.parametrize(
    "text",
    [
        "", "?", "[" * 5_000, made(events=-1), made(events=1 << 60), made(events=1.5),
        made({}, {"g": 1}), made({}, {"": 1}), made({}, {"f" * (MOST_REPLANNED // 4 + 1): 1}),
        made({}, {"1": 0}), made({}, {"1": SAMPLED + 1}), made(more=1),
        made(1, {f"{bits:x}": 1 for bits in range(SAMPLED + 1)}),
    ],
)  # fmt: skip
def test_what_is_no_report_is_none(text: str) -> None:
    assert read_report(text) is None
    most = made(1 << 53, {f"{bits:x}": SAMPLED for bits in range(SAMPLED)})
    assert read_report(most) is not None


def test_a_report_of_other_brokers_than_the_plan_has_changes_nothing() -> None:
    assert changed(plan_of([3]), [TrafficReport(1, 9, ({"ffc0": 9}, {"ffc0": 9}))]) is None


def test_which_plans_brokers_change() -> None:
    assert can_replan(plan_of([3]))
    assert not can_replan(flooding(NAMES))
    clusters = ClusteredGroups(NAMES, [[0, 1, 2], [3, 4, 5]])
    assert not can_replan(clusters)
    assert changed(clusters, [TrafficReport(1, 9, ({"3": 9}, {"3": 9}))]) is None
    for count in (MOST_REPLANNED - 1, MOST_REPLANNED, MOST_REPLANNED + 1):
        names = tuple(f"b{place}" for place in range(count))
        wide = ListedGroups("approximated", names, rows_of([names], numbered(names)))
        assert can_replan(wide) == (count <= MOST_REPLANNED)
        rows = np.arange(1, count + 1, dtype=np.uint64).reshape(-1, 1)
        many = ListedGroups("approximated", tuple(f"b{place}" for place in range(9)), rows)
        assert can_replan(many) == (count <= MOST_REPLANNED)
