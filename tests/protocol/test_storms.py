"""Whatever breaks: every request and receipt is answered truly, and nothing is heard twice."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.conftest import NIGHTLY
from tests.mutations import Mutation
from tests.protocol.mutations import MUTATIONS
from tests.protocol.storms import Storm

FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
STORMS: Final = 1_000 if NIGHTLY else 50
AT_ONCE: Final = 5

SEEDS: Final = 100
"""Storms in which a bug must show."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS, AT_ONCE))
def test_what_a_client_is_told_is_true(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        Storm(seed).run()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    seen = mutation.noticed_at(lambda seed: Storm(seed).run(), range(SEEDS))
    assert seen is not None, f"{mutation.name}: {SEEDS} storms saw nothing"
