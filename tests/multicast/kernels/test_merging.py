"""The kernels that merge groups, against plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from palio.multicast import kernels
from palio.multicast.broker_sets import Words, masks_of
from tests.multicast.plans import RING, cheapest_pair, groups_of, some_traffic

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@pytest.mark.parametrize("seed", range(8))
def test_each_pair_that_is_merged_is_the_cheapest_of_all(seed: int) -> None:
    """Step by step, since pairs that cost as much lead to plans that do not."""
    traffic = some_traffic(seed, sets=40)
    before = traffic.sets.copy()
    single = groups_of(traffic)
    last = 0.0
    groups = single
    for left in range(len(traffic) - 1, 0, -1):
        owners, waste = kernels.merge(traffic.sets, traffic.shares, left)
        assert waste - last == pytest.approx(cheapest_pair(groups, [1.0] * RING)[0])
        assert waste == pytest.approx(waste_of(traffic.sets, traffic.shares, owners))
        last = waste
        groups = []
        for owner in np.unique(owners).tolist():
            rows = np.flatnonzero(owners == owner).tolist()
            brokers = frozenset[int]().union(*(single[row][1] for row in rows))
            groups.append((sum(single[row][0] for row in rows), brokers))
        assert len(groups) == left
    assert (traffic.sets == before).all()


def waste_of(sets: Words, shares: Floats, owners: Longs) -> float:
    """How many brokers get an event in vain if each set goes to its whole group."""
    masks = masks_of(sets, 64 * sets.shape[1])
    total = 0.0
    for owner in np.unique(owners):
        rows = owners == owner
        size = masks[rows].any(axis=0).sum()
        total += float(shares[rows] @ (size - masks[rows].sum(axis=1)))
    return total


@pytest.mark.parametrize("seed", range(15))
def test_tails_go_where_they_waste_least(seed: int) -> None:
    traffic = some_traffic(seed, brokers=90, sets=60, wanted=0.1)
    masks = [set(np.flatnonzero(row).tolist()) for row in masks_of(traffic.sets, 90)]
    shares = traffic.shares.tolist()
    heads = [(shares[place], masks[place]) for place in range(10)]
    expected, total = [], 0.0
    for tail in range(10, len(masks)):
        costs = [
            shares[tail] * len(held - masks[tail]) + share * len(masks[tail] - held)
            for share, held in heads
        ]
        into = costs.index(min(costs))
        heads[into] = (heads[into][0] + shares[tail], heads[into][1] | masks[tail])
        expected.append(into)
        total += min(costs)
    owners, waste = kernels.absorb(
        traffic.sets[:10], traffic.shares[:10], traffic.sets[10:], traffic.shares[10:]
    )
    assert owners.tolist() == expected
    assert waste == pytest.approx(total)
