"""What clients of the multicast study want."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio_studies.multicast_interests import (
    ATTRIBUTES,
    FIRST,
    decay_for,
    drawn_events,
    drawn_interests,
)

BROKERS = 6
REGIONS = np.arange(BROKERS) % 3


@pytest.mark.parametrize("regionalism", [0.0, 0.5, 1.0])
def test_destinations_are_those_of_comparing_each_pair(regionalism: float) -> None:
    random = np.random.default_rng(5)
    wishes = drawn_interests(random, np.repeat(np.arange(BROKERS), 20), 0.6, regionalism, REGIONS)
    events = drawn_events(random, 200, 2, 3, None)
    expected = np.zeros((200, BROKERS), np.bool_)
    for row in range(200):
        for wish in range(len(wishes.brokers)):
            is_wanted = all(
                not wishes.named[wish, at] or wishes.values[wish, at] == events.values[row, at]
                for at in range(ATTRIBUTES)
            ) and wishes.regions[wish] in {-1, events.regions[row]}
            expected[row, wishes.brokers[wish]] |= is_wanted
    found = wishes.destinations(wishes.indexed(), events, BROKERS)
    assert (found == expected).all()
    assert found.any()
    assert not found.all()


@pytest.mark.parametrize(("match", "regionalism"), [(0.1, 0.0), (0.03, 0.0), (0.03, 0.9)])
def test_so_many_pairs_match_as_the_decay_was_chosen_for(match: float, regionalism: float) -> None:
    random = np.random.default_rng(1)
    decay = decay_for(match, regionalism, 3)
    wishes = drawn_interests(
        random, np.repeat(np.arange(BROKERS), 400), decay, regionalism, REGIONS
    )
    pairs = len(wishes.indexed().match(drawn_events(random, 2_000, 2, 3, None).batch()).rows)
    assert pairs / (2_000 * 2_400) == pytest.approx(match, rel=0.1)


def test_a_match_rate_out_of_reach_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no decay"):
        decay_for(0.5)
    with pytest.raises(InvalidInput, match="no decay"):
        decay_for(0.1, 1.0, 10)


def test_popularity_decays_and_regions_are_those_of_the_broker() -> None:
    brokers = np.repeat(np.arange(BROKERS), 2_000)
    wishes = drawn_interests(np.random.default_rng(2), brokers, 0.5, 0.25, REGIONS)
    named = wishes.named.mean(axis=0)
    assert named[:3] == pytest.approx([FIRST, FIRST / 2, FIRST / 4], rel=0.05)
    is_regional = wishes.regions >= 0
    assert is_regional.mean() == pytest.approx(0.25, rel=0.1)
    assert (wishes.regions == REGIONS[brokers])[is_regional].all()


def test_events_are_of_random_regions_or_of_their_publishers() -> None:
    homes = np.array([2, 0])
    local = drawn_events(np.random.default_rng(3), 300, 2, 3, homes)
    assert (local.regions == homes[local.publishers]).all()
    anywhere = drawn_events(np.random.default_rng(3), 300, 2, 3, None)
    assert set(anywhere.regions.tolist()) == {0, 1, 2}
