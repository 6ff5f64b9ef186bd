"""Counts of events that match nothing because of their values, without Spark; test_matches.py has
them come from its workers.
"""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest

from palio.spark.attributes import Misfit
from palio.spark.tasks import EVENTS, Counts, Sum, counts_of


def misfit(attribute: str, reason: str, *rows: int) -> Misfit:
    return Misfit(np.array(rows, np.int64), attribute, reason)


def test_values_are_counted_by_attribute_and_reason() -> None:
    found = counts_of([misfit("d", "long", 1, 2), misfit("u", "big", 2), misfit("d", "long", 7)], 3)
    assert found == {EVENTS: 3, ("d", "long"): 3, ("u", "big"): 1}


def test_the_driver_tells_when_ten_times_as_many_have_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "palio.spark")
    adds = Sum(logs=True)
    total: Counts = {}
    told = []
    for number in range(1, 121):
        total = adds.addInPlace(total, {EVENTS: 1, ("d", "it is long"): 2})
        if caplog.records:
            told.append(number)
            caplog.clear()
    assert told == [1, 10, 100]
    assert total == {EVENTS: 120, ("d", "it is long"): 240}


def test_what_is_told_has_the_reasons_with_most_values(caplog: pytest.LogCaptureFixture) -> None:
    more: Counts = {(name, "why"): number for number, name in enumerate("abcdefg", start=1)}
    Sum(logs=True).addInPlace({}, {EVENTS: 9, **more})
    assert caplog.messages == [
        (
            "9 events so far match nothing, because a value of theirs fits no attribute: "
            "g: why (7 values); f: why (6 values); e: why (5 values); d: why (4 values); "
            "c: why (3 values); and 2 more. palio.spark.rejects(events) lists them"
        )
    ]


def test_nothing_is_told_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert Sum(logs=True).addInPlace({}, {}) == {}
    assert Sum(logs=True).addInPlace({}, {EVENTS: 0}) == {EVENTS: 0}
    assert caplog.messages == []


def test_a_worker_counts_and_does_not_tell(caplog: pytest.LogCaptureFixture) -> None:
    copy = pickle.loads(pickle.dumps(Sum(logs=True)))
    assert copy.addInPlace(copy.zero({EVENTS: 7, ("d", "x"): 9}), {EVENTS: 1}) == {EVENTS: 1}
    assert caplog.messages == []
