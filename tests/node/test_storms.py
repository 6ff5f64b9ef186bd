"""What the campaign promises of brokers holds also where they must show who they are, and where
every table is told and learned in the smallest pieces.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from palio.node import sessions, telling
from palio.protocol import portions, streams
from tests.campaign.drawing import draw
from tests.campaign.judgement import play
from tests.campaign.plays import Play
from tests.campaign.verdicts import verdicts
from tests.node.signing import CERTIFICATES, Keyring

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
GUARDED: Final = 200 if NIGHTLY else 4
IN_PIECES: Final = 500 if NIGHTLY else 10
AT_ONCE: Final = 5


@pytest.mark.parametrize("seed", range(FIRST + 1_000, FIRST + 1_000 + GUARDED))
@pytest.mark.parametrize("trust", ["certificates", "keys"])
def test_where_brokers_show_who_they_are(seed: int, trust: str, tmp_path: Path) -> None:
    doors = CERTIFICATES if trust == "certificates" else Keyring(tmp_path).doors
    found = Play(replace(draw(seed), grants=False), doors)
    found.run()
    assert list(verdicts(found)) == []
    told = {
        each.event
        for _, each in found.world.reports
        if each.details.get("reason") != "it did not say who it is in time"  # a slow link
    }
    if "part" in found.script.faults:
        told.discard("turned_away")  # who was removed tries again
    if "wipe" in found.script.faults:
        # One without a disk hears what another had said in an earlier life before the token that
        # this one told in its new life; what it refuses it is told again.
        told.discard("fact_refused")
    assert not told & {"turned_away", "fact_refused", "withheld", "beyond_grant"}


@pytest.mark.parametrize("first", range(FIRST + 2_000, FIRST + 2_000 + IN_PIECES, AT_ONCE))
def test_where_tables_are_told_and_learned_in_pieces_and_links_are_always_busy(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 40)
    monkeypatch.setattr(telling, "PORTION", 1)
    monkeypatch.setattr(sessions, "ROUTES_UNDER_WAY", 1)
    monkeypatch.setattr(streams, "SEEN_EVERY_ROUTES", 1)
    for seed in range(first, first + AT_ONCE):
        assert play(draw(seed)).breaches == ()
