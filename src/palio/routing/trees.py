"""Trees over a graph with link costs: the shortest paths from one broker, and one tree for all.

Brokers that have the same links, costs and uses compute the same trees. The one tree for all keeps
its links as long as it can. So neither a broker that joins, nor a new link, nor the loss of a link
outside the tree changes the path of any event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

Graph: TypeAlias = Mapping[str, Mapping[str, int]]
"""For each broker its neighbours, and the cost of the link to each."""

Edge: TypeAlias = tuple[str, str]
"""A link, the lesser name first."""

DETOUR: Final = 2
"""A link stays in the tree unless it costs more than so many times a detour."""

MAX_LINK_COST: Final = 1_000_000_000
"""Greatest cost of a link, so that the cost of a path over all links is still a number. It marks a
link that is about to close: the tree uses it only where there is no other."""

LEAVING_LINK_COST: Final = MAX_LINK_COST // 4
"""Cost of a link to a broker that drains. A closing link costs more: a draining broker stays until
no path needs it, so paths may lead through it for a while."""

STOPPING_LINK_COST: Final = MAX_LINK_COST // 2
"""Cost of a link to a broker that stops at once. Paths prefer a drained broker, which stays until
it is stopped, too. The three costs differ enough to be reported (`NOTABLE`)."""

MAX_USABLE_COST: Final = 1_000_000
"""Greatest cost that is configured or measured; as a round trip, 10,000 s."""

UNMEASURED: Final = MAX_USABLE_COST + 1
"""Cost of a link without a measurement. The tree uses such a link if there is no other, and keeps
one in use until it is measured."""

LANDMARKS: Final = 4
"""Brokers whose distances locate the middle of a component."""

NOTABLE: Final = 1.5
"""A broker reports a cost that has grown or shrunk by this factor."""


def is_notable_change(reported: int, cost: int) -> bool:
    """Return whether a cost differs enough from the reported one to be reported.

    >>> is_notable_change(100, 140), is_notable_change(100, 151), is_notable_change(100, 60)
    (False, True, True)
    """
    return cost > reported * NOTABLE or reported > cost * NOTABLE


def edge_of(one: str, other: str) -> Edge:
    """Return the link between two brokers."""
    return (one, other) if one < other else (other, one)


class PathTree(NamedTuple):
    """The tree of shortest paths from a root."""

    parents: dict[str, str]
    """For each reachable broker, nearest first, the broker before it; the root's is itself."""
    distances: dict[str, int]


def shortest_paths(graph: Graph, root: str, within: int | None = None) -> PathTree:
    """Compute the shortest paths from a root, to brokers no farther than `within`.

    Of equally short paths the one over the lesser name counts, so that all brokers agree.

    >>> shortest_paths({"a": {"b": 9, "c": 1}, "b": {"a": 9, "c": 1}, "c": {"a": 1, "b": 1}}, "a")
    PathTree(parents={'a': 'a', 'c': 'a', 'b': 'c'}, distances={'a': 0, 'c': 1, 'b': 2})
    """
    parents: dict[str, str] = {}
    distances: dict[str, int] = {}
    pending = [(0, root, root)]
    while pending:
        distance, broker, parent = heappop(pending)
        if broker in parents:
            continue
        parents[broker], distances[broker] = parent, distance
        for neighbour, cost in graph.get(broker, {}).items():
            farther = distance + cost
            if neighbour not in parents and (within is None or farther <= within):
                heappush(pending, (farther, neighbour, broker))
    return PathTree(parents, distances)


