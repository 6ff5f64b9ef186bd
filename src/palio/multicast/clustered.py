"""`ClusteredGroups`: brokers in clusters, and a group for each subset of a cluster (CGM).

An event is sent once to each cluster in which anybody wants it. With a threshold `t` there are
groups of up to `t` brokers only, and one of the whole cluster for more. No group is listed: its
number says who is in it, so a plan is as small as its clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput, LimitExceeded
from palio.multicast.broker_sets import Words, masks_of, numbered, words_of
from palio.multicast.plans import Sends, sends_to

__all__ = ["MAX_CLUSTER", "MAX_GROUPS", "ClusteredGroups", "groups_needed"]

Longs = npt.NDArray[np.int64]

MAX_CLUSTER: Final = 20
"""Brokers of a cluster: a table of its subsets has 2^20 rows."""

MAX_GROUPS: Final = 1 << 24
"""Groups of a plan: as many as IPv4 has in 239.0.0.0/8, addresses for an organization's own use."""


def groups_needed(members: int, threshold: int | None = None) -> int:
    """How many groups a cluster has: a closed form.

    >>> groups_needed(5), groups_needed(5, threshold=2)
    (31, 16)
    """
    if threshold is None or threshold >= members:
        return int(2**members - 1)
    return sum(comb(members, size) for size in range(1, threshold + 1)) + 1


class ClusteredGroups:
    """Clusters of brokers, which have all of them, each in one.

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
        if self.group_count > most:
            raise LimitExceeded(
                "the number of groups of these clusters",
                limit="MAX_GROUPS",
                maximum=most,
                actual=self.group_count,
            )
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
        if largest > MAX_CLUSTER:
            raise LimitExceeded(
                "the size of a cluster", limit="MAX_CLUSTER", maximum=MAX_CLUSTER, actual=largest
            )
        if self.threshold is not None and self.threshold < 1:
            raise InvalidInput("a threshold is 1 or more")
        return [sorted(each) for each in clusters]

    @property
    def method(self) -> str:
        """See `GroupPlan`."""
        return "clustered" if self.threshold is None else "threshold"

    @property
    def joins(self) -> Longs:
        """See `GroupPlan`."""
        joins = np.zeros(len(self.brokers), np.int64)
        for members in self.clusters:
            joins[members] = self._tables[len(members)].joins
        return joins

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """See `GroupPlan`."""
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
        """See `GroupPlan`."""
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
        """See `GroupPlan`."""
        found: dict[str, Any] = {"clusters": self.clusters}
        if self.threshold is not None:
            found["threshold"] = self.threshold
        return found


class _Subsets:
    """The groups of any cluster of one size: those subsets that have one, by number."""

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
        """By subset the number of the group that carries it: its own, or the whole cluster's."""
        self.numbers[self.subsets] = np.arange(len(self.subsets))
        self.joins = int((self.subsets & 1).sum())
        """Groups that each member joins: as many for all, for subsets have no favourites."""
