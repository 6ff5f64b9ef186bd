"""Clusters of brokers that are alike: near each other, or interested in the same events."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.multicast.broker_sets import masks_of
from palio.multicast.traffic import GroupTraffic
from palio.routing.trees import Graph, shortest_ways

__all__ = ["clusters_of", "likeness_by_interest", "likeness_by_location", "regionalism"]

Floats = npt.NDArray[np.float64]


def likeness_by_interest(traffic: GroupTraffic) -> Floats:
    """How alike two brokers are: of the events that either wants, the share that both want.

    >>> traffic = GroupTraffic.of(["b1", "b2", "b3"], [(["b1", "b2"], 1), (["b2", "b3"], 3)])
    >>> likeness_by_interest(traffic)[1].tolist()
    [0.25, 1.0, 0.75]
    """
    masks = masks_of(traffic.sets, len(traffic.brokers)).astype(np.float64)
    both = masks.T @ (masks * traffic.shares[:, None])
    each = np.diagonal(both)
    either = each[:, None] + each[None, :] - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def likeness_by_location(brokers: tuple[str, ...], graph: Graph) -> Floats:
    """How near brokers are by the shortest way, whose links weigh what `graph` says.

    >>> graph = {"b1": {"b2": 1}, "b2": {"b1": 1, "b3": 8}, "b3": {"b2": 8}}
    >>> likeness_by_location(("b1", "b2", "b3"), graph)[0].tolist()
    [0.0, -1.0, -9.0]
    """
    _check_graph(brokers, graph)
    near = np.empty((len(brokers), len(brokers)))
    for place, name in enumerate(brokers):
        distances = shortest_ways(graph, name).distances
        missing = [each for each in brokers if each not in distances]
        if missing:
            raise InvalidInput(f"no way leads from {name!r:.80} to {missing[0]!r:.80}")
        near[place] = [-distances[each] for each in brokers]
    return near


def _check_graph(brokers: tuple[str, ...], graph: Mapping[str, Mapping[str, int]]) -> None:
    unknown = next((each for each in brokers if each not in graph), None)
    if unknown is not None:
        raise InvalidInput(f"there is no place for broker {unknown!r:.80} in the graph")


def clusters_of(likeness: Floats, size: int) -> list[list[int]]:
    """Clusters of at most `size` brokers, as alike as a greedy choice finds them.

    Each begins with the broker that is least like all others that are left, as one at the edge is,
    and takes in whoever is most like its members. All have the same size, or one less.

    >>> clusters_of(np.array([[1, 0, 0.9, 0], [0, 1, 0, 0.8], [0.9, 0, 1, 0], [0, 0.8, 0, 1]]), 2)
    [[0, 2], [1, 3]]
    """
    brokers = len(likeness)
    if size < 1:
        raise InvalidInput("a cluster has one broker at least")
    count = -(-brokers // size)
    left = np.ones(brokers, np.bool_)
    clusters = []
    for cluster in range(count):
        target = -(-int(left.sum()) // (count - cluster))
        outer = np.where(left, likeness[:, left].sum(axis=1), np.inf)
        members = [int(outer.argmin())]
        left[members] = False
        nearness = likeness[members[0]].astype(np.float64)
        while len(members) < target:
            nearest = int(np.where(left, nearness, -np.inf).argmax())
            members.append(nearest)
            left[nearest] = False
            nearness = nearness + likeness[nearest]
        clusters.append(sorted(members))
    return sorted(clusters)


def regionalism(traffic: GroupTraffic, clusters: list[list[int]]) -> float:
    """How much of what is wanted stays in one cluster: 0 as if brokers were spread by chance over
    clusters, 1 if each event is wanted in one cluster only. Events for one broker do not count.

    >>> traffic = GroupTraffic.of(["b1", "b2", "b3", "b4"], [(["b1", "b2"], 1)])
    >>> regionalism(traffic, [[0, 1], [2, 3]])
    1.0
    """
    masks = masks_of(traffic.sets, len(traffic.brokers))
    sizes = masks.sum(axis=1)
    several = sizes > 1
    pairs = (sizes * (sizes - 1))[several] @ traffic.shares[several]
    if not pairs:
        return 0.0
    inside = np.zeros(len(masks))
    chance = 0.0
    brokers = len(traffic.brokers)
    for members in clusters:
        here = masks[:, members].sum(axis=1)
        inside += here * (here - 1)
        chance += len(members) * (len(members) - 1)
    by_chance = chance / (brokers * (brokers - 1))
    together = float(inside[several] @ traffic.shares[several]) / float(pairs)
    return 1.0 if by_chance >= 1 else max(0.0, (together - by_chance) / (1 - by_chance))
