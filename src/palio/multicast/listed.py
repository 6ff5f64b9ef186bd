"""`ListedGroups`: an event goes to the smallest listed group with all brokers that want it.

The ideal plan has a group for each set of destinations that occurs; flooding has one of all
brokers. The approximation (`merging`) lies between them: as many groups as there may be.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput, LimitExceeded
from palio.model.limits import check_limit
from palio.multicast import kernels
from palio.multicast.broker_sets import Words, masks_of, numbered, rows_of, words_of
from palio.multicast.clustered import MAX_GROUPS, ClusteredGroups
from palio.multicast.plans import Sends, priced, received, sends_to
from palio.multicast.traffic import GroupTraffic

FEW_SETS: Final = 8
"""Sets up to which each is compared with all groups, in 2 ms at most. For more the compiled code is
loaded, which takes a second, and no event of a broker may wait for that."""

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ListedGroups:
    """Groups by their members, the cheapest first.

    >>> from palio.multicast.broker_sets import named
    >>> plan = ideal(GroupTraffic.of(["b1", "b2", "b3"], [(["b1"], 1), (["b1", "b2"], 1)]))
    >>> sends = plan.sends(rows_of([["b2"], ["b3"]], numbered(plan.brokers)))
    >>> sends.starts.tolist(), [named(row, plan.brokers) for row in plan.members(sends.groups)]
    ([0, 1, 1], [('b1', 'b2')])
    >>> [named(row, plan.brokers) for row in sends.by_link]
    [(), ('b3',)]
    """

    def __init__(
        self, method: str, brokers: tuple[str, ...], groups: Words, prices: Floats | None = None
    ) -> None:
        self.method = method
        self.brokers = brokers
        costs = priced(groups, prices)
        order = np.argsort(costs, kind="stable")
        self.groups = np.ascontiguousarray(groups[order])
        self.prices = prices
        masks = masks_of(self.groups, len(brokers))
        self.joins: Longs = masks.sum(axis=0, dtype=np.int64)
        holders, numbers = np.nonzero(masks.T)
        self._of_broker = numbers
        """The groups of each broker, cheapest first, concatenated."""
        self._starts = np.searchsorted(holders, np.arange(len(brokers) + 1)).astype(np.int64)

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.groups)

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """Choose the groups that carry events. Brokers without a common group all receive the
        event by links.
        """
        del publisher
        if len(sets) <= FEW_SETS:
            found = np.fromiter(map(self._first_with, sets), np.int64, len(sets))
        else:
            found = kernels.supersets(
                np.ascontiguousarray(sets), self.groups, self._starts, self._of_broker
            )
        by_link = np.where((found < 0)[:, None], sets, np.uint64(0))
        return sends_to(found[:, None], by_link)

    def _first_with(self, wanted: Words) -> int:
        """Find the first group with all of a set; -1 if there is none or the set is empty."""
        if not wanted.any():
            return -1
        holding = np.flatnonzero(~(wanted & ~self.groups).any(axis=1))
        return int(holding[0]) if len(holding) else -1

    def members(self, groups: Longs) -> Words:
        """Return the members of groups."""
        return self.groups[groups]

    def document(self) -> dict[str, Any]:
        """Return the content of a file, with a row of bits for each group."""
        rows = np.packbits(masks_of(self.groups, len(self.brokers)), axis=1, bitorder="little")
        found: dict[str, Any] = {"groups": b64encode(rows.tobytes()).decode()}
        if self.prices is not None:
            found["prices"] = self.prices.tolist()
        return found


def ideal(traffic: GroupTraffic, most: int | None = None) -> ListedGroups:
    """Make a group for each set that occurs: the fewest deliveries, and mostly too many groups."""
    several = traffic.sets
    if most is not None and len(several) > most:
        raise LimitExceeded(
            "the number of groups of the ideal plan",
            limit="groups",
            maximum=most,
            actual=len(several),
        )
    return ListedGroups("ideal", traffic.brokers, several)


def flooding(brokers: tuple[str, ...]) -> ListedGroups:
    """Make one group of all brokers, for every event with a subscriber."""
    numbered(brokers)
    return ListedGroups("flooding", brokers, rows_of([brokers], numbered(brokers)))


def listed(
    method: str, brokers: tuple[str, ...], document: dict[str, Any], most: int = MAX_GROUPS
) -> ListedGroups:
    """Decode the plan of a file."""
    data = b64decode(document["groups"], validate=True)
    width = -(-len(numbered(brokers)) // 8)
    count = len(data) // width
    check_limit("the number of groups of this plan", "MAX_GROUPS", most, count)
    rows = np.frombuffer(data, np.uint8).reshape(-1, width)
    masks = np.unpackbits(rows, axis=1, bitorder="little", count=len(brokers)).view(np.bool_)
    if not masks.any(axis=1).all() or (rows[:, -1] >> ((len(brokers) - 1) % 8 + 1)).any():
        raise InvalidInput("a group of the plan names no broker, or one that there is not")
    prices = document.get("prices")
    given = None if prices is None else np.asarray(prices, np.float64)
    if given is not None and given.shape != (len(brokers),):
        raise InvalidInput(f"the plan has not a price for each of {len(brokers)} brokers")
    return ListedGroups(method, brokers, words_of(masks), given)


class HybridGroups:
    """Clusters near the edge, approximation across: whichever is cheaper for an event.

    What stays in a few clusters goes to exactly those who want it; what goes to many of them is
    sent once, to a group that has them all and some others. The groups of the second plan have the
    higher numbers.

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
        """Number of groups."""
        return self.edge.group_count + self.across.group_count

    @property
    def joins(self) -> Longs:
        """Groups that each broker joins."""
        return self.edge.joins + self.across.joins

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """Choose the groups that carry events."""
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
        """Return the members of groups."""
        is_broad = groups >= self.edge.group_count
        found = np.zeros((len(groups), self.across.groups.shape[1]), np.uint64)
        found[is_broad] = self.across.members(groups[is_broad] - self.edge.group_count)
        found[~is_broad] = self.edge.members(groups[~is_broad])
        return found

    def document(self) -> dict[str, Any]:
        """Return the content of a file."""
        return {
            "edge": self.edge.document(),
            "across": self.across.document(),
            "send_price": self.send_price,
        }
