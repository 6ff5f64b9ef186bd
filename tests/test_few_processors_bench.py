"""Brokers that share few processors come to rest after a change, though all of them are late."""

from __future__ import annotations

import pytest

from benchmarks.few_processors import ROUTINGS, Shared
from benchmarks.healing_network import hierarchy


@pytest.mark.nightly
@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_network_without_time_settles(routing: str) -> None:
    """Where brokers tell of the network as often as ever, 26,000 messages later it has not."""
    up_s = 40.0
    network = Shared(hierarchy(40), routing, processors=2, action_s=0.002)
    network.kill()
    found = network.start(up_s)
    assert found.rest_s < up_s, found
    assert found.late_until_s < up_s, found
    assert found.messages < 12_000, found