def spanning_tree(graph: Graph, used: Iterable[Edge], member: str) -> frozenset[Edge]:
    """Compute the links of the one tree of the component that contains a broker.

    The tree takes links in this order, and skips those that would close a circle:

    1. links in use, unless a detour is much cheaper;
    2. other links by their distance from the middle of the component. With no link in use, the tree
       is that of the shortest paths from the middle;
    3. links to draining brokers, then to stopping brokers, then closing links.

    Links of one group go by distance, then by cost.

    >>> ring = {"a": {"b": 1, "c": 1}, "b": {"a": 1, "c": 1}, "c": {"a": 1, "b": 1}}
    >>> sorted(spanning_tree(ring, (), "c")), sorted(spanning_tree(ring, [("a", "b")], "c"))
    ([('a', 'c'), ('b', 'c')], [('a', 'b'), ('a', 'c')])
    """
    component = shortest_paths(graph, member).distances
    near = shortest_paths(graph, middle(graph, component)).distances
    kept = {edge for edge in used if edge[0] in near and not _has_detour(graph, edge)}

    def rank(edge: Edge) -> tuple[int, bool, int, int, Edge]:
        one, other = edge
        cost = graph[one][other]
        distance = min(near[one], near[other]) + cost
        urgency = sum(map(cost.__ge__, (LEAVING_LINK_COST, STOPPING_LINK_COST, MAX_LINK_COST)))
        return urgency, edge not in kept, distance, cost, edge

    edges = {edge_of(one, other) for one in near for other in graph.get(one, ())}
    return forest(sorted(edges, key=rank))


def forest(links: Iterable[Edge]) -> frozenset[Edge]:
    """Select, in their order, the links that close no circle.

    >>> sorted(forest([("a", "b"), ("b", "c"), ("a", "c")]))
    [('a', 'b'), ('b', 'c')]
    """
    groups: dict[str, str] = {}
    tree = set()
    for link in links:
        one, other = (_leader(groups, end) for end in link)
        if one != other:
            groups[other] = one
            tree.add(link)
    return frozenset(tree)


def parents_below(root: str, links: Iterable[Edge]) -> dict[str, str]:
    """Map each broker that the links reach from a root, nearest first, to the broker above it.

    >>> parents_below("b", [("a", "b"), ("b", "c"), ("c", "d")])
    {'b': 'b', 'a': 'b', 'c': 'b', 'd': 'c'}
    """
    near: dict[str, list[str]] = {}
    for one, other in links:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    parents = {root: root}
    queue = [root]
    for broker in queue:
        for below in near.get(broker, ()):
            if below not in parents:
                parents[below] = broker
                queue.append(below)
    return parents


def middle(graph: Graph, among: Iterable[str]) -> str:
    """Choose a broker whose greatest distance to any other is nearly the least.

    The exact middle would need the distances of all pairs. Distances to a few brokers that are far
    from each other are enough.

    >>> middle({"a": {"b": 1}, "b": {"a": 1, "c": 1}, "c": {"b": 1}}, "abc")
    'b'
    """
    candidates = sorted(among)
    landmarks = [shortest_paths(graph, candidates[0]).distances]
    landmarks[0] = shortest_paths(graph, _farthest(landmarks)).distances
    while len(landmarks) < LANDMARKS:
        landmarks.append(shortest_paths(graph, _farthest(landmarks)).distances)

    def farness(broker: str) -> tuple[int, int, str]:
        distances = [each[broker] for each in landmarks]
        return max(distances), sum(distances), broker

    return min(candidates, key=farness)


def _farthest(landmarks: list[dict[str, int]]) -> str:
    """Find the broker that is farthest from its nearest landmark."""
    return max(landmarks[0], key=lambda broker: (min(each[broker] for each in landmarks), broker))


def _has_detour(graph: Graph, edge: Edge) -> bool:
    """Return whether a detour is much cheaper than the link, or the link is gone."""
    one, other = edge
    cost = graph.get(one, {}).get(other)
    if cost is None:
        return True
    if cost == UNMEASURED:
        return False
    within = (cost - 1) // DETOUR
    return within > 0 and other in shortest_paths(graph, one, within).distances


def _leader(groups: dict[str, str], broker: str) -> str:
    groups.setdefault(broker, broker)
    while groups[broker] != broker:
        groups[broker] = groups[groups[broker]]
        broker = groups[broker]
    return broker
