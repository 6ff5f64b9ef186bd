"""The registry of routing algorithms: each by its name, what network it needs, what it supports.

`palio serve --routing`, the configuration, `palio simulate`, `palio.testing.Network` and the table
in docs/concepts/routing.md read it, so an algorithm that is listed here can be had everywhere. The
routers themselves are imported when one is made: a list of names is all that a command needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.routing.protocol import Router, SelectorFactory

__all__ = ["ALGORITHMS", "Algorithm", "GraphKind", "find_algorithm"]


class GraphKind(Enum):
    """The network that an algorithm is for."""

    ALONE = "one broker"
    TREE = "a tree"
    GRAPH = "any graph"


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One algorithm, as a user chooses it."""

    name: str
    summary: str
    """What it does, in a line."""
    graph: GraphKind
    router: Callable[[str, SelectorFactory], Router]
    has_parents: bool = False
    """Whether each broker but one is told which broker is above it."""
    is_advertised: bool = False
    """Whether events count only where their publisher advertised them. Where they count without,
    `advertise` is an error.
    """
    assembles: bool = False
    """Whether brokers can assemble patterns where their events meet."""
    joins: bool = False
    """Whether a gateway may have it on a side."""

    def new(self, name: str, selector: SelectorFactory | None = None, *, life: int = 0) -> Router:
        """A router for one broker. `life` grows with each time that the broker starts: the time
        will do.
        """
        from palio.routing.reference_selector import ReferenceSelector
        from palio.routing.source_trees import SourceTrees

        router = self.router(name, selector or ReferenceSelector)
        if isinstance(router, SourceTrees):
            router.begin(life)
        return router


def _acyclic(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.acyclic import Acyclic

    return Acyclic(name, selector)


def _advertised(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.advertised import Advertised

    return Advertised(name, selector)


def _hierarchical(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.hierarchical import Hierarchical

    return Hierarchical(name, selector)


def _flooded(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.flooded import Flooded

    return Flooded(name, selector)


def _centralized(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.centralized import Centralized

    return Centralized(name, selector)


def _source_trees(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.source_trees import SourceTrees

    return SourceTrees(name, selector)


def _general(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.general import General

    return General(name, lambda inner: _acyclic(inner, selector))


def _general_advertised(name: str, selector: SelectorFactory) -> Router:
    from palio.routing.general import General

    return General(name, lambda inner: _advertised(inner, selector))


ALGORITHMS: Final[dict[str, Algorithm]] = {
    each.name: each
    for each in (
        Algorithm(
            name="general",
            summary="one tree over any graph, and as acyclic along it",
            graph=GraphKind.GRAPH,
            router=_general,
            joins=True,
        ),
        Algorithm(
            name="general-advertised",
            summary="one tree over any graph, and as advertised along it",
            graph=GraphKind.GRAPH,
            router=_general_advertised,
            is_advertised=True,
            assembles=True,
            joins=True,
        ),
        Algorithm(
            name="source-trees",
            summary="events take shortest ways, on a tree for each broker where some are published",
            graph=GraphKind.GRAPH,
            router=_source_trees,
        ),
        Algorithm(
            name="acyclic",
            summary="subscriptions go to all brokers, unless a wider one has gone there",
            graph=GraphKind.TREE,
            router=_acyclic,
            joins=True,
        ),
        Algorithm(
            name="advertised",
            summary="subscriptions go towards advertisements that they overlap",
            graph=GraphKind.TREE,
            router=_advertised,
            is_advertised=True,
            assembles=True,
            joins=True,
        ),
        Algorithm(
            name="hierarchical",
            summary="subscriptions and events go up to a root, events down where they match",
            graph=GraphKind.TREE,
            router=_hierarchical,
            has_parents=True,
            joins=True,
        ),
        Algorithm(
            name="flooded",
            summary="every broker knows every subscription",
            graph=GraphKind.TREE,
            router=_flooded,
        ),
        Algorithm(
            name="centralized",
            summary="one broker for all clients",
            graph=GraphKind.ALONE,
            router=_centralized,
        ),
    )
}
"""By name; the first is the default."""


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    >>> find_algorithm("source-trees").graph.value
    'any graph'
    """
    found = ALGORITHMS.get(name)
    if found is None:
        known = ", ".join(ALGORITHMS)
        raise InvalidInput(f"{name!r:.80} is no routing algorithm; choose one of {known}")
    return found
