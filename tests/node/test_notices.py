"""What stands for events that a journal cannot give back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from palio.model.parcels import Parcel
from palio.node.notices import ANYBODY, Notice
from palio.protocol.messages import Gap

NOTICE = Notice("ann/1", 7, 9, 2, ("bob/prices", "b2"))


def test_a_notice_is_what_it_was_after_its_way() -> None:
    parcel = NOTICE.parcel
    assert parcel.values is not None
    assert parcel.shape.fits(parcel.values)
    assert Notice.of(parcel) == NOTICE
    assert Notice.of(Parcel(parcel.publisher, parcel.batch)) == NOTICE
    assert NOTICE.gap(4) == Gap("ann/1", 7, 9, 2, 4)


def test_events_are_no_notice() -> None:
    assert Notice.of(Parcel("ann/1", pa.record_batch({"$seq": [1], "$whose": ["[]"]}))) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("$seq", -1),
        ("$last_seq", 6),
        ("$events", 4),
        ("$events", -1),
        ("$whose", "{"),
        ("$whose", None),
    ],
)
def test_a_broken_one_is_refused(column: str, value: object) -> None:
    batch = NOTICE.parcel.batch
    place = batch.schema.get_field_index(column)
    broken = pa.array([value], batch.schema.types[place])
    with pytest.raises(ValueError, match="a notice"):
        Notice.of(Parcel("ann/1", batch.set_column(place, batch.schema.field(place), broken)))


def test_a_notice_of_several_rows_or_of_other_types_is_refused() -> None:
    batch = NOTICE.parcel.batch
    twice = pa.Table.from_batches([batch, batch]).combine_chunks().to_batches()[0]
    texts = pa.record_batch({name: ["1"] for name in batch.schema.names})
    for broken in (twice, texts):
        with pytest.raises(ValueError, match="one row"):
            Notice.of(Parcel("ann/1", broken))


def test_who_has_heard_of_it_is_left_out_and_who_went_elsewhere_is_named() -> None:
    left = NOTICE.without({"b2"}, ["carl/x", "bob/prices"])
    assert left == NOTICE._replace(whose=("bob/prices", "carl/x"))
    assert Notice(ANYBODY, 0, 0, 0, ()).without((), ()).whose == ()
