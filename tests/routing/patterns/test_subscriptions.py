"""Which patterns a pattern covers, and the stages that the picture shows."""

from __future__ import annotations

import pytest

import palio
from palio.model.patterns import Pattern
from palio.routing.patterns import subscriptions
from palio.routing.patterns.subscriptions import AssemblyPlace, covers_subscription


@pytest.mark.parametrize(
    ("general", "specific", "covers"),
    [
        ("a > 1 THEN b > 1", "a > 1 THEN b > 1", True),
        ("a > 1 THEN b > 1", "a > 2 THEN b > 1", True),
        ("a > 1 THEN b > 1", "a > 2 THEN b > 0", False),
        ("a > 1 THEN b > 1", "b > 1 THEN a > 1", False),
        ("a > 1 THEN b > 1", "a > 1 THEN b > 1 THEN c > 1", False),
        ("a > 1 THEN b > 1", "a > 1 THEN b > 1 WITHIN 5s", True),
        ("a > 1 THEN b > 1 WITHIN 5s", "a > 1 THEN b > 1", False),
        ("a > 1 THEN b > 1 WITHIN 5s", "a > 1 THEN b > 1 WITHIN 5s", True),
        ("a > 1 THEN b > 1 WITHIN 5s", "a > 1 THEN b > 1 WITHIN 6s", False),
    ],
)
def test_covering_is_position_by_position(general: str, specific: str, covers: bool) -> None:
    one, other = palio.parse(general), palio.parse(specific)
    assert isinstance(one, Pattern)
    assert isinstance(other, Pattern)
    assert covers_subscription(one, other) is covers


def test_the_picture_shows_every_stage() -> None:
    assert subscriptions.__doc__ is not None
    for stage in AssemblyPlace:
        assert stage.name in subscriptions.__doc__
