"""The stages of a pattern's assembly that the picture shows."""

from __future__ import annotations

from palio.routing.patterns import subscriptions
from palio.routing.patterns.subscriptions import AssemblyPlace


def test_the_picture_shows_every_stage() -> None:
    assert subscriptions.__doc__ is not None
    for stage in AssemblyPlace:
        assert stage.name in subscriptions.__doc__
