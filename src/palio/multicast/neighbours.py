"""`NeighbourGroups`: hop by hop, each broker sends to the group of those neighbours that lie on the
way (link matching). Groups are few and known to neighbours only; brokers between get events too.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.model.limits import check_limit
from palio.multicast.broker_sets import Words, masks_of, numbered, words_of
from palio.multicast.plans import Sends, sends_to
from palio.routing.trees import Graph, shortest_paths

Longs = npt.NDArray[np.int64]

MAX_NEIGHBOURS: Final = 20
"""Neighbours of a broker: it has a group for each subset of them."""


class NeighbourGroups:
    """A tree of shortest paths for each publisher's broker, over one graph.

    >>> from palio.multicast.plans import explain
    >>> line = {"b1": {"b2": 1}, "b2": {"b1": 1, "b3": 1}, "b3": {"b2": 1}}
    >>> explain(NeighbourGroups(("b1", "b2", "b3"), line), ["b3"], publisher="b1")
    ['group 0 of b2: in vain to b2', 'group 2 of b3']
    """

    method = "neighbours"

    def __init__(self, brokers: tuple[str, ...], graph: Graph) -> None:
        places = numbered(brokers)
        costs = [each for near in graph.values() for each in near.values()]
        if not all(type(each) is int and each >= 1 for each in costs):
            raise InvalidInput("the cost of a link is a whole number, 1 or more")
        self.brokers = brokers
        self.graph = {name: dict(graph.get(name, {})) for name in brokers}
        self._neighbours = [sorted(places[each] for each in self.graph[name]) for name in brokers]
        widest = max(map(len, self._neighbours))
        check_limit("the number of a broker's neighbours", "MAX_NEIGHBOURS", MAX_NEIGHBOURS, widest)
        counts = [(1 << len(each)) - 1 for each in self._neighbours]
        self._first: Longs = np.cumsum([0, *counts])
        self.group_count = int(self._first[-1])
        self._ways: dict[int, list[tuple[int, int]]] = {}

    @property
    def joins(self) -> Longs:
        """Groups that each broker joins: half of the groups of each neighbour."""
        degree = np.array([len(each) for each in self._neighbours])
        return np.array([sum(1 << degree[each] - 1 for each in near) for near in self._neighbours])

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """Choose the groups that carry events. In the order of brokers from the publisher's on,
        which has the event.
        """
        wanted = masks_of(sets, len(self.brokers)).copy()
        subsets = np.zeros((len(self.brokers), len(sets)), np.int64)
        paths = self._paths_from(publisher)
        for broker, above in reversed(paths):
            # Events for a broker or beyond it pass through the one above it.
            bit = 1 << self._neighbours[above].index(broker)
            subsets[above] |= np.where(wanted[:, broker], bit, 0)
            wanted[:, above] |= wanted[:, broker]
        order = [publisher, *(broker for broker, _ in paths)]
        chosen = np.where(subsets > 0, self._first[:-1, None] + subsets - 1, -1)[order].T
        return sends_to(chosen, np.zeros_like(sets))

    def members(self, groups: Longs) -> Words:
        """Return the members of groups."""
        masks = np.zeros((len(groups), len(self.brokers)), np.bool_)
        homes = self.senders(groups)
        for home in np.unique(homes).tolist():
            rows = np.flatnonzero(homes == home)
            near = self._neighbours[home]
            bits = (groups[rows] - self._first[home] + 1)[:, None] >> np.arange(len(near)) & 1
            masks[np.ix_(rows, near)] = bits.astype(np.bool_)
        return words_of(masks)

    def senders(self, groups: Longs) -> Longs:
        """Find the number of the broker that sends to each group.

        >>> line = {"b1": {"b2": 1}, "b2": {"b1": 1, "b3": 1}, "b3": {"b2": 1}}
        >>> plan = NeighbourGroups(("b1", "b2", "b3"), line)
        >>> plan.senders(np.arange(plan.group_count)).tolist()
        [0, 1, 1, 1, 2]
        """
        return np.searchsorted(self._first, groups, side="right") - 1

    def document(self) -> dict[str, Any]:
        """Return the content of a file."""
        return {"graph": self.graph}

    def _paths_from(self, publisher: int) -> list[tuple[int, int]]:
        """List the other brokers, nearest first, each with the one before it."""
        if publisher not in self._ways:
            places = numbered(self.brokers)
            parents = shortest_paths(self.graph, self.brokers[publisher]).parents
            if len(parents) < len(self.brokers):
                lost = next(name for name in self.brokers if name not in parents)
                raise InvalidInput(
                    f"no path leads from {self.brokers[publisher]!r:.80} to {lost!r:.80}"
                )
            self._ways[publisher] = [
                (places[name], places[above]) for name, above in parents.items() if name != above
            ]
        return self._ways[publisher]
