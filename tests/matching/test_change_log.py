"""Logs of changes: what stands in them, and that readers keep what they were told of."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.matching import change_log
from palio.matching.change_log import FIRST_WORDS, MOST_COMPARISONS, ChangeLog, is_recent
from palio.matching.subscriptions import Subscription
from tests.matching.test_index import parsed

LESS, AT_LEAST = 1, 4
"""Numbers of the operators in a log."""


def subscription(text: str, **values: float) -> Subscription:
    return Subscription(parsed(text), values, 70)


def test_records_say_what_is_compared_with_what() -> None:
    log = ChangeLog()
    assert log.note(7, subscription("x < :p AND y >= 3", p=-5))
    assert log.note(8, subscription("y < :p", p=0.5))
    assert not log.note(7, None)
    assert log.slot_of == {"y": 0, "x": 1}
    assert log.ends == [8, 14, 18]
    words = log.words()
    assert words[:8].tolist() == [7, 70, 2, 0, 0 << 3 | AT_LEAST, 1 << 3 | LESS, 3, -5]
    assert words[8:13].tolist() == [8, 70, 1, 1, 0 << 3 | LESS]
    assert words[13:14].view(np.float64).tolist() == [0.5]
    assert words[14:18].tolist() == [7, 0, -1, 0]


def test_a_full_buffer_is_left_to_those_who_read_it() -> None:
    log = ChangeLog()
    log.note(1, subscription("x < :p", p=5))
    before = log.words()
    kept = before.copy()
    for key in range(FIRST_WORDS):
        log.note(key, subscription("x < :p", p=key))
    assert before[:6].tolist() == kept[:6].tolist()
    assert log.words()[:6].tolist() == kept[:6].tolist()
    assert len(log.words()) >= log.ends[-1] == 6 * (FIRST_WORDS + 1)
    assert log.nbytes == 8 * len(log.words())


@pytest.mark.parametrize(
    ("text", "recent"),
    [
        ("TRUE", True),
        ("x < 5 AND x > 2 AND y = 0.5", True),
        ("x != 5", False),
        ("x < 5 OR y < 5", False),
        ("x < 5 AND LENGTH(s) > 1", False),
        ("s = 'a'", False),
        ("x IN (1, 2)", False),
    ],
)
def test_only_comparisons_with_numbers_are_recent_rows(text: str, recent: bool) -> None:
    assert is_recent(subscription(text)) is recent
    assert ChangeLog().note(1, subscription(text)) is recent


@pytest.mark.parametrize(
    ("count", "recent"),
    [(MOST_COMPARISONS - 1, True), (MOST_COMPARISONS, True), (MOST_COMPARISONS + 1, False)],
)
def test_a_filter_with_very_many_comparisons_is_compiled(count: int, recent: bool) -> None:
    long = subscription(" AND ".join(f"a{at} < {at}.5" for at in range(count)))
    assert is_recent(long) is recent
    log = ChangeLog()
    assert log.note(1, long) is recent
    if recent:
        head = change_log.HEAD
        assert log.words()[2:head].tolist() == [count, (1 << count) - 1]


def test_a_key_that_is_no_int64_is_refused() -> None:
    with pytest.raises(InvalidInput, match="64-bit"):
        ChangeLog().note(1 << 63, None)
