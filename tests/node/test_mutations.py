"""The storms notice deliberate bugs."""

from __future__ import annotations

import os
from typing import Final

import pytest

from palio.errors import PalioError
from tests.mutations import Mutation
from tests.node.mutations import MUTATIONS
from tests.node.storms import Storm
from tests.node.tempests import Tempest

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
SEEDS: Final = 200
RARE: Final = ("acknowledged before it is written", "unacknowledged is not sent again")
"""Bugs that show in one storm of many: looked for at night."""


def is_noticed(mutation: Mutation) -> bool:
    with mutation.planted():
        for seed in range(SEEDS):
            try:
                if seed % 2:
                    Storm(seed).run()
                else:
                    Tempest(seed, disks=seed % 4 == 0).run()
            except (AssertionError, LookupError, PalioError):
                return True
    return False


@pytest.mark.parametrize(
    "mutation",
    [each for each in MUTATIONS if NIGHTLY or each.name not in RARE],
    ids=lambda mutation: mutation.name,
)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    assert is_noticed(mutation), f"{mutation.name}: {SEEDS} storms saw nothing"
