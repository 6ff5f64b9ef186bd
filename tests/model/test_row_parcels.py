"""Parcels that are given as mappings, and those that are columns: routers see no difference."""

from __future__ import annotations

import numpy as np
import pytest

from palio.model.events import to_batch
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel

EVENTS = [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_selection_keeps_numbers_source_and_epoch() -> None:
    parcel = RowParcel("p", EVENTS, first_seq=4, source="b1", epoch=2)
    some = parcel.select(np.array([True, False, True]))
    assert (some.publisher, some.source, some.epoch) == ("p", "b1", 2)
    assert (some.seqs, some.numbers.tolist(), list(some.rows)) == (
        (4, 6),
        [4, 6],
        [{"a": 1}, {"a": 3}],
    )
    assert parcel.select(np.array([True, True, True])) is parcel


def test_one_event_is_given_as_it_is() -> None:
    assert RowParcel("p", [{"a": 1}]).event == {"a": 1}
    assert RowParcel("p", EVENTS).event is None
    assert RowParcel("p", []).event is None


def test_rows_of_several_shapes_are_no_one_batch() -> None:
    parcel = RowParcel("p", [{"a": 1}, {"a": "x"}])
    assert [each.num_rows for each in parcel.batches] == [1, 1]
    with pytest.raises(ValueError, match="too many values"):
        _ = parcel.batch


def test_other_events_under_the_same_numbers() -> None:
    parcel = RowParcel("p", EVENTS[:2], first_seq=8).replace([{"b": 1}, {"b": 2}])
    assert (parcel.seqs, parcel.rows) == ((8, 9), ({"b": 1}, {"b": 2}))


def test_a_change_of_what_was_given_changes_no_parcel() -> None:
    event = {"a": 1}
    parcel = RowParcel("p", [event])
    event["a"] = 2
    assert parcel.event == {"a": 1}


def test_columns_and_values_are_rows_when_asked_for() -> None:
    batch = Parcel("", to_batch({"a": 1})).stamped("p", 7, 0)
    lone = Parcel.of("", to_batch({"a": 1})).stamped("p", 7, 0)
    assert batch.seqs == lone.seqs == (7,)
    assert list(batch.rows) == list(lone.rows)
    assert batch.event is None
    assert lone.event == lone.rows[0]
    assert (lone.source, lone.epoch) == (None, 0)
