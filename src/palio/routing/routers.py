"""What makes the router of each algorithm, apart from their names, which cost nothing to list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from palio.routing.acyclic import Acyclic
from palio.routing.advertised import Advertised
from palio.routing.centralized import Centralized
from palio.routing.flooded import Flooded
from palio.routing.general import General
from palio.routing.hierarchical import Hierarchical
from palio.routing.protocol import Router, SelectorFactory
from palio.routing.proxies import Proxies
from palio.routing.source_trees import SourceTrees

__all__ = ["ROUTERS"]

ROUTERS: Final[Mapping[str, Callable[[str, SelectorFactory], Router]]] = {
    "general": lambda name, selector: General(name, lambda inner: Acyclic(inner, selector)),
    "general-advertised": lambda name, selector: General(
        name, lambda inner: Advertised(inner, selector)
    ),
    "source-trees": SourceTrees,
    "acyclic": Acyclic,
    "advertised": Advertised,
    "hierarchical": Hierarchical,
    "proxies": lambda name, selector: General(name, lambda inner: Proxies(inner, selector)),
    "flooded": Flooded,
    "centralized": Centralized,
}
"""By the name of the algorithm."""
