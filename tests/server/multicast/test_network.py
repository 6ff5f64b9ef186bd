"""Brokers that send by multicast: processes, each in a network namespace, all at one bridge."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.multicast_network import MulticastNetwork, Ways
from tests.conftest import share
from tests.server.bridges import why_no_bridge

REASON = why_no_bridge()
EVENTS = 300
WAYS = (Ways(4, 0.1, "flooded"), Ways(6, 0.1, "source-trees"))


@pytest.mark.skipif(bool(REASON), reason=REASON or "there is a bridge")
@pytest.mark.parametrize("ways", share(WAYS, 1), ids=lambda ways: f"IPv{ways.version}")
async def test_every_event_comes_once_and_in_order_whatever_is_lost(
    tmp_path: Path, ways: Ways
) -> None:
    async with MulticastNetwork(4, tmp_path, ways) as network:
        found = await network.publish(EVENTS, 500.0)
        assert [(each.lost, each.twice, each.disordered) for each in found.heard] == [(0, 0, 0)] * 3
        flows = (await network.publisher.admin.status())["multicast"]
    assert flows["datagrams"] >= EVENTS
    assert flows["repaired"] > 0
