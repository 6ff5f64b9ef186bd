from __future__ import annotations

import pytest

from palio.server.portions import Portions
from tests.server.helpers import large


@pytest.mark.parametrize(
    ("rows", "at_once", "expected"),
    [(5, 5, [None]), (5, 9, [None]), (5, 4, [4, None]), (6, 2, [2, 4, None]), (0, 1, [None])],
)
def test_each_row_is_due_once(rows: int, at_once: int, expected: list[int | None]) -> None:
    portions, found = Portions(), []
    message = large(rows)
    portions.begin(message)
    while portions.is_begun:
        part, up_to = portions.next(at_once)
        assert part is message
        found.append(up_to)
    assert found == expected


def test_what_is_dropped_is_over_and_the_next_begins_with_its_first_row() -> None:
    portions = Portions()
    assert not portions.is_begun
    portions.begin(large(10))
    assert portions.next(4)[1] == 4
    portions.drop()
    assert not portions.is_begun
    portions.begin(large(10))
    assert portions.next(4)[1] == 4
