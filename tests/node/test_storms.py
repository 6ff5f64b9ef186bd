"""Whatever breaks: what was acknowledged reaches every durable subscription, once, in order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.node.signing import CERTIFICATES, Keyring
from tests.node.storms import Storm

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
STORMS: Final = 2_000 if NIGHTLY else 40
AT_ONCE: Final = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS, AT_ONCE))
def test_nothing_acknowledged_is_lost_or_doubled(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        Storm(seed).run()


GUARDED: Final = 200 if NIGHTLY else 4


@pytest.mark.parametrize("seed", range(FIRST + 1_000, FIRST + 1_000 + GUARDED))
@pytest.mark.parametrize("trust", ["certificates", "keys"])
def test_nor_where_brokers_show_who_they_are(seed: int, trust: str, tmp_path: Path) -> None:
    doors = CERTIFICATES if trust == "certificates" else Keyring(tmp_path).doors
    storm = Storm(seed, doors)
    storm.run()
    told = {each.event for _, each in storm.world.reports}
    assert not told & {"turned_away", "fact_refused", "withheld", "beyond_grant"}
