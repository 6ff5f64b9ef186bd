from __future__ import annotations

import numpy as np
import pytest

from palio.matching import checking


@pytest.mark.parametrize(
    ("values", "count", "total", "least", "good"),
    [
        ([0, 2, 5], 2, 5, 0, True),
        ([0, 2, 2], 2, 2, 0, True),
        ([0, 2, 2], 2, 2, 1, False),
        ([0, 2, 5], 3, 5, 0, False),
        ([0, 2, 5], 2, 6, 0, False),
        ([1, 2, 5], 2, 5, 0, False),
        ([0, 7, 5], 2, 5, 0, False),
        ([0, -1, 5], 2, 5, 0, False),
        ([0], 0, 0, 1, True),
    ],
)
def test_offsets(values: list[int], count: int, total: int, least: int, good: bool) -> None:
    found = checking.offsets(np.array(values), count, total, least=least)
    assert (found is None) == good


def test_bounds_and_order() -> None:
    assert checking.bounds(np.array([0, 4]), 0, 5) is None
    assert checking.bounds(np.array([0, 5]), 0, 5) is not None
    assert checking.bounds(np.array([-1]), 0, 5) is not None
    assert checking.bounds(np.array([], np.int64), 0, 0) is None
    assert checking.order(np.array([1, 2])) is None
    assert checking.order(np.array([1, 1])) is not None
    assert checking.length([1, 2], 2) is None
    assert checking.length([1, 2], 3) is not None
