"""`GroupPlan`: multicast groups, the choice of groups for an event, and the cost of plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Words, masks_of, named, rows_of, sizes_of, united, words_of
from palio.multicast.traffic import GroupTraffic

_AT_ONCE: Final = 65_536
"""Sets that are unpacked to a byte a broker at once."""

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Sends(NamedTuple):
    """The sends of each of some events."""

    starts: Longs
    """Event `i` is sent to `groups[starts[i] : starts[i + 1]]`."""
    groups: Longs
    by_link: Words
    """The brokers without a group, which are served by links."""

    @property
    def events(self) -> Longs:
        """The event of each send to a group."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def sends_to(groups: Longs, by_link: Words) -> Sends:
    """Make the sends of events from a row of groups for each; -1 stands for none."""
    kept = groups >= 0
    starts = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(kept.sum(axis=1), out=starts[1:])
    return Sends(starts, groups[kept], by_link)


class GroupPlan(Protocol):
    """A plan of one method. Sets of brokers are rows of bits (`broker_sets`)."""

    brokers: tuple[str, ...]

    @property
    def method(self) -> str:
        """The name of the method."""

    @property
    def group_count(self) -> int:
        """Number of groups."""

    @property
    def joins(self) -> Longs:
        """Number of groups that each broker joins."""

    def sends(self, sets: Words, publisher: int = 0) -> Sends:
        """Choose the groups that carry events with these destinations from a publisher's broker:
        each of them is in one of the groups, or gets it by a link.
        """

    def members(self, groups: Longs) -> Words:
        """Return the members of groups."""

    def document(self) -> dict[str, Any]:
        """Return the content of a file."""


def priced(sets: Words, prices: Floats | None) -> Floats:
    """Return the cost of an event at these brokers.

    >>> priced(np.array([[5]], np.uint64), np.array([1.0, 1.0, 2.5])).tolist()
    [3.5]
    """
    if prices is None:
        return sizes_of(sets).astype(np.float64)
    costs = np.empty(len(sets))
    for first in range(0, len(sets), _AT_ONCE):
        part = sets[first : first + _AT_ONCE]
        costs[first : first + len(part)] = masks_of(part, len(prices)) @ prices
    return costs


