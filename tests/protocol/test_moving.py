from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from palio.model.events import stamped
from palio.model.patterns import Occurrence
from palio.protocol.messages import Assembled, Deliver, Parcel, pack_mask, unpack_mask
from palio.protocol.moving import Crossing


def delivered(first: int, *rows: bool, publisher: str = "p", key: int = -1) -> Deliver:
    batch = pa.record_batch({"x": pa.array(range(len(rows)), pa.int64())})
    parcel = Parcel(publisher, stamped(batch, first, 0))
    return Deliver(parcel, pack_mask(np.array(rows)), key)


def first_time(crossing: Crossing, message: Deliver) -> list[bool]:
    fresh = crossing.first_time(message)
    if fresh is None:
        return [False] * len(message.parcel)
    return [bool(each) for each in unpack_mask(fresh.rows, len(fresh.parcel))]


def test_what_comes_on_both_ways_is_given_on_once() -> None:
    crossing, every = Crossing(), (True, True, True)
    assert first_time(crossing, delivered(1, *every)) == [True, True, True]
    assert first_time(crossing, delivered(3, *every)) == [False, True, True]
    assert first_time(crossing, delivered(3, *every)) == [False, False, False]
    assert first_time(crossing, delivered(1, *every, publisher="q")) == [True, True, True]


def test_what_comes_for_two_subscriptions_is_given_on_to_each() -> None:
    crossing = Crossing()
    for key in (-1, 1, 2):
        assert first_time(crossing, delivered(1, True, key=key)) == [True]
        assert first_time(crossing, delivered(1, True, key=key)) == [False]


def test_a_row_that_was_not_for_us_may_come_later() -> None:
    crossing = Crossing()
    assert first_time(crossing, delivered(1, True, False)) == [True, False]
    assert first_time(crossing, delivered(1, True, True)) == [False, True]


def test_an_occurrence_that_both_brokers_found_is_given_on_once() -> None:
    crossing = Crossing()

    def found(key: int, *numbers: int) -> bool:
        at = datetime(2024, 1, 1, tzinfo=UTC)
        parts = tuple(Occurrence(at, "p", number, {"x": number}) for number in numbers)
        return crossing.is_found_first(Assembled(key, parts))

    assert [found(1, 1, 2), found(1, 1, 2), found(2, 1, 2), found(1, 1, 3)] == [
        True,
        False,
        True,
        True,
    ]
