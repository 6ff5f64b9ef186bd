from __future__ import annotations

import pyarrow as pa
import pytest

from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.protocol.messages import Parcel, Publish
from palio.server.transport import Parts
from tests.server.helpers import large


@pytest.mark.parametrize(
    ("rows", "at_once", "expected"),
    [(5, 5, [None]), (5, 9, [None]), (5, 4, [4, None]), (6, 2, [2, 4, None]), (0, 1, [None])],
)
def test_each_row_is_due_once(rows: int, at_once: int, expected: list[int | None]) -> None:
    parts, found = Parts(), []
    message = large(rows)
    parts.begin(message)
    while parts.is_begun:
        part, up_to = parts.next(at_once)
        assert part is message
        found.append(up_to)
    assert found == expected


def test_no_part_has_more_text_than_an_event_may() -> None:
    half = MAX_EVENT_TEXT_BYTES // 2
    sizes = [half, half, 1, half, half, half, 0, 0, 0, 2 * half, 0]
    parts, found = Parts(), []
    parts.begin(Publish(Parcel("", pa.record_batch({"s": ["a" * size for size in sizes]})), 1))
    while parts.is_begun:
        found.append(parts.next(3)[1])
    assert found == [2, 4, 7, 10, None]


def test_what_is_dropped_is_over_and_the_next_begins_with_its_first_row() -> None:
    parts = Parts()
    assert not parts.is_begun
    parts.begin(large(10))
    assert parts.next(4)[1] == 4
    parts.drop()
    assert not parts.is_begun
    parts.begin(large(10))
    assert parts.next(4)[1] == 4
