"""Group approximation against the greedy choice over all pairs, in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.multicast import merging
from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.listed import flooding
from palio.multicast.merging import approximated, replanned
from palio.multicast.plans import measure
from palio.multicast.traffic import GroupTraffic
from tests.multicast.plans import RING, greedy_waste, some_traffic


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("groups", [3, 8, 20])
def test_the_waste_is_that_of_the_greedy_choice_or_less(seed: int, groups: int) -> None:
    traffic = some_traffic(seed, sets=40)
    expected = greedy_waste(traffic, groups - 1, [1.0] * RING)
    report = measure(approximated(traffic, groups), traffic)
    assert report.groups <= groups
    # Pairs that cost as much lead to different plans; and an event may find a smaller group.
    assert report.waste <= 1.05 * expected


@pytest.mark.parametrize("seed", range(6))
def test_prices_count(seed: int) -> None:
    traffic = some_traffic(seed, sets=40)
    prices = np.random.default_rng(seed).integers(1, 17, RING).astype(np.float64)
    prices[0] = 16
    expected = greedy_waste(traffic, 7, prices.tolist())
    wanted = float(traffic.shares @ (masks_of(traffic.sets, RING) @ prices))
    found = measure(approximated(traffic, 8, prices), traffic, prices)
    assert found.price - wanted <= 1.05 * expected


def test_many_sets_are_absorbed_first_and_cost_little_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traffic = some_traffic(4, brokers=40, sets=1_500, wanted=0.1)
    exact = measure(approximated(traffic, 50), traffic).waste
    monkeypatch.setattr(merging, "EXACT", 200)
    quick = measure(approximated(traffic, 50), traffic).waste
    flooded = measure(flooding(traffic.brokers), traffic).waste
    assert exact <= quick * 1.05
    assert quick < 1.3 * exact
    assert quick < 0.8 * flooded


def test_one_group_has_all_brokers() -> None:
    traffic = some_traffic(1)
    for groups in (1, 2, 9):
        plan = approximated(traffic, groups)
        assert masks_of(plan.groups, RING)[-1].all()
        assert plan.group_count <= groups
    with pytest.raises(InvalidInput, match="one group"):
        approximated(traffic, 0)
    with pytest.raises(InvalidInput, match="above 0"):
        approximated(traffic, 4, np.zeros(RING))


@pytest.mark.parametrize("seed", range(40))
def test_with_as_many_groups_as_sets_nothing_is_sent_in_vain(seed: int) -> None:
    random = np.random.default_rng(seed)
    masks = random.random((int(random.integers(1, 30)), RING)) < 0.5
    masks[0] = True  # all brokers, which every plan has a group for
    masks = np.unique(masks[masks.any(axis=1)], axis=0)
    names = [f"b{place}" for place in range(RING)]
    traffic = GroupTraffic.counted(names, words_of(masks), np.ones(len(masks)))
    report = measure(approximated(traffic, len(masks)), traffic)
    assert (report.groups, report.waste) == (len(masks), 0.0)


@pytest.mark.parametrize("seed", range(40))
def test_equal_traffic_leaves_a_plan_as_it_is_and_other_traffic_never_worse(seed: int) -> None:
    random = np.random.default_rng(seed)
    sets, groups, changes = (int(random.integers(1, most)) for most in (80, 30, 6))
    before, after = some_traffic(seed, sets=sets), some_traffic(seed + 1_000, sets=sets)
    plan = approximated(before, groups)
    for _ in range(3):
        again = replanned(plan, before, changes)
        assert again.group_count == plan.group_count
        assert measure(again, before).waste <= measure(plan, before).waste + 1e-9
    other = replanned(plan, after, changes)
    assert measure(other, after).waste <= measure(plan, after).waste + 1e-9


@pytest.mark.parametrize("changes", [0, 1, 3, 100])
def test_a_new_plan_changes_so_many_groups_and_saves_what_it_can(changes: int) -> None:
    before, after = some_traffic(1), some_traffic(2)
    old = approximated(before, 12)
    new = replanned(old, after, changes)
    kept = {tuple(row) for row in old.groups.tolist()} & {tuple(row) for row in new.groups.tolist()}
    assert new.group_count == old.group_count
    assert old.group_count - len(kept) <= changes
    assert masks_of(new.groups, RING)[-1].all()
    stale, moved = measure(old, after).waste, measure(new, after).waste
    assert moved <= stale + 1e-9
    if changes:
        assert moved < stale
    with pytest.raises(InvalidInput, match="others"):
        replanned(old, some_traffic(1, brokers=5), 1)
