"""`Epoch`: a plan in use, with its groups by their members' names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from palio.errors import NotSupported
from palio.model.limits import check_limit
from palio.multicast.broker_sets import masks_of, numbered, rows_of
from palio.multicast.plans import GroupPlan

MAX_GROUPS_IN_USE: Final = 4_096
"""Groups of a plan in use: each is a membership of hosts and switches, and the table of as many
brokers in each takes 16 MB."""


class Carriage(NamedTuple):
    """The groups and links that carry an event to some brokers."""

    groups: tuple[tuple[int, tuple[str, ...]], ...]
    """Groups, each with the brokers that receive by it; a broker receives by one group at most."""
    by_link: tuple[str, ...]
    """The brokers without a group."""


class Epoch:
    """A plan that the brokers of a network use, with a unique number.

    >>> from palio.multicast.listed import flooding
    >>> epoch = Epoch(7, flooding(("b1", "b2", "b3")))
    >>> epoch.members(0), epoch.groups_of("b3"), epoch.groups_of("b9")
    (('b1', 'b2', 'b3'), (0,), ())
    >>> epoch.carriage(["b1", "b9", "b3"])
    Carriage(groups=((0, ('b1', 'b3')),), by_link=('b9',))
    """

    def __init__(self, id: int, plan: GroupPlan) -> None:
        check_usable(plan)
        self.id = id
        self.plan = plan
        self._places = numbered(plan.brokers)
        self._masks = masks_of(plan.members(np.arange(plan.group_count)), len(plan.brokers))
        self._members: dict[int, tuple[str, ...]] = {}  # cached

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers of the plan."""
        return self.plan.brokers

    def members(self, group: int) -> tuple[str, ...]:
        """Return the members of a group, in the order of the plan; none of an unknown group."""
        if not 0 <= group < len(self._masks):
            return ()
        if group not in self._members:
            places = np.flatnonzero(self._masks[group]).tolist()
            self._members[group] = tuple(self.plan.brokers[place] for place in places)
        return self._members[group]

    def place(self, broker: str, group: int) -> int:
        """Return a broker's position among the members of a group, from 0; -1 if it is none."""
        place = self._places.get(broker, -1)
        if place < 0 or not 0 <= group < len(self._masks) or not self._masks[group, place]:
            return -1
        return int(self._masks[group, :place].sum())

    def groups_of(self, broker: str) -> tuple[int, ...]:
        """List the groups that a broker joins."""
        place = self._places.get(broker)
        return () if place is None else tuple(np.flatnonzero(self._masks[:, place]).tolist())

    def carriage(self, brokers: Iterable[str]) -> Carriage:
        """Choose the groups and links for an event to some brokers; those outside the plan are
        served by links.
        """
        names = list(brokers)
        inside = [name for name in names if name in self._places]
        outside = [name for name in names if name not in self._places]
        if not inside:
            return Carriage((), tuple(outside))
        sends = self.plan.sends(rows_of([inside], self._places))
        remaining = dict.fromkeys(inside)
        groups: list[tuple[int, tuple[str, ...]]] = []
        for group in sends.groups.tolist():
            row = self._masks[group]
            receivers = tuple(name for name in remaining if row[self._places[name]])
            for name in receivers:
                del remaining[name]
            if receivers:
                groups.append((group, receivers))
        return Carriage(tuple(groups), (*remaining, *outside))


def check_usable(plan: GroupPlan) -> None:
    """Refuse a plan that brokers cannot use."""
    if plan.method == "neighbours":
        raise NotSupported(
            "a plan of neighbours has groups hop by hop, and brokers send to groups once; "
            "make a plan by another method"
        )
    check_limit(
        "the number of groups of a plan in use",
        "MAX_GROUPS_IN_USE",
        MAX_GROUPS_IN_USE,
        plan.group_count,
    )
