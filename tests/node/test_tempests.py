"""Whatever changes and whatever fails: what is owed is heard, once, or its loss is told."""

from __future__ import annotations

import os
from typing import Final

import pytest

from palio.node import sessions, telling
from palio.protocol import portions, streams
from tests.node.tempests import Tempest

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
SEEDS: Final = 2_000 if NIGHTLY else 20
AT_ONCE: Final = 5


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, AT_ONCE))
@pytest.mark.parametrize("disks", [False, True], ids=["links", "disks"])
def test_what_is_owed_is_heard(first: int, disks: bool) -> None:
    for seed in range(first, first + AT_ONCE):
        Tempest(seed, disks=disks).run()


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS // 4, AT_ONCE))
def test_also_where_tables_are_told_and_learned_in_pieces_and_links_are_always_busy(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 40)
    monkeypatch.setattr(telling, "PORTION", 1)
    monkeypatch.setattr(sessions, "ROUTES_UNDER_WAY", 1)
    monkeypatch.setattr(streams, "SEEN_EVERY_ROUTES", 1)
    for seed in range(first, first + AT_ONCE):
        Tempest(seed, disks=True).run()
