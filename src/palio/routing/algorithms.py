"""The catalogue of routing algorithms: names, kinds of network, and features.

`palio serve --routing`, the configuration, `palio simulate`, `palio.testing.Network` and the table
in docs/concepts/routing.md read it, so a listed algorithm is available everywhere. A router's
module is imported only when one is made: commands need no more than the names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.routing.protocol import Router, SelectorFactory


class GraphKind(Enum):
    """The kind of network that an algorithm needs."""

    ALONE = "one broker"
    TREE = "a tree"
    GRAPH = "any graph"


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One algorithm, as a user chooses it."""

    name: str
    summary: str
    graph: GraphKind
    has_parents: bool = False
    """True if each broker but one is configured with the broker above it."""
    finds_parents: bool = False
    """True if brokers elect a root; one with a configured parent is not eligible."""
    is_advertised: bool = False
    """True if only events that their publisher advertised count."""
    takes_advertisements: bool = False
    """True if brokers use advertisements; else `advertise` is an error."""
    assembles: bool = False
    """True if brokers can assemble patterns where their events meet."""
    router: Callable[[str, SelectorFactory], Router] | None = None
    """Makes a router, for an algorithm of your own."""
    joins: bool = False
    """True if a gateway may have it on a side."""
    is_destined: bool = False
    """True if a broker can name all destinations of an event, as multicast groups need."""

    def new(
        self,
        name: str,
        selector: SelectorFactory | None = None,
        *,
        incarnation: int = 0,
        has_parent: bool = False,
    ) -> Router:
        """Make a router for one broker.

        `incarnation` has to grow with each start of the broker: the time will do. With
        `has_parent` the broker is not eligible as root, where brokers elect one.
        """
        # Imported here, as the command line reads this catalogue at each start.
        from palio.routing.general import General
        from palio.routing.reference_selector import ReferenceSelector
        from palio.routing.source_trees import SourceTrees

        make = self.router or _routers()[self.name]
        router = make(name, selector or ReferenceSelector)
        if isinstance(router, SourceTrees):
            router.begin(incarnation)
        if isinstance(router, General):
            router.has_parent = has_parent
        return router

    def new_gateway(
        self,
        name: str,
        outside: Algorithm,
        brokers: frozenset[str],
        selector: SelectorFactory | None = None,
    ) -> Router:
        """Make a router that links brokers of another algorithm, by their names."""
        from palio.routing.gateway import Gateway
        from palio.routing.protocol import Role

        return Gateway(
            name,
            lambda inner: self.new(inner, selector),
            lambda outer: outside.new(outer, selector),
            lambda peer: peer.name in brokers,
            Role.MASTER if self.has_parents else Role.SIDE,
        )

    def new_assembling(
        self,
        name: str,
        selector: SelectorFactory | None = None,
        *,
        incarnation: int = 0,
        has_parent: bool = False,
        window: timedelta | None = None,
    ) -> Router:
        """Make a router that also assembles patterns, if the algorithm `assembles`. It holds events
        back for a `window`, to order them.
        """
        if not self.assembles:
            return self.new(name, selector, incarnation=incarnation, has_parent=has_parent)
        from palio.routing.patterns.router import REORDER_WINDOW, Patterned
        from palio.routing.reference_selector import ReferenceSelector

        return Patterned(
            name,
            lambda inner: self.new(inner, selector, incarnation=incarnation),
            REORDER_WINDOW if window is None else window,
            selector=selector or ReferenceSelector,
        )


ALGORITHMS: Final[dict[str, Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            name="general",
            summary="one tree over any graph, and as acyclic along it",
            graph=GraphKind.GRAPH,
            joins=True,
        ),
        Algorithm(
            name="general-advertised",
            summary="one tree over any graph, and as advertised along it",
            graph=GraphKind.GRAPH,
            is_advertised=True,
            takes_advertisements=True,
            assembles=True,
            joins=True,
        ),
        Algorithm(
            name="source-trees",
            summary="events take shortest paths, on one tree for each broker that publishes",
            graph=GraphKind.GRAPH,
            is_destined=True,
        ),
        Algorithm(
            name="acyclic",
            summary="subscriptions go to all brokers, unless a wider one has gone there",
            graph=GraphKind.TREE,
            joins=True,
        ),
        Algorithm(
            name="advertised",
            summary="subscriptions go towards advertisements that they overlap",
            graph=GraphKind.TREE,
            is_advertised=True,
            takes_advertisements=True,
            assembles=True,
            joins=True,
        ),
        Algorithm(
            name="hierarchical",
            summary="subscriptions and events go up to a root, events down where they match",
            graph=GraphKind.TREE,
            has_parents=True,
            joins=True,
        ),
        Algorithm(
            name="proxies",
            summary="subscriptions go up to a root and down to what they overlap, events as wanted",
            graph=GraphKind.GRAPH,
            finds_parents=True,
            takes_advertisements=True,
        ),
        Algorithm(
            name="flooded",
            summary="every broker has every subscription",
            graph=GraphKind.TREE,
            is_destined=True,
        ),
        Algorithm(
            name="centralized",
            summary="one broker for all clients",
            graph=GraphKind.ALONE,
        ),
    )
}
"""By name; the first is the default."""


def _routers() -> dict[str, Callable[[str, SelectorFactory], Router]]:
    """Return the maker of each router algorithm of Palio, by name."""
    from palio.routing.acyclic import Acyclic, Centralized, Hierarchical
    from palio.routing.advertised import Advertised
    from palio.routing.flooded import Flooded
    from palio.routing.general import General
    from palio.routing.proxies import Proxies
    from palio.routing.source_trees import SourceTrees

    return {
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


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name.

    >>> find_algorithm("source-trees").graph.value
    'any graph'
    """
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        names = ", ".join(ALGORITHMS)
        raise InvalidInput(f"{name!r:.80} is no routing algorithm; choose one of {names}")
    return algorithm
