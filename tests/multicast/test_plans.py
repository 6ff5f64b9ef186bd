"""What every plan keeps: nobody who wants an event misses it; and what plans cost."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.multicast.broker_sets import masks_of, words_of
from palio.multicast.listed import flooding
from palio.multicast.planners import METHODS
from palio.multicast.plans import explain, measure, received
from tests.multicast.plans import RING, every_plan, some_traffic


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_misses_a_destination(seed: int) -> None:
    traffic = some_traffic(seed, sets=35)
    plans = every_plan(traffic, groups=60)
    assert {each.method for each in plans} >= set(METHODS) - {"hybrid"}
    everything = words_of(masks_of(np.arange(1 << RING, dtype=np.uint64)[:, None], RING))
    for made in plans:
        publishers = range(RING) if made.method == "neighbours" else (0,)
        for publisher in publishers:
            got = masks_of(received(made, made.sends(everything, publisher)), RING)
            wanted = masks_of(everything, RING)
            if made.method == "neighbours":
                wanted[:, publisher] = False
            assert not (wanted & ~got).any(), (seed, made.method)
            assert not got[0].any(), "what nobody wants is sent"


@pytest.mark.parametrize("seed", range(5))
def test_a_report_is_what_sends_one_by_one_add_up_to(seed: int) -> None:
    traffic = some_traffic(seed)
    prices = np.random.default_rng(seed).random(RING) + 0.5
    for made in every_plan(traffic):
        if made.method == "neighbours":
            continue
        sends = links = reached = price = 0.0
        for row, share in zip(traffic.sets, traffic.shares, strict=True):
            one = made.sends(row[None, :])
            got = masks_of(received(made, one), RING)[0]
            sends += share * len(one.groups)
            links += share * masks_of(one.by_link, RING).sum()
            reached += share * got.sum()
            price += share * float(prices[got].sum())
        report = measure(made, traffic, prices)
        found = (report.sends, report.links, report.waste, report.price)
        expected = (sends, links, reached - traffic.destinations, price)
        assert found == pytest.approx(expected, abs=1e-9)
        assert report.precision == pytest.approx(traffic.destinations / reached)


@pytest.mark.parametrize("seed", range(5))
def test_joins_are_the_groups_that_a_broker_is_in(seed: int) -> None:
    for made in every_plan(some_traffic(seed)):
        members = masks_of(made.members(np.arange(made.group_count)), RING)
        assert members.sum(axis=0).tolist() == made.joins.tolist(), made.method
        assert members.any(axis=1).all(), "a group has nobody"
        assert len(np.unique(members, axis=0)) == len(members) or made.method in {
            "neighbours",
            "hybrid",
        }


def test_the_way_of_an_event_names_those_who_get_it_in_vain() -> None:
    plan = flooding(("b1", "b2", "b3"))
    assert explain(plan, ["b1", "b2"]) == ["group 0 of b1, b2, b3: in vain to b3"]
    assert explain(plan, []) == ["nobody wants it: it is not sent"]
    with pytest.raises(InvalidInput, match="'b9' is no broker"):
        explain(plan, ["b1"], publisher="b9")
