from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palio.language.cesql.syntax import our_pattern
from palio.model.operators import is_like


def like(text: str, pattern: str) -> bool:
    return is_like(text, our_pattern(pattern))


@pytest.mark.parametrize(
    ("pattern", "ours"),
    [
        ("", ""),
        ("a%%b_", "a%%b_"),
        (r"a\%b\_", r"a\%b\_"),
        (r"a\b", r"a\\b"),
        (r"a\\%", r"a\\\%"),
        ("a\\", "a\\\\"),
    ],
)
def test_our_pattern(pattern: str, ours: str) -> None:
    assert our_pattern(pattern) == ours


def by_definition(text: str, pattern: str) -> bool:
    """The meaning of a pattern, one character at a time."""

    @cache
    def matches(i: int, j: int) -> bool:
        if j == len(pattern):
            return i == len(text)
        if pattern[j] == "%":
            return matches(i, j + 1) or (i < len(text) and matches(i + 1, j))
        if i == len(text):
            return False
        if pattern[j : j + 2] in (r"\%", r"\_"):
            return text[i] == pattern[j + 1] and matches(i + 1, j + 2)
        return pattern[j] in ("_", text[i]) and matches(i + 1, j + 1)

    return matches(0, 0)


@given(st.text("ab%_\\\n", max_size=8), st.text("ab%%__\\\n", max_size=8))
def test_like_is_its_definition(text: str, pattern: str) -> None:
    assert like(text, pattern) is by_definition(text, pattern)


def test_a_hostile_pattern_costs_no_more_than_text_times_pattern() -> None:
    text = "a" * 20_000
    assert not like(text, "%a" * 40 + "%b%")
    assert not like(text, "a%" * 1_000 + "b")
    assert like(text, "%a" * 1_000)
