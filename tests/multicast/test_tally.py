"""How many events went to each set."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from palio.multicast import traffic
from palio.multicast.broker_sets import words_of
from palio.multicast.traffic import SetTally


@pytest.mark.parametrize("joined_at", [1, 50, 10_000])
def test_sets_are_counted(joined_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "JOINED_AT", joined_at)
    masks = np.random.default_rng(joined_at).random((900, 70)) < 0.02
    counting = SetTally(70)
    for first in range(0, 900, 130):
        counting.add(words_of(masks[first : first + 130]))
    expected = Counter(map(bytes, words_of(masks)))
    nobody = expected.pop(bytes(16))
    sets, counts = counting.counted()
    assert dict(zip(map(bytes, sets), counts.tolist(), strict=True)) == dict(expected)
    assert (counting.events, counting.unwanted) == (900, nobody)
    again, same = counting.counted()
    assert (again == sets).all()
    assert (same == counts).all()


def test_nothing_is_no_set() -> None:
    sets, counts = SetTally(70).counted()
    assert (sets.shape, counts.shape) == ((0, 2), (0,))
