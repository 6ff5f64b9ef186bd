"""The storms would notice: each of the deliberate bugs fails one of them soon."""

from __future__ import annotations

from typing import Final

import pytest

from palio.routing.general import General
from palio.routing.source_trees import SourceTrees
from tests.conftest import seeds
from tests.mutations import picked
from tests.routing.mutations import HIERARCHY, MUTATIONS, Mutation
from tests.routing.scenarios import Storm
from tests.routing.test_general import test_an_event_that_was_seen_goes_nowhere as seen_once

TRIES: Final = 500
"""One storm in forty notices the rarest bug."""
ON_GRAPHS: Final = (General, SourceTrees, HIERARCHY)

(NO_WINDOW,) = picked(MUTATIONS, "no window of numbers")
"""No storm notices this bug, as nothing comes twice in them; the test of one broker does."""


def test_there_are_many() -> None:
    assert len({each.name for each in MUTATIONS}) >= 20


@pytest.mark.parametrize(
    "mutation",
    [each for each in MUTATIONS if each is not NO_WINDOW],
    ids=lambda each: each.name,
)
def test_storms_catch_a_deliberate_bug(mutation: Mutation) -> None:
    def storm(seed: int) -> None:
        Storm(seed, mutation.routing, graph=mutation.routing in ON_GRAPHS).run()

    tries = seeds(TRIES, nightly=10_000)
    assert mutation.noticed_at(storm, tries) is not None, f"none of {tries} notices"


def test_one_broker_shows_that_numbers_are_not_looked_at() -> None:
    with NO_WINDOW.planted(), pytest.raises(AssertionError):
        seen_once()
