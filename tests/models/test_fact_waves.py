"""The wave along the tree answers for facts in every state; each planted error is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.models.explorer import explore
from tests.models.fact_waves import ERRORS, FactWaves

SMALL: Final = (
    FactWaves(asks=2),
    FactWaves(tree="ab bc", others="", breaks=1),
)
WHOLE: Final = (
    FactWaves(asks=3),
    FactWaves(tree="ab bc", others="", breaks=1, asks=2),
)
"""A graph with a link that is not in the tree, and a tree of which a link breaks and comes back."""


def check(model: FactWaves) -> None:
    found = explore(model)
    print(f"{found.states:,} states, {found.steps:,} steps")  # noqa: T201
    assert not found.broken, f"{found.broken}\n{found.story}"


@pytest.mark.parametrize("model", SMALL, ids=str)
def test_an_answer_names_whom_the_fact_has_not_reached(model: FactWaves) -> None:
    check(model)


@pytest.mark.nightly
@pytest.mark.parametrize("model", WHOLE, ids=str)
def test_it_does_within_the_whole_scope(model: FactWaves) -> None:
    check(model)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_yields_a_counterexample(error: str) -> None:
    found = [explore(replace(model, error=error)) for model in SMALL]
    assert any(outcome.broken and "  1 " in outcome.story for outcome in found)
