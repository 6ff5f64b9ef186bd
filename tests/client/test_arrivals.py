"""Arrivals: one set of events, whichever form is asked for and kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from palio.client.arrivals import ROWS_A_TAKE, Arrival
from palio.model.events import SEQ, stamped, to_batches
from palio.model.parcels import Parcel


def arrived(count: int) -> Arrival:
    rows: list[dict[str, Any]] = [
        {"x": n, **({"s": "even"} if n % 2 == 0 else {})} for n in range(count)
    ]
    (batch,) = to_batches(rows)
    return Arrival(Parcel("p", stamped(batch, 100, 0)))


@pytest.mark.parametrize("count", [4, ROWS_A_TAKE, ROWS_A_TAKE + 1, 5 * ROWS_A_TAKE])
@pytest.mark.parametrize("shared", [0, 1, 10])
def test_rows_are_the_same_however_they_are_decoded(count: int, shared: int) -> None:
    arrival, whole = arrived(count), arrived(count).batch.to_pylist()
    arrival.share(shared)
    for places in ([0], [count - 1], [0, 2], list(range(count))):
        expected = [
            {name: value for name, value in whole[place].items() if value is not None}
            for place in places
        ]
        assert arrival.rows_at(places) == expected
    assert [arrival.number(place) for place in (0, count - 1)] == [100, 99 + count]


@pytest.mark.parametrize("shared", [0, 10])
@pytest.mark.parametrize("wanted", [1, ROWS_A_TAKE, ROWS_A_TAKE + 1])
def test_few_events_are_kept_without_the_others(shared: int, wanted: int) -> None:
    arrival = arrived(5 * ROWS_A_TAKE)
    arrival.share(shared)
    places = range(0, 2 * wanted, 2)
    few = arrival.picked(places)
    assert few is not None
    assert few.batch.equals(arrival.batch.take(list(places)))
    assert few.rows == arrival.rows_at(places)
    assert (len(few), few.number(0), few.publisher) == (wanted, 100, "p")


def test_where_many_are_wanted_the_batch_is_kept() -> None:
    assert arrived(8).picked(range(3)) is None


def test_events_that_were_picked_are_a_batch_of_the_same_columns() -> None:
    arrival = arrived(ROWS_A_TAKE)
    arrival.share(1)
    few = arrival.picked([1])  # its row has no s
    assert few is not None
    assert few.batch.schema.equals(arrival.batch.schema)
    assert few.batch.column("s").to_pylist() == [None]
    assert few.batch.column(SEQ).equals(pa.array([101]))