def received(plan: GroupPlan, sends: Sends) -> Words:
    """Return the brokers that get each event, wanted or not."""
    return sends.by_link | united(plan.members(sends.groups), sends.events, len(sends.by_link))


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """The cost of a plan, on average over the events of some traffic."""

    method: str
    groups: int
    joins: float
    """Groups that a broker joins, on average."""
    most_joins: int
    sends: float
    """Sends to groups an event."""
    links: float
    """Sends by links an event."""
    precision: float
    """Brokers that wanted an event, of those that got it."""
    waste: float
    """Brokers that got an event in vain."""
    price: float
    """The prices of all brokers that get an event: 1 each unless prices were given."""
    held_out: float = 0.0
    """Held-out events by which the plan was judged (`judged`); 0 if it was judged by the events it
    was made from."""

    def row(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def measure(plan: GroupPlan, traffic: GroupTraffic, prices: Floats | None = None) -> PlanReport:
    """Measure the cost of a plan for some traffic. Every broker publishes as much where that
    matters.

    >>> from palio.multicast.listed import flooding
    >>> traffic = GroupTraffic.of(["b1", "b2", "b3", "b4"], [(["b1", "b2"], 1)])
    >>> measure(flooding(traffic.brokers), traffic).precision
    0.5
    """
    by_publisher = plan.method == "neighbours"
    publishers = range(len(plan.brokers)) if by_publisher else range(1)
    totals = np.zeros(4)
    for publisher in publishers:
        sends = plan.sends(traffic.sets, publisher)
        got = received(plan, sends)
        if by_publisher:
            got |= traffic.sets & _alone(publisher, traffic.sets.shape[1])
        totals += [
            float(traffic.shares @ each)
            for each in (
                np.diff(sends.starts),
                sizes_of(sends.by_link),
                sizes_of(got),
                priced(got, prices),
            )
        ]
    sent, linked, reached, price = (totals / len(publishers)).tolist()
    return PlanReport(
        method=plan.method,
        groups=plan.group_count,
        joins=float(plan.joins.mean()),
        most_joins=int(plan.joins.max()),
        sends=sent,
        links=linked,
        precision=traffic.destinations / reached if reached else 1.0,
        waste=reached - traffic.destinations,
        price=price,
    )


def _alone(publisher: int, words: int) -> Words:
    """Make the set of the publisher's own broker, which has the event."""
    own = np.zeros((1, 64 * words), np.bool_)
    own[0, publisher] = True
    return words_of(own)


def explain(plan: GroupPlan, destinations: list[str], publisher: str | None = None) -> list[str]:
    """Describe the path of one event, a line for each send.

    >>> from palio.multicast.listed import flooding
    >>> for line in explain(flooding(("b1", "b2", "b3")), ["b1", "b2"]):
    ...     print(line)
    group 0 of b1, b2, b3: in vain to b3
    """
    places = {name: place for place, name in enumerate(plan.brokers)}
    wanted = rows_of([destinations], places)
    if publisher is not None:
        rows_of([[publisher]], places)  # it must be one of them
    sends = plan.sends(wanted, places[publisher] if publisher is not None else 0)
    lines = []
    for group, members in zip(sends.groups.tolist(), plan.members(sends.groups), strict=True):
        vain = named(members & ~wanted[0], plan.brokers)
        tail = f": in vain to {', '.join(vain)}" if vain else ""
        lines.append(f"group {group} of {', '.join(named(members, plan.brokers))}{tail}")
    lines += [f"{name} by a link" for name in named(sends.by_link[0], plan.brokers)]
    return lines or ["nobody wants it: it is not sent"]


# --- what plans cost for events that they were not made of ---
#
# A plan has groups for the sets that it was made of, so by those it looks better than it is: where
# each set is rare, a group for each of them costs nothing in vain, and hardly any set occurs again.
# So a plan is made of half of the events and judged by the other half. Of half of the events plans
# that learn from them are a little worse than of all.


LEAST_HELD_OUT: Final = 10
"""With fewer events none is held out, and plans are judged by the events they are made from. Where
each of ten brokers wants an event with probability 0.3, the mean of ten events is off by a seventh.
"""

DEALT_BY: Final = 1
"""The seed of the order in which odd events are dealt to the halves. In the order of their bits all
sets with the first broker could come to the same half."""


class Halves(NamedTuple):
    """Traffic split into two halves."""

    kept: GroupTraffic
    held_out: GroupTraffic


def halves(traffic: GroupTraffic) -> Halves:
    """Split the events of each set; the last of an odd number goes to each half in turn.

    >>> traffic = GroupTraffic.of(["b1", "b2"], [(["b1"], 5), (["b2"], 2), (["b1", "b2"], 1)])
    >>> [each.events for each in halves(traffic)]
    [4.0, 4.0]
    """
    kept = np.floor(traffic.counts / 2)
    held_out, left = kept.copy(), traffic.counts - 2 * kept
    order = np.random.default_rng(DEALT_BY).permutation(len(traffic))
    odd = order[left[order] > 0]
    kept[odd[::2]] += left[odd[::2]]
    held_out[odd[1::2]] += left[odd[1::2]]
    return Halves(_with(traffic, kept), _with(traffic, held_out))


def _with(traffic: GroupTraffic, counts: npt.NDArray[np.float64]) -> GroupTraffic:
    return GroupTraffic.counted(traffic.brokers, traffic.sets, counts)


def judged(
    make: Callable[[GroupTraffic], GroupPlan],
    traffic: GroupTraffic,
    prices: npt.NDArray[np.float64] | None = None,
) -> tuple[GroupPlan, PlanReport]:
    """Make a plan from all traffic; measure the cost of plans of its kind for held-out events.

    >>> from functools import partial
    >>> from palio.multicast.listed import ideal
    >>> traffic = GroupTraffic.of(["b1", "b2"], [(["b1"], 10), (["b1", "b2"], 10)])
    >>> plan, report = judged(ideal, traffic)
    >>> plan.group_count, report.waste, report.held_out
    (2, 0.0, 10.0)
    """
    made = make(traffic)
    kept, held_out = halves(traffic)
    if held_out.events < LEAST_HELD_OUT:
        return made, measure(made, traffic, prices)
    report = measure(make(kept), held_out, prices)
    return made, replace(
        report,
        groups=made.group_count,
        joins=float(made.joins.mean()),
        most_joins=int(made.joins.max()),
        held_out=held_out.events,
    )
