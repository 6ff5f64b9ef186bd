"""Whatever breaks: events by multicast groups come once and in order, or a loss is told."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.conftest import NIGHTLY
from tests.mutations import Mutation
from tests.node.multicast_mutations import MUTATIONS
from tests.node.multicast_storms import MulticastStorm

FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
STORMS: Final = 2_000 if NIGHTLY else 30
AT_ONCE: Final = 5
SEEDS: Final = 40
"""Storms that notice each of the planted bugs."""

RARE: Final = "a flow begins before what went before it"
"""Few storms notice this bug, so only the night looks for it."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS, AT_ONCE))
def test_what_is_cast_is_heard_once_and_in_order_or_told(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        MulticastStorm(seed).run()


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, marks=[pytest.mark.nightly] if each.name == RARE else (), id=each.name)
        for each in MUTATIONS
    ],
)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    seen = mutation.noticed_at(lambda seed: MulticastStorm(seed).run(), range(SEEDS))
    assert seen is not None, f"{mutation.name}: {SEEDS} storms saw nothing"
