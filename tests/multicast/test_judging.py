"""Plans are judged by events that they were not made of."""

from __future__ import annotations

import numpy as np
import pytest

from palio.multicast.listed import ideal
from palio.multicast.plans import LEAST_HELD_OUT, halves, judged, measure
from palio.multicast.traffic import GroupTraffic
from tests.multicast.plans import some_traffic


def counts_of(traffic: GroupTraffic) -> dict[int, float]:
    """By set the events that it had."""
    return dict(zip(traffic.sets[:, 0].tolist(), traffic.counts.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_each_event_is_in_one_half_and_halves_are_alike(seed: int) -> None:
    traffic = some_traffic(seed)
    kept, held_out = (counts_of(each) for each in halves(traffic))
    for one, count in counts_of(traffic).items():
        parts = kept.get(one, 0.0), held_out.get(one, 0.0)
        assert sum(parts) == pytest.approx(count)
        assert abs(parts[0] - parts[1]) < 2
    assert sum(kept.values()) == pytest.approx(sum(held_out.values()), rel=0.2)


def test_single_events_are_dealt_in_no_order_of_their_bits() -> None:
    """Every set of ten brokers once: in the order of bits all with the first would be in a half."""
    sets = np.arange(1, 1 << 10, dtype=np.uint64)[:, None]
    traffic = GroupTraffic.counted([f"b{place}" for place in range(10)], sets)
    kept, held_out = halves(traffic)
    assert (len(kept), len(held_out)) == (512, 511)
    for place in range(10):
        with_it = (held_out.sets[:, 0] >> np.uint64(place) & np.uint64(1)).mean()
        assert with_it == pytest.approx(0.5, abs=0.06)
    assert halves(traffic).held_out.sets.tolist() == held_out.sets.tolist(), "it is chance"


def test_costs_are_those_of_events_held_out_and_the_plan_is_made_of_all() -> None:
    traffic = some_traffic(1)
    made, report = judged(ideal, traffic)
    kept, held_out = halves(traffic)
    assert made.group_count == report.groups == len(traffic)
    expected = measure(ideal(kept), held_out)
    assert (report.links, report.price) == (expected.links, expected.price)
    assert report.links > 0 == measure(made, traffic).links
    assert report.joins == made.joins.mean()
    assert report.most_joins == made.joins.max()
    assert report.held_out == held_out.events


@pytest.mark.parametrize("fewer", [0, 1])
def test_so_few_events_are_not_held_out(fewer: int) -> None:
    counted = [([f"b{place % 5}", "b9"], 1) for place in range(2 * LEAST_HELD_OUT - fewer)]
    _, report = judged(ideal, GroupTraffic.of([f"b{place}" for place in range(10)], counted))
    assert report.held_out == (0 if fewer else LEAST_HELD_OUT)
