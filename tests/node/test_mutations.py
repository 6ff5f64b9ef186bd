"""The campaign notices deliberate bugs."""

from __future__ import annotations

import os
from typing import Final

import pytest

from palio.simulation.campaign import draw, play
from tests.mutations import Mutation
from tests.node.mutations import MUTATIONS

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
SEEDS: Final = 500
RARE: Final = (
    *("acknowledged before it is written", "windows are not written", "windows are forgotten"),
    *("a session resumes with too much", "numbers that came are not known"),
    "unacknowledged is not sent again",
)
"""Bugs that show in one seed of many: looked for at night."""


@pytest.mark.parametrize(
    "mutation",
    [each for each in MUTATIONS if NIGHTLY or each.name not in RARE],
    ids=lambda mutation: mutation.name,
)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    with mutation.planted():
        noticed = any(play(draw(seed)).breaches for seed in range(SEEDS))
    assert noticed, f"{mutation.name}: {SEEDS} seeds saw nothing"
