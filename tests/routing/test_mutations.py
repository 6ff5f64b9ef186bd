"""The storms would notice: of twenty deliberate bugs at most one goes uncaught."""

from __future__ import annotations

from typing import Final

from palio.routing.general import General
from palio.routing.source_trees import SourceTrees
from tests.conftest import NIGHTLY
from tests.routing.mutations import HIERARCHY, MUTATIONS, Mutation
from tests.routing.scenarios import Storm

TRIES: Final = 10_000 if NIGHTLY else 100
ON_GRAPHS: Final = (General, SourceTrees, HIERARCHY)


def is_caught(mutation: Mutation) -> bool:
    def storm(seed: int) -> None:
        Storm(seed, mutation.routing, graph=mutation.routing in ON_GRAPHS).run()

    return mutation.noticed_at(storm, range(TRIES)) is not None


def test_storms_catch_deliberate_bugs() -> None:
    assert len({each.name for each in MUTATIONS}) >= 20
    missed = [each.name for each in MUTATIONS if not is_caught(each)]
    assert len(missed) <= 1, missed
