"""What makes routers, for each name of the registry and no other."""

from __future__ import annotations

from palio.routing.algorithms import ALGORITHMS
from palio.routing.reference_selector import ReferenceSelector
from palio.routing.routers import ROUTERS


def test_every_algorithm_has_a_router_and_every_router_an_algorithm() -> None:
    assert list(ROUTERS) == list(ALGORITHMS)
    for name, make in ROUTERS.items():
        assert make("b7", ReferenceSelector).name == "b7", name
