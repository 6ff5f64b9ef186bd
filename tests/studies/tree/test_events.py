"""Batches are read column by column: coordinates by kind, and labels."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from palio.model import Kind
from palio_studies.tree.attribute_tests import ValueSource, label
from palio_studies.tree.events import TreeEvents

MOMENT = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
BATCH = pa.record_batch(
    {
        "number": pa.array([1, None]),
        "flag": pa.array([True, None]),
        "time": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        "text": pa.array(["a", None]),
    }
)


def slots_of(*sources: tuple[str, Kind | None]) -> dict[ValueSource, int]:
    return {ValueSource(*source): slot for slot, source in enumerate(sources)}


def test_labels_and_coordinates() -> None:
    slots = slots_of(
        ("number", None), ("flag", None), ("time", None), ("flag", Kind.BOOL), ("time", Kind.TIME)
    )
    first, second = TreeEvents(BATCH).rows(slots)
    assert first[:5] == (
        1,
        label(Kind.BOOL, True),
        label(Kind.TIME, 1_000_000),
        True,
        1_000_000,
    )
    assert second[:5] == (None,) * 5


def test_other_kinds_and_other_attributes_are_absent() -> None:
    slots = slots_of(("number", Kind.STRING), ("text", Kind.STRING), ("elsewhere", None))
    assert [row[:3] for row in TreeEvents(BATCH).rows(slots)] == [
        (None, "a", None),
        (None, None, None),
    ]


def test_there_are_rows_without_any_slot() -> None:
    assert len(list(TreeEvents(BATCH).rows({}))) == 2
