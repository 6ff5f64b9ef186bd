"""What neighbours may not do is told without filling a log."""

from __future__ import annotations

import pytest

from palio.node.complaints import COMPLAIN_EVERY_S, Complaints


def test_the_first_is_told_at_once_and_the_others_together() -> None:
    complaints = Complaints()
    assert complaints.note("a", "b1", 3, 0.0) == {"neighbour": "b1", "count": 3}
    assert complaints.note("a", "b2", 1, 0.0) is not None
    assert complaints.note("b", "b1", 1, 0.0) is not None
    assert [complaints.note("a", "b1", 1, 1.0, number=each) for each in range(9)] == [None] * 9
    assert complaints.totals == {"a": 13, "b": 1}
    assert complaints.due(COMPLAIN_EVERY_S) == [("a", {"neighbour": "b1", "count": 9, "number": 8})]
    assert complaints.due(COMPLAIN_EVERY_S) == []


@pytest.mark.parametrize(("after", "told"), [(-0.1, 0), (0.0, 1), (0.1, 1)])
def test_a_line_in_so_many_seconds(after: float, told: int) -> None:
    complaints = Complaints()
    complaints.note("a", "b1", 1, 5.0)
    complaints.note("a", "b1", 1, 5.0)
    assert len(complaints.due(5.0 + COMPLAIN_EVERY_S + after)) == told


def test_who_has_behaved_for_a_while_is_told_of_at_once_again() -> None:
    complaints = Complaints()
    complaints.note("a", "b1", 1, 0.0)
    assert complaints.due(COMPLAIN_EVERY_S) == []
    assert complaints.note("a", "b1", 1, COMPLAIN_EVERY_S) is not None
