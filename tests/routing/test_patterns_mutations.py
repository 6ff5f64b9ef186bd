"""The storms would notice: of ten deliberate bugs of the pattern layer none goes uncaught."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conftest import seeds
from tests.routing.mutations import Mutation
from tests.routing.pattern_mutations import PATTERN_MUTATIONS
from tests.routing.pattern_storms import PatternStorm

TRIES: Final = 400
"""One storm in thirty notices the rarest bug."""


def storm(seed: int) -> None:
    """One on a tree, and one on a graph."""
    PatternStorm(seed).run()
    PatternStorm(seed, graph=True).run_wild(steps=40)


def test_there_are_ten() -> None:
    assert len({each.name for each in PATTERN_MUTATIONS}) == 10


@pytest.mark.parametrize("mutation", PATTERN_MUTATIONS, ids=lambda each: each.name)
def test_storms_catch_a_deliberate_bug(mutation: Mutation) -> None:
    tries = seeds(TRIES, nightly=2_000)
    assert mutation.noticed_at(storm, tries) is not None, f"none of {tries} notices"
