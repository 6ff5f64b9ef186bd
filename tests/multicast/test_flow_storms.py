"""Whatever breaks: what comes out of a flow is in order and once, and in the end all has come."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

import pytest

from tests.conftest import seeds, share
from tests.multicast.flow_storms import FlowStorm, little_room
from tests.multicast.mutations import MUTATIONS
from tests.mutations import Mutation

SEEDS: Final = 40
"""Storms that notice each of the planted bugs."""


@pytest.mark.parametrize("seed", seeds(12, nightly=5_000))
def test_flows_are_in_order_and_whole_whatever_breaks(seed: int) -> None:
    storm(seed)


def storm(seed: int) -> None:
    """Every second one has room for little."""
    with little_room() if seed % 2 else nullcontext():
        FlowStorm(seed).run()


@pytest.mark.parametrize("mutation", share(MUTATIONS, 4), ids=lambda mutation: mutation.name)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    seen = mutation.noticed_at(storm, range(SEEDS))
    assert seen is not None, f"{mutation.name}: {SEEDS} storms saw nothing"
