"""Random storms under every routing: whatever happens, each event comes to whom it is for, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from palio.matching.index import Index
from palio.routing.acyclic import Acyclic, Hierarchical
from palio.routing.advertised import Advertised
from palio.routing.flooded import Flooded
from palio.routing.gateway import Gateway
from palio.routing.general import General
from palio.routing.protocol import Matching, Role, Router
from palio.routing.source_trees import SourceTrees
from palio.simulation import Topology
from palio_studies.simulator.poset_selector import PosetSelector
from tests.conftest import seeds
from tests.routing.scenarios import Storm
from tests.routing.test_gateway import GATEWAYS, is_gateway, mesh_of_hierarchies
from tests.routing.test_general import below, proxy
from tests.routing.test_proxies import found_out


def hierarchy_of_trees(name: str) -> Router:
    """b1 is the root of a hierarchy of the gateways; below each gateway is a tree of peers."""
    if name not in GATEWAYS:
        return Acyclic(name)
    return Gateway(name, Acyclic, Hierarchical, is_gateway, top=Role.SIDE)


class HybridStorm(Storm):
    """Three gateways in a ring (or below the first), all other brokers somewhere below them."""

    def _topology(self, size: int, graph: bool) -> Topology:
        mesh = [("b1", "b2"), ("b1", "b3")] + ([("b2", "b3")] if graph else [])
        below = [
            (f"b{self.random.between(1, number - 1)}", f"b{number}")
            for number in range(4, size + 4)
        ]
        return Topology(tuple(f"b{each + 1}" for each in range(size + 3)), tuple(mesh + below))

    def fault(self) -> None:
        self.network.cut("b2", "b3")
        self.faults.append(lambda: self.network.heal("b2", "b3"))


on_trees = partial(Storm, graph=False)
on_graphs = partial(Storm, graph=True)
indexed = partial(Acyclic, selector=lambda: Matching(Index()))
walking = partial(Acyclic, selector=PosetSelector)

STORMS: Final[Mapping[str, Callable[[int], Storm]]] = {
    "acyclic": partial(on_trees, routing=Acyclic),
    "acyclic, selected by the index": partial(on_trees, routing=indexed),
    "acyclic, selected by a walk": partial(on_trees, routing=walking),
    "hierarchical": partial(on_trees, routing=Hierarchical),
    "advertised": partial(on_trees, routing=Advertised),
    "flooded": partial(on_trees, routing=Flooded),
    "source-trees": partial(on_graphs, routing=SourceTrees),
    "general": partial(on_graphs, routing=General),
    "general, selected by a walk": partial(on_graphs, routing=partial(General, inner=walking)),
    "general-advertised": partial(on_graphs, routing=partial(General, inner=Advertised)),
    "proxies": partial(on_graphs, routing=proxy),
    "proxies below b1": partial(on_graphs, routing=below),
    "proxies below P1": partial(on_graphs, routing=found_out),
    "mesh of hierarchies": partial(HybridStorm, routing=mesh_of_hierarchies, graph=True),
    "tree of hierarchies": partial(
        HybridStorm, routing=partial(mesh_of_hierarchies, outside=Acyclic)
    ),
    "hierarchy of trees": partial(HybridStorm, routing=hierarchy_of_trees),
}


@pytest.mark.parametrize("kind", STORMS)
@pytest.mark.parametrize("seed", seeds(12, nightly=10_000))
def test_storm(seed: int, kind: str) -> None:
    STORMS[kind](seed).run()
