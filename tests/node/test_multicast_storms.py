"""Whatever breaks: events by multicast groups come once and in order, or a loss is told."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conftest import NIGHTLY, seeds, share
from tests.mutations import Mutation
from tests.node.multicast_mutations import MUTATIONS
from tests.node.multicast_storms import MulticastStorm

SEEDS: Final = 40
"""Storms that notice each of the planted bugs."""

RARE: Final = "a flow begins before what went before it"
"""Few storms notice this bug, so only the night looks for it."""


@pytest.mark.parametrize("seed", seeds(5, nightly=2_000))
def test_what_is_cast_is_heard_once_and_in_order_or_told(seed: int) -> None:
    MulticastStorm(seed).run()


@pytest.mark.parametrize(
    "mutation",
    MUTATIONS if NIGHTLY else share((each for each in MUTATIONS if each.name != RARE), 3),
    ids=lambda each: each.name,
)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    tries = seeds(SEEDS, nightly=2_000)
    seen = mutation.noticed_at(lambda seed: MulticastStorm(seed).run(), tries)
    assert seen is not None, f"{mutation.name}: none of {tries} loss_markers"
