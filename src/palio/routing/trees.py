"""Trees over a graph with weights: the shortest ways from one broker, and one tree for all.

All brokers that know the same links, weights and uses see the same trees. The one tree for all
keeps the links that it has as long as it can: a broker that joins, a link that is new or one that
the tree does without changes no way that events take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

Graph: TypeAlias = Mapping[str, Mapping[str, int]]
"""For each broker its neighbours, and what the link to each weighs."""

Edge: TypeAlias = tuple[str, str]
"""A link, the lesser name first."""

DETOUR: Final = 2
"""A link stays in the tree unless it weighs more than so many times a way round it."""


MAX_WEIGHT: Final = 1_000_000_000
"""Greatest weight of a link, so that a way over all of them is still a number. One that weighs so
much is to go: it is taken only where there is no other."""

LEAVING_WEIGHT: Final = MAX_WEIGHT // 4
"""Weight of a link to a broker that leaves. One that ends by itself weighs more: a broker stays
until it is needed no longer, so ways may lead through it a while."""

STOPPING_WEIGHT: Final = MAX_WEIGHT // 2
"""Weight of a link to a broker that stops at once. Ways lead rather through one that was drained:
that stays until somebody stops it, too. The three differ as much as neighbours tell (`NOTABLE`).
"""

MAX_PRICE: Final = 1_000_000
"""Greatest weight of a link by its price or its round trip, which would be 10,000 s."""

UNMEASURED: Final = MAX_PRICE + 1
"""Weight of a link of which nothing is known yet. Such a link is taken if there is no other; one
that is in use is left alone until it is known."""

LANDMARKS: Final = 4
"""Brokers whose distances say where the middle is."""

NOTABLE: Final = 1.5
"""A weight is sent again when it has grown or shrunk by so much."""


def is_other_weight(said: int, weight: int) -> bool:
    """Return whether a weight differs enough from the weight that was sent.

    >>> is_other_weight(100, 140), is_other_weight(100, 151), is_other_weight(100, 60)
    (False, True, True)
    """
    return weight > said * NOTABLE or said > weight * NOTABLE


def edge_of(one: str, other: str) -> Edge:
    """The link between two brokers."""
    return (one, other) if one < other else (other, one)


class Ways(NamedTuple):
    """The tree of shortest ways from a root."""

    parents: dict[str, str]
    """For each broker that can be reached, the nearest first, the one before it."""
    distances: dict[str, int]


def shortest_ways(graph: Graph, root: str, within: int | None = None) -> Ways:
    """The shortest ways from a root, to brokers no farther than `within`; ties to lesser names.

    >>> shortest_ways({"a": {"b": 9, "c": 1}, "b": {"a": 9, "c": 1}, "c": {"a": 1, "b": 1}}, "a")
    Ways(parents={'a': 'a', 'c': 'a', 'b': 'c'}, distances={'a': 0, 'c': 1, 'b': 2})
    """
    parents: dict[str, str] = {}
    distances: dict[str, int] = {}
    waiting = [(0, root, root)]
    while waiting:
        distance, broker, parent = heappop(waiting)
        if broker in parents:
            continue
        parents[broker], distances[broker] = parent, distance
        for neighbour, weight in graph.get(broker, {}).items():
            farther = distance + weight
            if neighbour not in parents and (within is None or farther <= within):
                heappush(waiting, (farther, neighbour, broker))
    return Ways(parents, distances)


def spanning_tree(graph: Graph, used: Iterable[Edge], member: str) -> frozenset[Edge]:
    """The links of the one tree of the component that holds a broker.

    Those that are in use come first, the lighter the sooner, unless a way round one is much lighter
    than it is. Others come in the order of their distance from the middle of the component: where
    none is in use yet, the tree is that of the shortest ways from there. Links to brokers that
    leave come after all these, then those to brokers that stop, and last links that are to go.

    >>> ring = {"a": {"b": 1, "c": 1}, "b": {"a": 1, "c": 1}, "c": {"a": 1, "b": 1}}
    >>> sorted(spanning_tree(ring, (), "c")), sorted(spanning_tree(ring, [("a", "b")], "c"))
    ([('a', 'c'), ('b', 'c')], [('a', 'b'), ('a', 'c')])
    """
    component = shortest_ways(graph, member).distances
    near = shortest_ways(graph, middle(graph, component)).distances
    kept = {edge for edge in used if edge[0] in near and not _has_detour(graph, edge)}

    def place(edge: Edge) -> tuple[int, bool, int, int, Edge]:
        one, other = edge
        weight = graph[one][other]
        farness = min(near[one], near[other]) + weight
        goes = sum(map(weight.__ge__, (LEAVING_WEIGHT, STOPPING_WEIGHT, MAX_WEIGHT)))
        return goes, edge not in kept, farness, weight, edge

    edges = {edge_of(one, other) for one in near for other in graph.get(one, ())}
    return forest(sorted(edges, key=place))


def forest(links: Iterable[Edge]) -> frozenset[Edge]:
    """Keep those links, in their order, that close no circle.

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
    """For each broker that some links lead to from a root, the nearest first, the one above it.

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
    """Choose a broker of a component with no long way to any other, nearly the shortest: all of
    them compared would take a look at all ways. It has the shortest to a few that are far from
    each other.

    >>> middle({"a": {"b": 1}, "b": {"a": 1, "c": 1}, "c": {"b": 1}}, "abc")
    'b'
    """
    able = sorted(among)
    landmarks = [shortest_ways(graph, able[0]).distances]
    landmarks[0] = shortest_ways(graph, _farthest(landmarks)).distances
    while len(landmarks) < LANDMARKS:
        landmarks.append(shortest_ways(graph, _farthest(landmarks)).distances)

    def farness(broker: str) -> tuple[int, int, str]:
        distances = [each[broker] for each in landmarks]
        return max(distances), sum(distances), broker

    return min(able, key=farness)


def _farthest(landmarks: list[dict[str, int]]) -> str:
    """The broker farthest from the nearest of some others."""
    return max(landmarks[0], key=lambda broker: (min(each[broker] for each in landmarks), broker))


def _has_detour(graph: Graph, edge: Edge) -> bool:
    """Return whether there is a way round a link that is much lighter than it is."""
    one, other = edge
    weight = graph.get(one, {}).get(other)
    if weight is None:
        return True  # it is there no longer
    if weight == UNMEASURED:
        return False
    within = (weight - 1) // DETOUR
    return within > 0 and other in shortest_ways(graph, one, within).distances


def _leader(groups: dict[str, str], broker: str) -> str:
    groups.setdefault(broker, broker)
    while groups[broker] != broker:
        groups[broker] = groups[groups[broker]]
        broker = groups[broker]
    return broker
