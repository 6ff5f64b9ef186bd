"""What a plan is made for."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.multicast.traffic import GroupTraffic


def test_equal_sets_count_together_and_those_of_nobody_do_not() -> None:
    counted = [(["b1", "b2"], 2), ([], 50), (["b2", "b1"], 1), (["b3"], 1), (["b2"], 0)]
    traffic = GroupTraffic.of(["b1", "b2", "b3"], counted)
    assert sorted(zip(traffic.sets[:, 0].tolist(), traffic.shares.tolist(), strict=True)) == [
        (3, 0.75),
        (4, 0.25),
    ]
    assert traffic.destinations == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("sets", "counts", "match"),
    [
        ([[1, 2]], [1.0], "rows of 1 words"),
        ([[8]], [1.0], "that there is not"),
        ([[1]], [-1.0], "a count"),
        ([[1]], [float("nan")], "a count"),
        ([[1]], [1.0, 2.0], "a count"),
    ],
)
def test_what_is_no_traffic_of_three_brokers_is_refused(
    sets: list[list[int]], counts: list[float], match: str
) -> None:
    with pytest.raises(InvalidInput, match=match):
        GroupTraffic.counted(["b1", "b2", "b3"], np.array(sets, np.uint64), np.array(counts))


def test_no_event_at_all_is_no_traffic() -> None:
    traffic = GroupTraffic.of(["b1"], [])
    assert (len(traffic), traffic.destinations) == (0, 0.0)
