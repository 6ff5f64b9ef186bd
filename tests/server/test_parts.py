from __future__ import annotations

import pytest

from palio.server.parts import Parts
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


def test_what_is_dropped_is_over_and_the_next_begins_with_its_first_row() -> None:
    parts = Parts()
    assert not parts.is_begun
    parts.begin(large(10))
    assert parts.next(4)[1] == 4
    parts.drop()
    assert not parts.is_begun
    parts.begin(large(10))
    assert parts.next(4)[1] == 4
