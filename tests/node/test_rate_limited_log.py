"""What neighbours may not do is told without filling a log."""

from __future__ import annotations

import pytest

from palio.node.rate_limited_log import LOG_INTERVAL_S, RateLimitedLog


def test_the_first_is_told_at_once_and_the_others_together() -> None:
    rate_limited_log = RateLimitedLog()
    assert rate_limited_log.note("a", "b1", 3, 0.0) == {"source": "b1", "count": 3}
    assert rate_limited_log.note("a", "b2", 1, 0.0) is not None
    assert rate_limited_log.note("b", "b1", 1, 0.0) is not None
    assert [rate_limited_log.note("a", "b1", 1, 1.0, number=each) for each in range(9)] == [
        None
    ] * 9
    assert rate_limited_log.totals == {"a": 13, "b": 1}
    assert rate_limited_log.due(LOG_INTERVAL_S) == [
        ("a", {"source": "b1", "count": 9, "number": 8})
    ]
    assert rate_limited_log.due(LOG_INTERVAL_S) == []


@pytest.mark.parametrize(("after", "told"), [(-0.1, 0), (0.0, 1), (0.1, 1)])
def test_a_line_in_so_many_seconds(after: float, told: int) -> None:
    rate_limited_log = RateLimitedLog()
    rate_limited_log.note("a", "b1", 1, 5.0)
    rate_limited_log.note("a", "b1", 1, 5.0)
    assert len(rate_limited_log.due(5.0 + LOG_INTERVAL_S + after)) == told


def test_who_has_behaved_for_a_while_is_told_of_at_once_again() -> None:
    rate_limited_log = RateLimitedLog()
    rate_limited_log.note("a", "b1", 1, 0.0)
    assert rate_limited_log.due(LOG_INTERVAL_S) == []
    assert rate_limited_log.note("a", "b1", 1, LOG_INTERVAL_S) is not None
