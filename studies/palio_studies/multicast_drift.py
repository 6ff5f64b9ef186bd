"""Subscriptions change, and with them where events go: what becomes of plans, and what it costs to
make them anew (multicast 6).

Time is in *periods*. In each the same share of the subscriptions at each broker ends, and others
begin. A plan is made of the events of the period before the one in which it comes into use, for
nothing else is known by then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from palio.multicast.broker_sets import Words, masks_of
from palio.multicast.listed import ListedGroups, ideal
from palio.multicast.merging import approximated, replanned
from palio.multicast.packing import pack
from palio.multicast.traffic import GroupTraffic
from palio_studies.multicast_network import Wan
from palio_studies.multicast_queues import EVENT_BYTES
from palio_studies.multicast_scenes import Clientele
from palio_studies.multicast_ways import CLUSTERED, plans_for
from palio_studies.study import Point, Row

__all__ = ["ANEW", "EVERY", "FEW", "FEW_OF", "FIXED", "KEPT", "PlanKeeper", "run_drift"]

KEPT: Final = "kept"
ANEW: Final = "anew"
FEW: Final = "a few groups"
EVERY: Final[dict[str, int]] = {KEPT: 0, "anew, every 4th": 4, "anew, every 2nd": 2, ANEW: 1}
"""After so many periods an approximated plan is made anew; 0 for never."""

FEW_OF: Final = 16
"""...or in each period one group in so many is."""

FIXED: Final = ("flooding", CLUSTERED, "neighbours")
"""Methods whose groups do not depend on what is wanted."""

MEMBERSHIP_BYTES: Final = 64
"""To join or leave a group takes a message of headers and a few fields on each link from the broker
to the sender. That is the most: a router that has the group already passes nothing on."""


class Upkeep(NamedTuple):
    """What it takes that a plan comes into use."""

    moved: int = 0
    """Memberships that brokers end or begin, if a group that stays as it is kept its address."""
    rejoined: int = 0
    """...and those that they do: each plan has addresses of its own."""
    replan_links: float = 0.0
    """Links that are crossed for it, counted as by an event."""


class PlanKeeper:
    """An approximated plan, and how it is kept up."""

    def __init__(self, wan: Wan, first: ListedGroups, *, every: int = 0, few: int = 0) -> None:
        self.plan = first
        self._wan = wan
        self._every = every
        self._few = few

    def step(self, period: int, learned: GroupTraffic) -> Upkeep:
        """A period begins; `learned` is of the one before. The first plan is for period 1."""
        before = self.plan
        if period > 1 and self._few:
            self.plan = replanned(before, learned, self._few)
        elif period > 1 and self._every and (period - 1) % self._every == 0:
            self.plan = approximated(learned, before.group_count)
        return Upkeep() if self.plan is before else upkeep_of(self._wan, before, self.plan)


def upkeep_of(wan: Wan, before: ListedGroups, after: ListedGroups) -> Upkeep:
    """What it takes to go from a plan to another: its text goes to all brokers along the tree of a
    publisher's broker, and brokers leave the groups of the one and join those of the other.
    """
    root = len(wan.subscribers)
    ways = wan.tree(root).paths
    hops = ways.sum(axis=1)[: len(wan.subscribers)]
    told = len(pack(after)) * float(ways.any(axis=0).sum())
    moved = sum(
        int(masks_of(each, len(before.brokers)).sum())
        for each in (_only_in(before, after), _only_in(after, before))
    )
    joins = before.joins + after.joins
    return Upkeep(
        moved, int(joins.sum()), (told + MEMBERSHIP_BYTES * float(joins @ hops)) / EVENT_BYTES
    )


def _only_in(one: ListedGroups, other: ListedGroups) -> Words:
    """The groups that the other plan has not."""
    known = {row.tobytes() for row in other.groups}
    return one.groups[[row.tobytes() not in known for row in one.groups]]


def run_drift(point: Point) -> list[Row]:
    """Periods in which subscriptions change: what an event costs by plans that are kept, and by
    those made anew, and what that takes.
    """
    parameters = point.parameters
    learned, events, groups = (int(parameters[name]) for name in ("learned", "events", "groups"))
    clientele = Clientele(parameters, point.seed)
    before = clientele.scene(learned, events)
    fixed = plans_for(before.wan, before.learned, before.published, groups)
    first = fixed["approximated"]
    assert isinstance(first, ListedGroups)  # for types
    keepers = {name: PlanKeeper(before.wan, first, every=every) for name, every in EVERY.items()}
    keepers[FEW] = PlanKeeper(before.wan, first, few=max(1, groups // FEW_OF))
    rows: list[Row] = []
    for period in range(1, int(parameters["periods"]) + 1):
        clientele.change(float(parameters["drift"]))
        now = clientele.scene(learned, events)
        plans = {"ideal": ideal(now.published), **{name: fixed[name] for name in FIXED}}
        took = dict.fromkeys(plans, Upkeep())
        for name, keeper in keepers.items():
            took[name] = keeper.step(period, before.learned)
            plans[name] = keeper.plan
        rows += [
            {
                "method": name,
                "is_learned": name in keepers,
                "period": period,
                **now.costs(made),
                **took[name]._asdict(),
            }
            for name, made in plans.items()
        ]
        before = now
    return rows
