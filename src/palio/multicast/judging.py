"""What plans cost for events that they were not made of.

A plan has groups for the sets that it was made of, so by those it looks better than it is: where
each set is rare, a group for each of them costs nothing in vain, and hardly any set occurs again.
So a plan is made of half of the events and judged by the other half. Of half of the events plans
that learn from them are a little worse than of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.multicast.plans import GroupPlan, PlanReport, measure
from palio.multicast.traffic import GroupTraffic

__all__ = ["LEAST_HELD_OUT", "Halves", "halves", "judged"]

LEAST_HELD_OUT: Final = 10
"""Fewer events are not held out, and plans are judged by those that they are made of. Where each of
ten brokers wants an event with probability 0.3, the mean of ten events is off by a seventh."""

DEALT_BY: Final = 1
"""The seed of the order in which odd events are dealt to the halves. In the order of their bits all
sets with the first broker could come to the same half."""


class Halves(NamedTuple):
    """Some traffic, each event of it in one of two halves."""

    kept: GroupTraffic
    held_out: GroupTraffic


def halves(traffic: GroupTraffic) -> Halves:
    """Half of the events of each set; of odd numbers the last goes to each half in turn.

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
    """The plan that is made of all traffic, and what plans so made cost for events held out.

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
