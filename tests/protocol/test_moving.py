from __future__ import annotations

import numpy as np
import pyarrow as pa

from palio.model.events import stamped
from palio.protocol.messages import Parcel
from palio.protocol.moving import Crossing


def parcel(first: int, count: int, publisher: str = "p") -> Parcel:
    batch = pa.record_batch({"x": pa.array(range(count), pa.int64())})
    return Parcel(publisher, stamped(batch, first, 0))


def test_what_comes_on_both_ways_is_given_on_once() -> None:
    crossing = Crossing()
    every = np.ones(3, np.bool_)
    assert crossing.first_time(parcel(1, 3), every).tolist() == [True, True, True]
    assert crossing.first_time(parcel(3, 3), every).tolist() == [False, True, True]
    assert crossing.first_time(parcel(1, 3, "q"), every).tolist() == [True, True, True]


def test_a_row_that_was_not_for_us_may_come_later() -> None:
    crossing = Crossing()
    assert crossing.first_time(parcel(1, 2), np.array([True, False])).tolist() == [True, False]
    assert crossing.first_time(parcel(1, 2), np.ones(2, np.bool_)).tolist() == [False, True]
