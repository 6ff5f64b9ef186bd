"""Whatever breaks: every request and receipt is answered truly, and nothing is heard twice."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conftest import seeds, share
from tests.mutations import Mutation
from tests.protocol.mutations import MUTATIONS
from tests.protocol.storms import Storm

SEEDS: Final = 100
"""Storms in which a bug must show."""


@pytest.mark.parametrize("seed", seeds(20, nightly=1_000))
def test_what_a_client_is_told_is_true(seed: int) -> None:
    Storm(seed).run()


@pytest.mark.parametrize("mutation", share(MUTATIONS, 4), ids=lambda mutation: mutation.name)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    seen = mutation.noticed_at(lambda seed: Storm(seed).run(), range(SEEDS))
    assert seen is not None, f"{mutation.name}: {SEEDS} storms saw nothing"
