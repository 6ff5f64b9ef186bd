"""`HybridGroups`: clusters near the edge, approximation across: whichever is cheaper for an event.

What stays in a few clusters goes to exactly those who want it; what goes to many of them is sent
once, to a group that has them all and some others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Words
from palio.multicast.clustered import ClusteredGroups
from palio.multicast.listed import ListedGroups
from palio.multicast.plans import Sends, priced, received

__all__ = ["HybridGroups"]

Longs = npt.NDArray[np.int64]


class HybridGroups:
    """Two plans for the same brokers; the groups of the second have the higher numbers.

    `send_price` is what a send costs, measured by a broker that gets an event in vain.
    """

    method = "hybrid"

    def __init__(
        self, edge: ClusteredGroups, across: ListedGroups, send_price: float = 1.0
    ) -> None:
        self.brokers = edge.brokers
        self.edge = edge
        self.across = across
        self.send_price = send_price

    @property
    def group_count(self) -> int:
        """See `GroupPlan`."""
        return self.edge.group_count + self.across.group_count

    @property
    def joins(self) -> Longs:
        """See `GroupPlan`."""
        return self.edge.joins + self.across.joins

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """See `GroupPlan`."""
        del publisher
        near, far = self.edge.sends(sets), self.across.sends(sets)
        several = np.diff(near.starts)
        prices = self.across.prices
        dear = several * self.send_price + priced(received(self.edge, near), prices)
        broad = self.send_price + priced(received(self.across, far), prices)
        is_broad = (np.diff(far.starts) > 0) & (broad < dear)
        starts = np.zeros(len(sets) + 1, np.int64)
        np.cumsum(np.where(is_broad, 1, several), out=starts[1:])
        groups = np.empty(starts[-1], np.int64)
        groups[starts[:-1][is_broad]] = self.edge.group_count + far.groups[is_broad[far.events]]
        kept = ~is_broad[near.events]
        places = starts[near.events] + np.arange(len(near.groups)) - near.starts[near.events]
        groups[places[kept]] = near.groups[kept]
        return Sends(starts, groups, np.zeros_like(sets))

    def members(self, groups: Longs) -> Words:
        """See `GroupPlan`."""
        is_broad = groups >= self.edge.group_count
        found = np.zeros((len(groups), self.across.groups.shape[1]), np.uint64)
        found[is_broad] = self.across.members(groups[is_broad] - self.edge.group_count)
        found[~is_broad] = self.edge.members(groups[~is_broad])
        return found

    def document(self) -> dict[str, Any]:
        """See `GroupPlan`."""
        return {
            "edge": self.edge.document(),
            "across": self.across.document(),
            "send_price": self.send_price,
        }
