"""The campaign notices deliberate bugs: most of them within 500 seeds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import pytest

from tests.campaign.drawing import draw
from tests.campaign.judgement import play
from tests.campaign.planted.nodes import IN_NODES
from tests.campaign.planted.sessions import IN_SESSIONS
from tests.campaign.planted.ways import ON_WAYS
from tests.conftest import NIGHTLY, share
from tests.mutations import Mutation

PLANTED: Final = (*IN_NODES, *IN_SESSIONS, *ON_WAYS)
"""Drawn up before it was known which of them the campaign notices."""

SEEDS: Final = 500 if NIGHTLY else 30

FAST: Final = (
    *("acknowledged before it is written", "nothing is asked for again"),
    *("one word clears the queue", "stored is what was sent", "over for one is over for all"),
    *("an early entry is taken", "what a neighbour lacks is not sent"),
    *("what cannot be read is nothing", "losses are not told"),
    *("changes are not claimed", "what waits stays behind", "what is shed is not told"),
    *("new events pass those that wait", "numbers that came are not known"),
    *("a session resumes with too much", "a frame overtakes", "arrivals are not acknowledged"),
    "open requests are forgotten",
    *("what both brokers say is heard twice", "plans are not passed on"),
    "updates are not counted",
    "UPD changes the summary only",
)
"""Those that show within a few seeds: a run looks for some of them, and for all bugs at night."""

TODAY: Final = share(FAST, 3)

UNNOTICED: Final[Mapping[str, str]] = {
    "waves do not wait for the tree": "a publisher has to be quicker than three messages",
    "who was away is not missed": "the only way between two has to be stopped in order",
}
"""Bugs undetected in the seeds of docs/failures.md, and the conditions that would show them."""


OF_ONE: Final[Mapping[str, str]] = {
    "a parent is told what is new": "proxies",
    "trees change under events": "general",
}
"""Bugs that few seeds of all algorithms meet: as many seeds of one are played."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    """Most bugs are looked for at night; some of them in vain, as far as is known."""
    if name in UNNOTICED:
        return [pytest.mark.nightly, pytest.mark.xfail(reason=UNNOTICED[name])]
    return [] if name in TODAY else [pytest.mark.nightly]


def campaign(seed: int, routing: str = "") -> None:
    """One seed of it."""
    breaches = play(draw(seed, routing)).breaches
    assert not breaches, breaches[0]


def test_there_are_thirty() -> None:
    assert len({each.name for each in PLANTED}) == len(PLANTED) >= 30
    assert {each.name for each in PLANTED} >= {*FAST, *UNNOTICED, *OF_ONE}


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(each, marks=marks(each.name)) for each in PLANTED],
    ids=lambda mutation: mutation.name,
)
def test_a_bug_is_noticed(mutation: Mutation) -> None:
    trial = partial(campaign, routing=OF_ONE.get(mutation.name, ""))
    seen = mutation.noticed_at(trial, range(SEEDS))
    assert seen is not None, f"{mutation.name}: {SEEDS} seeds saw nothing"
