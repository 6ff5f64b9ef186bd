"""Sets of brokers as rows of bits."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.broker_sets import (
    MAX_BROKERS,
    distinct,
    masks_of,
    named,
    numbered,
    rows_of,
    sizes_of,
    united,
    words_in,
    words_of,
)


@pytest.mark.parametrize("brokers", [1, 7, 63, 64, 65, 128, 200])
def test_sets_are_the_same_as_masks_and_as_names(brokers: int) -> None:
    masks = np.random.default_rng(brokers).random((50, brokers)) < 0.4
    sets = words_of(masks)
    names = [f"b{place}" for place in range(brokers)]
    listed = [[name for name, held in zip(names, row, strict=True) if held] for row in masks]
    assert sets.shape == (50, words_in(brokers))
    assert (masks_of(sets, brokers) == masks).all()
    assert (rows_of(listed, numbered(names)) == sets).all()
    assert [list(named(row, names)) for row in sets] == listed
    assert sizes_of(sets).tolist() == [len(each) for each in listed]


def test_equal_sets_are_put_together() -> None:
    random = np.random.default_rng(3)
    masks = random.random((300, 70)) < 0.02
    weights = random.random(300)
    sets, sums = distinct(words_of(masks), weights)
    expected: dict[bytes, float] = {}
    for row, weight in zip(masks, weights, strict=True):
        expected[row.tobytes()] = expected.get(row.tobytes(), 0.0) + weight
    found = dict(zip((row.tobytes() for row in masks_of(sets, 70)), sums, strict=True))
    assert found == pytest.approx(expected)


def test_sets_are_united() -> None:
    masks = np.random.default_rng(4).random((40, 90)) < 0.1
    into = np.random.default_rng(5).integers(0, 7, 40)
    expected = [masks[into == place].any(axis=0) for place in range(8)]
    assert (masks_of(united(words_of(masks), into, 8), 90) == expected).all()


def test_brokers_are_named_once_and_are_not_too_many() -> None:
    with pytest.raises(InvalidInput, match="'b1' is named twice"):
        numbered(["b1", "b2", "b1"])
    with pytest.raises(InvalidInput, match="one broker at least"):
        numbered([])
    assert len(numbered(map(str, range(MAX_BROKERS)))) == MAX_BROKERS
    with pytest.raises(LimitExceeded):
        numbered(map(str, range(MAX_BROKERS + 1)))
    with pytest.raises(InvalidInput, match="'b3' is no broker"):
        rows_of([["b3"]], numbered(["b1", "b2"]))
