"""Waves keep W1 to W3 in every state; each planted error is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.models.explorer import explore
from tests.models.waves import ERRORS, Waves

CHANGES: Final = (
    Waves(),
    Waves(cut="bc"),
    Waves(new="ac bc"),
    Waves(new="ac bc", cut="ab"),
    Waves(old="ab ac", new="ab bc"),
    Waves(old="ab ac", new="ab bc", cut="ac"),
)
"""Trees of three brokers, one after the other, and the link that breaks."""


@pytest.mark.parametrize("model", CHANGES, ids=str)
def test_an_answer_names_whom_the_request_has_not_reached(model: Waves) -> None:
    found = explore(model)
    print(f"{found.states:,} states, {found.steps:,} steps")  # noqa: T201
    assert not found.broken, f"{found.broken}\n{found.story}"


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_yields_a_counterexample(error: str) -> None:
    found = [explore(replace(model, error=error)) for model in CHANGES]
    assert any(outcome.broken and "  1 " in outcome.story for outcome in found)
