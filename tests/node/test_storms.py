"""Whatever breaks: what was acknowledged reaches every durable subscription, once, in order."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.node.storms import Storm

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
STORMS: Final = 2_000 if NIGHTLY else 40
AT_ONCE: Final = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS, AT_ONCE))
def test_nothing_acknowledged_is_lost_or_doubled(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        Storm(seed).run()
