"""Kinds are drawn alike or not; an object keeps to what it advertised."""

from __future__ import annotations

from collections import Counter

import pytest

from palio.simulation.randomness import Randomness
from palio_studies.siena_interests import KINDS, ManyKinds


@pytest.mark.parametrize(
    ("skew", "share"), [(0.0, 0.1), (1.0, 1 / sum(1 / r for r in range(1, 11)))]
)
def test_the_first_kind_is_wanted_as_often_as_the_skew_says(skew: float, share: float) -> None:
    interests, random = ManyKinds(skew), Randomness(1)
    wanted = Counter(
        str(interests.filter(party, random)).partition(" AND ")[0] for party in range(4_000)
    )
    assert len(wanted) == KINDS
    assert wanted["kind = 0"] / 4_000 == pytest.approx(share, abs=0.03)


def test_an_object_publishes_what_it_advertised() -> None:
    interests, random = ManyKinds(1.0), Randomness(1)
    for thing in range(20):
        advertisement = interests.advertisement(thing, random)
        assert all(
            advertisement.announces(interests.event(thing, number, random), open=False)
            for number in range(5)
        )
