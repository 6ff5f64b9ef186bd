"""The map keeps M1 to M4 in every state; each planted error is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from tests.models.explorer import explore
from tests.models.gossip import ERRORS, Gossip

SMALL: Final = (
    Gossip(writes=3),
    Gossip(writes=1, breaks=1),
    Gossip(writes=1, starts=1),
    Gossip(writes=1, losses=1),
)
WHOLE: Final = (
    Gossip(writes=2, breaks=1),
    Gossip(writes=2, starts=1),
    Gossip(writes=2, losses=1),
    Gossip(writes=0, starts=1, losses=1),
)
PLANTED: Final[Mapping[str, Gossip]] = {
    "stamp is claim": Gossip(writes=3),
    "claims first": Gossip(writes=2),
    "outdoes at once": Gossip(writes=3, starts=1),
    "opens at zero": Gossip(writes=1, losses=1),
    "same number": Gossip(writes=2, losses=1),
    "digest from disk": Gossip(writes=2, starts=1),
}
"""For each error the smallest model that shows it."""


def check(model: Gossip) -> None:
    found = explore(model)
    print(f"{found.states:,} states, {found.steps:,} steps")  # noqa: T201
    assert not found.broken, f"{found.broken}\n{found.story}"


@pytest.mark.parametrize("model", SMALL, ids=str)
def test_all_come_to_the_same_map(model: Gossip) -> None:
    check(model)


@pytest.mark.nightly
@pytest.mark.parametrize("model", WHOLE, ids=str)
def test_all_come_to_the_same_map_within_the_whole_scope(model: Gossip) -> None:
    check(model)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_yields_a_counterexample(error: str) -> None:
    found = explore(replace(PLANTED[error], error=error))
    assert found.broken
    assert "  1 " in found.story
