"""Negation that is never unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from palio.language.twovalued import not_true
from palio.model.expressions import Boolean
from palio.model.filters import Constraint, reduce


def test_not_true_is_never_unknown() -> None:
    below = Constraint.of("x", "<", 5).as_test()
    missing = Constraint.of("x", "IS NULL").as_test()
    assert _matching(not_true("x", [below])) == VALUES[1:]
    assert _matching(not_true("x", [below], present=True)) == VALUES[1:-1]
    assert _matching(not_true("x", [missing])) == VALUES[:-1]
    assert _matching(not_true("x", [missing, below])) == VALUES[1:-1]
    assert _matching(not_true("x", [])) == VALUES
    assert _matching(not_true("x", [], present=True)) == VALUES[:-1]
    for value in VALUES[:-1]:
        equal = Constraint.of("x", "=", value).as_test()
        assert _matching(not_true("x", [equal])) == [each for each in VALUES if each is not value]


VALUES: Final = [4, 5, "a", True, False, b"a", datetime(2024, 5, 17, tzinfo=UTC), None]


def _matching(condition: Boolean) -> list[object]:
    found = reduce(condition)
    return [value for value in VALUES if found.matches({"x": value})]
