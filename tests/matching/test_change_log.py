"""Tapes of changes: what stands on them, and that readers keep what they were told of."""

from __future__ import annotations

import numpy as np
import pytest

from palio.errors import InvalidInput
from palio.matching import change_log as tape_module
from palio.matching.change_log import FIRST_WORDS, MOST_COMPARISONS, ChangeLog, is_recent
from palio.matching.subscriptions import Subscription
from tests.matching.test_index import parsed

LESS, AT_LEAST = 1, 4
"""Numbers of the operators on tape."""


def subscription(text: str, **values: float) -> Subscription:
    return Subscription(parsed(text), values, 70)


def test_records_say_what_is_compared_with_what() -> None:
    tape = ChangeLog()
    assert tape.note(7, subscription("x < :p AND y >= 3", p=-5))
    assert tape.note(8, subscription("y < :p", p=0.5))
    assert not tape.note(7, None)
    assert tape.slot_of == {"y": 0, "x": 1}
    assert tape.ends == [8, 14, 18]
    words = tape.words()
    assert words[:8].tolist() == [7, 70, 2, 0, 0 << 3 | AT_LEAST, 1 << 3 | LESS, 3, -5]
    assert words[8:13].tolist() == [8, 70, 1, 1, 0 << 3 | LESS]
    assert words[13:14].view(np.float64).tolist() == [0.5]
    assert words[14:18].tolist() == [7, 0, -1, 0]


def test_a_full_buffer_is_left_to_those_who_read_it() -> None:
    tape = ChangeLog()
    tape.note(1, subscription("x < :p", p=5))
    before = tape.words()
    kept = before.copy()
    for key in range(FIRST_WORDS):
        tape.note(key, subscription("x < :p", p=key))
    assert before[:6].tolist() == kept[:6].tolist()
    assert tape.words()[:6].tolist() == kept[:6].tolist()
    assert len(tape.words()) >= tape.ends[-1] == 6 * (FIRST_WORDS + 1)
    assert tape.nbytes == 8 * len(tape.words())


@pytest.mark.parametrize(
    ("text", "fresh"),
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
def test_only_comparisons_with_numbers_are_fresh_rows(text: str, fresh: bool) -> None:
    assert is_recent(subscription(text)) is fresh
    assert ChangeLog().note(1, subscription(text)) is fresh


@pytest.mark.parametrize(
    ("count", "fresh"),
    [(MOST_COMPARISONS - 1, True), (MOST_COMPARISONS, True), (MOST_COMPARISONS + 1, False)],
)
def test_a_filter_with_very_many_comparisons_is_compiled(count: int, fresh: bool) -> None:
    long = subscription(" AND ".join(f"a{at} < {at}.5" for at in range(count)))
    assert is_recent(long) is fresh
    tape = ChangeLog()
    assert tape.note(1, long) is fresh
    if fresh:
        head = tape_module.HEAD
        assert tape.words()[2:head].tolist() == [count, (1 << count) - 1]


def test_a_key_that_is_no_int64_is_refused() -> None:
    with pytest.raises(InvalidInput, match="64-bit"):
        ChangeLog().note(1 << 63, None)
