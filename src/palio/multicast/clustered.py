"""`ClusteredGroups`: brokers in clusters, and a group for each subset of a cluster (CGM).

An event is sent once to each cluster in which anybody wants it. With a threshold `t` there are
groups of up to `t` brokers only, and one of the whole cluster for more. No group is listed: its
number encodes its members, so a plan is as small as its clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.model.limits import check_limit
from palio.multicast.broker_sets import Words, masks_of, numbered, words_of
from palio.multicast.plans import Sends, sends_to
from palio.multicast.traffic import GroupTraffic
from palio.routing.trees import Graph, shortest_paths

Longs = npt.NDArray[np.int64]

MAX_CLUSTER: Final = 20
"""Brokers of a cluster: a table of its subsets has 2^20 rows."""

MAX_GROUPS: Final = 1 << 24
"""Groups of a plan: as many as IPv4 has in 239.0.0.0/8, addresses for an organization's own use."""


def groups_needed(members: int, threshold: int | None = None) -> int:
    """Count the groups of a cluster: a closed form.

    >>> groups_needed(5), groups_needed(5, threshold=2)
    (31, 16)
    """
    if threshold is None or threshold >= members:
        return int(2**members - 1)
    return sum(comb(members, size) for size in range(1, threshold + 1)) + 1


class ClusteredGroups:
    """Disjoint clusters of all brokers.

    >>> plan = ClusteredGroups(("b1", "b2", "b3", "b4"), [[0, 1], [2, 3]])
    >>> plan.group_count
    6
    >>> from palio.multicast.plans import explain
    >>> explain(plan, ["b1", "b3", "b4"])
    ['group 0 of b1', 'group 5 of b3, b4']
    """

    def __init__(
        self,
        brokers: tuple[str, ...],
        clusters: Sequence[Sequence[int]],
        threshold: int | None = None,
        most: int = MAX_GROUPS,
    ) -> None:
        numbered(brokers)
        self.brokers = brokers
        self.threshold = threshold
        self.clusters = self._checked(clusters)
        counts = [groups_needed(len(each), threshold) for each in self.clusters]
        self.group_count = sum(counts)
        check_limit("the number of groups of these clusters", "MAX_GROUPS", most, self.group_count)
        self._first: Longs = np.cumsum([0, *counts])
        self._tables = {len(each): _Subsets(len(each), threshold) for each in self.clusters}

    def _checked(self, clusters: Sequence[Sequence[int]]) -> list[list[int]]:
        places = [place for each in clusters for place in each]
        is_sound = len(places) == len(self.brokers) and all(type(each) is int for each in places)
        if not is_sound or sorted(places) != list(range(len(places))):
            raise InvalidInput("clusters have each broker once, and no other")
        if not all(clusters):
            raise InvalidInput("a cluster has one broker at least")
        largest = max(map(len, clusters))
        check_limit("the size of a cluster", "MAX_CLUSTER", MAX_CLUSTER, largest)
        if self.threshold is not None and self.threshold < 1:
            raise InvalidInput("a threshold is 1 or more")
        return [sorted(each) for each in clusters]

    @property
    def method(self) -> str:
        """Name of the method."""
        return "clustered" if self.threshold is None else "threshold"

    @property
    def joins(self) -> Longs:
        """Groups that each broker joins."""
        joins = np.zeros(len(self.brokers), np.int64)
        for members in self.clusters:
            joins[members] = self._tables[len(members)].joins
        return joins

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """Choose the groups that carry events."""
        del publisher
        masks = masks_of(sets, len(self.brokers))
        chosen = np.full((len(sets), len(self.clusters)), -1, np.int64)
        for cluster, members in enumerate(self.clusters):
            table = self._tables[len(members)]
            subsets = masks[:, members] @ (1 << np.arange(len(members)))
            number = table.numbers[subsets]
            chosen[:, cluster] = np.where(subsets > 0, self._first[cluster] + number, -1)
        return sends_to(chosen, np.zeros_like(sets))

    def members(self, groups: Longs) -> Words:
        """Return the members of groups."""
        masks = np.zeros((len(groups), len(self.brokers)), np.bool_)
        homes = np.searchsorted(self._first, groups, side="right") - 1
        for cluster in np.unique(homes).tolist():
            rows = np.flatnonzero(homes == cluster)
            members = self.clusters[cluster]
            subsets = self._tables[len(members)].subsets[groups[rows] - self._first[cluster]]
            bits = subsets[:, None] >> np.arange(len(members)) & 1
            masks[np.ix_(rows, members)] = bits.astype(np.bool_)
        return words_of(masks)

    def document(self) -> dict[str, Any]:
        """Return the content of a file."""
        found: dict[str, Any] = {"clusters": self.clusters}
        if self.threshold is not None:
            found["threshold"] = self.threshold
        return found


class _Subsets:
    """The numbered groups of any cluster of one size: the subsets that have a group."""

    def __init__(self, members: int, threshold: int | None) -> None:
        if threshold is None or threshold >= members:
            self.subsets: Longs = np.arange(1, 1 << members, dtype=np.int64)
        else:
            whole = (1 << members) - 1
            chosen = [
                sum(1 << place for place in places)
                for size in range(1, threshold + 1)
                for places in combinations(range(members), size)
            ]
            self.subsets = np.array([*sorted(chosen), whole], np.int64)
        self.numbers: Longs = np.full(1 << members, len(self.subsets) - 1, np.int64)
        """By subset, the number of its group: its own, or the whole cluster's."""
        self.numbers[self.subsets] = np.arange(len(self.subsets))
        self.joins = int((self.subsets & 1).sum())
        """Groups that each member joins: by symmetry as many for all."""


# --- which brokers are alike ---


Floats = npt.NDArray[np.float64]


def likeness_by_interest(traffic: GroupTraffic) -> Floats:
    """Measure how alike brokers are: of the events that either wants, the share that both want.

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
    """Measure how near brokers are by shortest paths over the link costs of `graph`.

    >>> graph = {"b1": {"b2": 1}, "b2": {"b1": 1, "b3": 8}, "b3": {"b2": 8}}
    >>> likeness_by_location(("b1", "b2", "b3"), graph)[0].tolist()
    [0.0, -1.0, -9.0]
    """
    _check_graph(brokers, graph)
    near = np.empty((len(brokers), len(brokers)))
    for place, name in enumerate(brokers):
        distances = shortest_paths(graph, name).distances
        missing = [each for each in brokers if each not in distances]
        if missing:
            raise InvalidInput(f"no path leads from {name!r:.80} to {missing[0]!r:.80}")
        near[place] = [-distances[each] for each in brokers]
    return near


def _check_graph(brokers: tuple[str, ...], graph: Mapping[str, Mapping[str, int]]) -> None:
    unknown = next((each for each in brokers if each not in graph), None)
    if unknown is not None:
        raise InvalidInput(f"there is no place for broker {unknown!r:.80} in the graph")


def clusters_of(likeness: Floats, size: int) -> list[list[int]]:
    """Clusters of at most `size` brokers, as alike as a greedy choice finds them.

    Each begins with the broker that is least like all others that are left, as one at the edge is,
    and takes in the broker most like its members. All have the same size, or one less.

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
    """Measure how much interest stays in one cluster: 0 as if brokers were spread by
    chance over clusters, 1 if each event is wanted in one cluster only. Events for one broker do
    not count.

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
