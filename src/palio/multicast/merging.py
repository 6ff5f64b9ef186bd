"""Group approximation: as many groups as there may be, so that little is sent in vain.

At first each distinct set of destinations has a group; then groups are merged. Up to `EXACT` of
them the pair that adds least waste goes first, over all pairs. Of more, those with the least share
and size are absorbed by the others before, the smallest first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.multicast import kernels
from palio.multicast.broker_sets import (
    Words,
    distinct,
    masks_of,
    rows_of,
    sizes_of,
    united,
    words_of,
)
from palio.multicast.listed import ListedGroups
from palio.multicast.plans import priced
from palio.multicast.traffic import GroupTraffic

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

EXACT: Final = 4_096
"""Sets up to which all pairs are compared for merging: that takes 2 s."""

PRICE_STEPS: Final = 16
"""Prices count as so many whole steps; a broker is as many bits of a set as its price has."""

LOOKED_AT: Final = 16_384
"""The sets by which a change of a plan is judged: those with the most events."""


def approximated(traffic: GroupTraffic, groups: int, prices: Floats | None = None) -> ListedGroups:
    """Make a plan with at most so many groups; one has all brokers, for sets never seen before.

    >>> from palio.multicast.plans import explain
    >>> sets = [(["b1"], 5), (["b1", "b2"], 1), (["b3"], 5)]
    >>> plan = approximated(GroupTraffic.of(["b1", "b2", "b3"], sets), groups=3)
    >>> [explain(plan, [name]) for name in plan.brokers]
    [['group 1 of b1, b2: in vain to b2'], ['group 1 of b1, b2: in vain to b1'], ['group 0 of b3']]
    """
    if groups < 1:
        raise InvalidInput("a plan has one group at least")
    places = {name: place for place, name in enumerate(traffic.brokers)}
    everyone = rows_of([traffic.brokers], places)
    if groups == 1 or not len(traffic):
        return ListedGroups("approximated", traffic.brokers, everyone, prices)
    # The set of all brokers has its group already, and is not merged with others.
    some = (traffic.sets != everyone).any(axis=1)
    sets, shares = traffic.sets[some], traffic.shares[some]
    owners = _owners(_weighted(sets, prices), shares, groups - 1)
    names, owners = np.unique(owners, return_inverse=True)
    merged = united(sets, owners, len(names))
    several, _ = distinct(np.concatenate([merged, everyone]), np.ones(len(merged) + 1))
    return ListedGroups("approximated", traffic.brokers, several, prices)


def _weighted(sets: Words, prices: Floats | None) -> Words:
    """Sets in which a broker is as many bits as its price has steps."""
    if prices is None:
        return sets
    if prices.min() <= 0 or not np.isfinite(prices).all():
        raise InvalidInput("prices are numbers above 0")
    steps = np.maximum(1, np.round(prices / prices.max() * PRICE_STEPS).astype(np.int64))
    return words_of(np.repeat(masks_of(sets, len(prices)), steps, axis=1))


def _owners(sets: Words, shares: Floats, groups: int) -> Longs:
    """Find, for each set, the one that it is merged into."""
    if len(sets) <= groups:
        return np.arange(len(sets))
    order = np.argsort(-shares * sizes_of(sets), kind="stable")
    heads, tails = order[: max(EXACT, 2 * groups)], order[max(EXACT, 2 * groups) :][::-1]
    owners = np.empty(len(sets), np.int64)
    owners[heads] = heads
    gathered, weights = sets[heads], shares[heads]
    if len(tails):
        into, _ = kernels.absorb(gathered, weights, sets[tails], shares[tails])
        owners[tails] = heads[into]
        gathered |= united(sets[tails], into, len(heads))
        weights += np.bincount(into, shares[tails], minlength=len(heads))
    last, _ = kernels.merge(gathered, weights, groups)
    place = np.empty(len(sets), np.int64)
    place[heads] = np.arange(len(heads))
    return heads[last[place[owners]]]


def replanned(old: ListedGroups, traffic: GroupTraffic, changes: int) -> ListedGroups:
    """Plan for other traffic, but keep all but `changes` groups of the old plan.

    Each change takes in the group of a new plan that saves most, and drops the one that is missed
    least, as long as that saves something: so equal traffic leaves a plan as it is.

    >>> brokers = ["b1", "b2", "b3", "b4"]
    >>> old = approximated(GroupTraffic.of(brokers, [(["b1", "b2"], 1)]), groups=2)
    >>> new = replanned(old, GroupTraffic.of(brokers, [(["b3", "b4"], 1)]), changes=1)
    >>> new.groups.tolist()
    [[12], [15]]
    """
    if old.brokers != traffic.brokers:
        raise InvalidInput("the brokers of the plan are others than those of the traffic")
    top = np.argsort(-traffic.shares, kind="stable")[:LOOKED_AT]
    sets, shares = traffic.sets[top], traffic.shares[top]
    fresh = approximated(traffic, old.group_count, old.prices)
    groups = np.concatenate([old.groups, fresh.groups])
    groups = groups[np.sort(np.unique(groups, axis=0, return_index=True)[1])]
    costs = priced(groups, old.prices)
    holds = np.empty((len(groups), len(sets)), np.bool_)
    for row, group in enumerate(groups):
        holds[row] = ~((sets & ~group).any(axis=1))
    prices = np.where(holds, costs[:, None], np.inf)
    used = np.arange(len(groups)) < old.group_count
    everyone = costs.argmax()
    for _ in range(changes):
        now = prices[used].min(axis=0)
        saved = np.where(used, 0.0, np.maximum(now - prices, 0) @ shares)
        best = int(saved.argmax())
        if saved[best] <= 0:
            break
        used[best] = True
        lost = _missed(prices, shares, used)
        lost[everyone] = np.inf
        least = int(lost.argmin())
        used[least] = False
        if saved[best] <= lost[least]:
            used[least], used[best] = True, False
            break
    return ListedGroups("approximated", old.brokers, groups[used], old.prices)


def _missed(prices: Floats, shares: Floats, used: npt.NDArray[np.bool_]) -> Floats:
    """Compute how much more events would cost without each group; infinite if it is unused."""
    places = np.flatnonzero(used)
    ranked = prices[places]
    first = ranked.argmin(axis=0)
    cheapest = ranked[first, np.arange(ranked.shape[1])]
    ranked[first, np.arange(ranked.shape[1])] = np.inf
    dearer = (ranked.min(axis=0) - cheapest) * shares
    lost = np.full(len(prices), np.inf)
    lost[places] = np.bincount(first, dearer, minlength=len(places))
    return lost
