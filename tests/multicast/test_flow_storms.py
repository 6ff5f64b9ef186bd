"""Whatever breaks: what comes out of a flow is in order and once, and in the end all has come."""

from __future__ import annotations

import os
from typing import Final

import pytest

from palio.multicast import inflows, outflows
from tests.multicast.flow_storms import FlowStorm

NIGHTLY: Final = os.environ.get("PALIO_PROFILE") == "nightly"
FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
STORMS: Final = 5_000 if NIGHTLY else 20
AT_ONCE: Final = 10


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS, AT_ONCE))
def test_flows_are_in_order_and_whole_whatever_breaks(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        FlowStorm(seed).run()


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS // 2, AT_ONCE))
def test_also_where_there_is_room_for_little(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in {
        "FIRST_WINDOW": 8,
        "LEAST_WINDOW": 2,
        "MAX_WAITING_BYTES": 30_000,
        "MAX_HISTORY_BYTES": 60_000,
        "MAX_LOST": 20,
        "MAX_REPAIRED": 5,
        "MAX_ROUTES": 2,
    }.items():
        monkeypatch.setattr(outflows, name, limit)
    for name, limit in {
        "MAX_HELD_BYTES": 10_000,
        "MAX_RANGES": 3,
        "MAX_RECENT": 10,
        "MAX_RECENT_BYTES": 5_000,
    }.items():
        monkeypatch.setattr(inflows, name, limit)
    for seed in range(first, first + AT_ONCE):
        FlowStorm(seed).run()
