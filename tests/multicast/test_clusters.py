"""Clusters by interest and by location."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.multicast.broker_sets import masks_of
from palio.multicast.clustered import (
    clusters_of,
    likeness_by_interest,
    likeness_by_location,
    regionalism,
)
from palio.multicast.traffic import GroupTraffic
from tests.multicast.plans import RING, ring_of, some_traffic

REGIONS = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def regional(seed: int, share: float) -> GroupTraffic:
    """Events that a region wants with this probability, and else anybody."""
    random = np.random.default_rng(seed)
    names = [f"b{place}" for place in range(9)]
    counted = []
    for _ in range(400):
        if random.random() < share:
            here = REGIONS[random.integers(3)]
        else:
            here = random.permutation(9)[:3].tolist()
        counted.append(([names[place] for place in here], 1.0))
    return GroupTraffic.of(names, counted)


def test_brokers_are_as_alike_as_their_events() -> None:
    traffic = some_traffic(2)
    masks = masks_of(traffic.sets, RING)
    found = likeness_by_interest(traffic)
    for one in range(RING):
        for other in range(RING):
            both = traffic.shares[masks[:, one] & masks[:, other]].sum()
            either = traffic.shares[masks[:, one] | masks[:, other]].sum()
            assert found[one, other] == pytest.approx(both / either)


@pytest.mark.parametrize("size", range(1, 11))
def test_clusters_have_each_broker_once_and_nearly_one_size(size: int) -> None:
    found = clusters_of(likeness_by_interest(some_traffic(3)), size)
    assert sorted(place for each in found for place in each) == list(range(RING))
    sizes = {len(each) for each in found}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


def test_regions_are_found_from_interest_alone() -> None:
    assert clusters_of(likeness_by_interest(regional(5, 0.8)), 3) == REGIONS


def test_clusters_by_location_are_neighbours() -> None:
    brokers = tuple(f"b{place}" for place in range(6))
    line: dict[str, dict[str, int]] = {name: {} for name in brokers}
    for one, other, weight in (("b0", "b3", 1), ("b3", "b1", 9), ("b1", "b5", 1), ("b5", "b2", 9),
                               ("b2", "b4", 1)):  # fmt: skip
        line[one][other] = line[other][one] = weight
    assert clusters_of(likeness_by_location(brokers, line), 2) == [[0, 3], [1, 5], [2, 4]]


def test_location_is_known_of_all_brokers() -> None:
    with pytest.raises(InvalidInput, match="no place for broker 'b9'"):
        likeness_by_location(("b0", "b9"), ring_of(4))
    with pytest.raises(InvalidInput, match="no path leads"):
        likeness_by_location(("b0", "b9"), {**ring_of(4), "b9": {}})


def test_regionalism_grows_with_the_share_of_regional_events() -> None:
    found = [regionalism(regional(6, share), REGIONS) for share in (0.0, 0.5, 1.0)]
    assert found[0] == pytest.approx(0.0, abs=0.05)
    assert found[1] == pytest.approx(0.5, abs=0.08)
    assert found[2] == 1.0
    alone = GroupTraffic.of(["b1", "b2"], [(["b1"], 1)])
    assert regionalism(alone, [[0], [1]]) == 0.0
