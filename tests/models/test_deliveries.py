"""`Deliveries` keeps C1 to C4 in every state; each planted error is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.models.deliveries import ERRORS, Consumers
from tests.models.explorer import explore

SMALL: Final[Mapping[str, Consumers]] = {
    "a group": Consumers(events=2),
    "a group, one leaves": Consumers(events=2, most_attempts=1, leaves=1),
    "a group, a kill": Consumers(events=2, most_attempts=1, kills=1),
    "one key": Consumers(events=2, keys=1, leaves=1),
    "two keys": Consumers(events=3, keys=2, most_attempts=1),
    "one consumer": Consumers(events=3, clients=1, most_attempts=1, leaves=1),
    "one consumer, all faults": Consumers(
        events=2, clients=1, with_delays=True, kills=1, refusals=1, leaves=1
    ),
}
WHOLE: Final[Mapping[str, Consumers]] = {
    "three events": Consumers(events=3, most_attempts=1),
    "all faults": Consumers(events=2, most_attempts=1, kills=1, refusals=1, leaves=1),
    "two attempts": Consumers(events=2, leaves=1),
    "delays": Consumers(events=2, with_delays=True),
    "one key, all faults": Consumers(
        events=2, keys=1, most_attempts=1, kills=1, refusals=1, leaves=1
    ),
    "three of one key": Consumers(events=3, keys=1, leaves=1),
}


def check(model: Consumers) -> None:
    found = explore(model)
    assert not found.broken, f"{found.broken}\n{found.story}"


@pytest.mark.parametrize("name", SMALL)
def test_the_invariants_hold(name: str) -> None:
    check(SMALL[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", WHOLE)
def test_the_invariants_hold_within_the_whole_scope(name: str) -> None:
    check(WHOLE[name])


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_yields_a_counterexample(error: str) -> None:
    refusals = int("covers" not in error)
    most = 1 if refusals else 2
    model = Consumers(
        events=2, keys=int("key" in error), refusals=refusals, most_attempts=most, error=error
    )
    assert explore(model).broken
