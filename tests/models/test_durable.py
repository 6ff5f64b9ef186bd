"""Durable events keep D1 to D7 and L1 to L4 in every state; each planted error is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from tests.models.durable import Durable
from tests.models.explorer import explore
from tests.models.log import ERRORS

SMALL: Final[Mapping[str, Durable]] = {
    "two moves": Durable(events=1),
    "two moves, a crash": Durable(events=1, crashes=1),
    "two moves, a slow disk": Durable(events=1, is_slow=True),
    "two moves, a refused append": Durable(path=(0, 1), events=1, is_slow=True, refusals=1),
    "two events": Durable(path=(0, 1), crashes=1),
    "a forgetful client": Durable(path=(0, 2, 1), events=1, forgets=True),
    "another subscription": Durable(path=(0, 1), other=True),
    "a lost disk": Durable(path=(0,), events=1, losses=1),
}
WHOLE: Final[Mapping[str, Durable]] = {
    "a crash": Durable(crashes=1),
    "a crash, slowly": Durable(events=1, is_slow=True, crashes=1, refusals=1),
    "a refused append": Durable(path=(0, 1), is_slow=True, refusals=1),
    "a lost disk": Durable(events=1, losses=1),
}
ORIGIN_B: Final = (1,)
PLANTED: Final[Mapping[str, Durable]] = {
    "takes early": Durable(path=(0,)),
    "takes again": Durable(path=(0,)),
    "two appends": Durable(path=(0,), events=1, is_slow=True, crashes=1),
    "lets go when sent": Durable(path=(0,), events=1),
    "retargets sent": Durable(path=(0, 1), events=1),
    "restart forgets": Durable(path=(0, 1), events=1, crashes=1),
    "sends what moves": Durable(path=(0, 1), events=1, is_slow=True),
    "old offset": Durable(path=(0, 1), other=True),
    "closed queue": Durable(path=(0, 1), events=1),
    "last heard wins": Durable(events=0),
    "any number": Durable(path=(0, 2, 1), events=0, forgets=True),
    "old queue stays": Durable(path=(0, 1), events=1),
    "ack in memory": Durable(path=(0,), events=1, is_slow=True, crashes=1),
    "any home log": Durable(path=(0,), origins=ORIGIN_B, losses=1),
    "no new stream": Durable(path=(0,), origins=ORIGIN_B, losses=1),
    "home tells": Durable(path=(0,), events=1, losses=1),
    "nobody tells": Durable(path=(0,), events=1, losses=1),
    "too early": Durable(path=(0,), events=1, losses=1),
    "spotty": Durable(path=(0,), is_slow=True, refusals=1),
    "acts ahead": Durable(path=(0,), origins=ORIGIN_B, is_slow=True, refusals=1),
    "keeps cursor": Durable(path=(0,), events=1, is_slow=True, refusals=1),
    "receipt first": Durable(path=(0,), events=1, is_slow=True),
    "answers first": Durable(path=(0,), events=1, is_slow=True, crashes=1),
}
"""For each error the smallest model that shows it."""


def check(model: Durable) -> None:
    found = explore(model)
    print(f"{found.states:,} states, {found.steps:,} steps")  # noqa: T201
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
    found = explore(replace(PLANTED[error], error=error))
    assert found.broken
    assert "  1 " in found.story
