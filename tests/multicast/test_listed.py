"""Plans that list their groups."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.listed import ListedGroups, flooding, ideal, listed
from palio.multicast.plans import measure, received
from tests.multicast.plans import RING, some_traffic


@pytest.mark.parametrize("seed", range(10))
def test_an_event_goes_to_the_cheapest_group_with_all_who_want_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = random.random((30, RING)) < 0.6
    groups = np.unique(groups[groups.any(axis=1)], axis=0)
    prices = random.random(RING) + 0.1 if seed % 2 else None
    costs = groups @ (np.ones(RING) if prices is None else prices)
    plan = ListedGroups("approximated", tuple("abcdefghi"), words_of(groups), prices)
    wanted = random.random((200, RING)) < 0.4
    sends = plan.sends(words_of(wanted))
    got = masks_of(received(plan, sends), RING)
    linked = masks_of(sends.by_link, RING)
    for row in range(200):
        able = [place for place in range(len(groups)) if not (wanted[row] & ~groups[place]).any()]
        if able and wanted[row].any():
            cost = got[row] @ (np.ones(RING) if prices is None else prices)
            assert cost == pytest.approx(min(costs[able]))
            assert not linked[row].any()
        else:
            assert (linked[row] == wanted[row]).all()


def test_few_sets_and_many_are_sent_alike() -> None:
    """Few are compared with all groups, many by compiled code; in several words, and empty too."""
    random = np.random.default_rng(7)
    brokers = tuple(f"b{place}" for place in range(150))
    plan = ListedGroups("approximated", brokers, words_of(random.random((60, 150)) < 0.7))
    wanted = words_of(random.random((40, 150)) < np.linspace(0, 0.1, 40)[:, None])
    many = plan.sends(wanted)
    for row in range(40):
        few = plan.sends(wanted[row : row + 1])
        assert few.groups.tolist() == many.groups[many.events == row].tolist()
        assert (few.by_link == many.by_link[row]).all()
    assert len(set(many.groups.tolist())) > 3
    assert many.by_link.any()


def test_the_ideal_plan_wastes_nothing() -> None:
    traffic = some_traffic(1)
    report = measure(ideal(traffic), traffic)
    assert (report.sends, report.waste) == pytest.approx((1, 0), abs=1e-9)
    assert report.groups == len(traffic)


def test_the_ideal_plan_says_how_many_groups_it_needs() -> None:
    traffic = some_traffic(1)
    assert ideal(traffic, len(traffic)).group_count == len(traffic)
    with pytest.raises(LimitExceeded, match=f"{len(traffic)} found"):
        ideal(traffic, len(traffic) - 1)


def test_flooding_has_one_group_of_all() -> None:
    plan = flooding(("b1", "b2"))
    assert plan.sends(np.array([[1], [0]], np.uint64)).starts.tolist() == [0, 1, 1]


@pytest.mark.parametrize("groups", [b"\x00", b"\x04", b"\x01\x00", b"\x80\x01"])
def test_a_group_of_a_file_names_brokers_that_there_are(groups: bytes) -> None:
    with pytest.raises(InvalidInput, match="names no broker"):
        listed("ideal", ("b1", "b2"), {"groups": b64encode(groups).decode()})
