"""What the campaign promises of brokers holds also where they must show who they are, and where
every table is told and learned in the smallest pieces.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from palio.node import sessions, table_sync
from palio.protocol import portions, streams
from tests.campaign.drawing import draw
from tests.campaign.judgement import play
from tests.campaign.plays import Play
from tests.campaign.verdicts import verdicts
from tests.conftest import seeds
from tests.node.signing import Keyring


@pytest.mark.parametrize("seed", seeds(2, nightly=200))
def test_where_brokers_show_who_they_are(seed: int, tmp_path: Path) -> None:
    found = Play(replace(draw(seed), grants=False), Keyring(tmp_path).access)
    found.run()
    assert list(verdicts(found)) == []
    told = {
        each.event
        for _, each in found.world.reports
        if each.details.get("reason")
        != "no handshake within limits.handshake_timeout_s"  # a slow link
    }
    if "part" in found.script.faults:
        told.discard("rejected_by_peer")  # who was removed tries again
    if "wipe" in found.script.faults:
        # One without a disk hears what another had said in an earlier incarnation before the token
        # that this one told in its new incarnation; what it refuses it is told again.
        told.discard("fact_rejected")
    assert not told & {"rejected_by_peer", "fact_rejected", "events_withheld", "grant_exceeded"}


@pytest.mark.parametrize("seed", seeds(4, nightly=500))
def test_where_tables_are_told_and_learned_in_pieces_and_links_are_always_busy(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "PORTION_BYTES", 40)
    monkeypatch.setattr(table_sync, "PORTION", 1)
    monkeypatch.setattr(sessions, "ROUTES_UNDER_WAY", 1)
    monkeypatch.setattr(streams, "ACK_EVERY_ROUTES", 1)
    assert play(draw(seed)).breaches == ()
