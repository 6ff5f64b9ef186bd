"""What is drawn has the popularity, the values and the matches that it says it has."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.matching.reference import Reference
from palio_studies.gryphon_workload import FIRST, LOOSEST, MatchingWorkload, held_decay, zipf

WORKLOADS = [
    MatchingWorkload(6, 4, 0.6),
    MatchingWorkload(6, 10, 0.6, ranges=True),
]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_matches_are_as_likely_as_computed(workload: MatchingWorkload) -> None:
    filters = list(workload.filters(400, np.random.default_rng(1)))
    engine = Reference()
    for key, each in enumerate(filters):
        engine.add(key, each)
    events = workload.events(100, np.random.default_rng(2))
    found = len(engine.match(events).keys) / (400 * 100)
    assert found == pytest.approx(workload.matched, rel=0.2)


def test_attributes_are_tested_as_their_popularity_says() -> None:
    workload = MatchingWorkload(6, 4, 0.6)
    filters = list(workload.filters(2_000, np.random.default_rng(1)))
    asked = Counter(each.name for one in filters for each in one.conjunctions[0].constraints)
    for name, likely in zip(workload.names, workload.popularity, strict=True):
        assert asked[name] / 2_000 == pytest.approx(likely, abs=0.04)
    assert workload.popularity[0] == FIRST


def test_every_subscription_has_a_test() -> None:
    filters = MatchingWorkload(2, 4, 0.1).filters(500, np.random.default_rng(1))
    assert all(each.conjunctions[0].constraints for each in filters)


def test_ranges_are_two_fifths_each_way_and_never_too_loose() -> None:
    workload = MatchingWorkload(3, 10, 1.0, ranges=True)
    tests = [
        each
        for one in workload.filters(1_000, np.random.default_rng(1))
        for each in one.conjunctions[0].constraints
    ]
    kinds = Counter(str(each.op) for each in tests)
    assert {kind: round(count / len(tests), 1) for kind, count in kinds.items()} == {
        "<=": 0.4,
        ">=": 0.4,
        "=": 0.2,
    }
    for each in tests:
        held = sum(each.truth({each.name: value}) is True for value in range(10))
        assert 1 <= held <= 10 * LOOSEST


def test_the_decay_holds_the_matches() -> None:
    for workload in WORKLOADS:
        for size in (60, 1_000):
            decay = held_decay(workload, 3.0, size)
            held = msgspec.structs.replace(workload, decay=decay)
            assert held.matched * size == pytest.approx(3.0)


def test_matches_that_no_decay_gives_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no decay makes 5 of 10"):
        held_decay(MatchingWorkload(30, 10, 0.0), 5.0, 10)


def test_the_second_value_is_half_as_likely_as_the_first() -> None:
    assert zipf(2).tolist() == pytest.approx([2 / 3, 1 / 3])
