"""Whatever breaks: what comes out of a flow is in order and once, and in the end all has come."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Final

import pytest

from tests.conftest import NIGHTLY
from tests.multicast.flow_storms import FlowStorm, little_room
from tests.multicast.mutations import MUTATIONS
from tests.mutations import Mutation

FIRST: Final = int(os.environ.get("PALIO_SEED", "0")) if NIGHTLY else 0
STORMS: Final = 5_000 if NIGHTLY else 20
AT_ONCE: Final = 10
SEEDS: Final = 40
"""Storms that notice each of the planted bugs."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS, AT_ONCE))
def test_flows_are_in_order_and_whole_whatever_breaks(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        FlowStorm(seed).run()


@pytest.mark.parametrize("first", range(FIRST, FIRST + STORMS // 2, AT_ONCE))
def test_also_where_there_is_room_for_little(first: int) -> None:
    with little_room():
        for seed in range(first, first + AT_ONCE):
            FlowStorm(seed).run()


def storm(seed: int) -> None:
    """Every second one has room for little."""
    with little_room() if seed % 2 else nullcontext():
        FlowStorm(seed).run()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    seen = mutation.noticed_at(storm, range(SEEDS))
    assert seen is not None, f"{mutation.name}: {SEEDS} storms saw nothing"
