"""The kernels that merge groups, and the one that finds the group of an event.

Two groups have shares `p` and `q` of all events, and brokers `A` and `B`. Merged they waste: what
went to `A` goes to `B - A` as well, and the other way round: `p |B - A| + q |A - B|` an event.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.jit import compiled, inlined
from palio.matching.kernels.simd import ones_in

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@inlined
def _waste(
    ones: Words, one: int, one_share: float, others: Words, other: int, share: float
) -> float:
    less = np.uint64(0)
    more = np.uint64(0)
    for word in range(ones.shape[1]):
        mine, theirs = ones[one, word], others[other, word]
        more += ones_in(theirs & ~mine)
        less += ones_in(mine & ~theirs)
    return one_share * np.float64(more) + share * np.float64(less)


@inlined
def _look(sets: Words, shares: Floats, owners: Longs, best: Longs, costs: Floats, row: int) -> None:
    """Find the best partner of a group among all that are left."""
    costs[row] = np.inf
    for partner in range(len(sets)):
        if partner != row and owners[partner] == partner:
            cost = _waste(sets, row, shares[row], sets, partner, shares[partner])
            if cost < costs[row]:
                costs[row] = cost
                best[row] = partner


@compiled
def merge(sets: Words, shares: Floats, wanted: int) -> tuple[Longs, float]:
    """Merge the pair of groups that adds least waste, until `wanted` are left.

    Gives by group the one it is merged into, itself if none, and the waste. `sets` and `shares` are
    changed. Of each group its best partner is kept: after a merge it is sought again for those
    whose partner was of the pair, and all others are compared with the pair alone.
    """
    count = len(sets)
    owners = np.arange(count)
    best = np.zeros(count, np.int64)
    costs = np.empty(count)
    for row in range(count):
        _look(sets, shares, owners, best, costs, row)
    total = 0.0
    for _ in range(count - wanted):
        one = int(np.argmin(costs))
        other = int(best[one])
        total += costs[one]
        for word in range(sets.shape[1]):
            sets[one, word] |= sets[other, word]
        shares[one] += shares[other]
        owners[other] = one
        costs[other] = np.inf
        _look(sets, shares, owners, best, costs, one)
        for row in range(count):
            if row == one or owners[row] != row:
                continue
            if best[row] == one or best[row] == other:
                _look(sets, shares, owners, best, costs, row)
            else:
                cost = _waste(sets, row, shares[row], sets, one, shares[one])
                if cost < costs[row]:
                    costs[row] = cost
                    best[row] = one
    for row in range(count):
        last = row
        while owners[last] != last:
            last = owners[last]
        owners[row] = last
    return owners, total


@compiled
def absorb(
    heads: Words, head_shares: Floats, tails: Words, tail_shares: Floats
) -> tuple[Longs, float]:
    """Merge tails, in their order, each into the head where it adds least waste."""
    owners = np.zeros(len(tails), np.int64)
    total = 0.0
    for tail in range(len(tails)):
        least = np.inf
        into = 0
        for head in range(len(heads)):
            cost = _waste(tails, tail, tail_shares[tail], heads, head, head_shares[head])
            if cost < least:
                least = cost
                into = head
        for word in range(heads.shape[1]):
            heads[into, word] |= tails[tail, word]
        head_shares[into] += tail_shares[tail]
        owners[tail] = into
        total += least
    return owners, total


@compiled
def supersets(sets: Words, groups: Words, starts: Longs, of_broker: Longs) -> Longs:
    """For each set the first group that holds all of it; -1 if none does, or it is empty.

    The groups of broker `b` are `of_broker[starts[b] : starts[b + 1]]`. Only those of one broker of
    the set need be looked at: of the one that is in the fewest.
    """
    found = np.full(len(sets), -1, np.int64)
    words = sets.shape[1]
    for row in range(len(sets)):
        rarest = -1
        for word in range(words):
            left = sets[row, word]
            while left:
                lowest = left & (~left + np.uint64(1))
                broker = 64 * word + int(ones_in(lowest - np.uint64(1)))
                left ^= lowest
                size = starts[broker + 1] - starts[broker]
                if rarest < 0 or size < starts[rarest + 1] - starts[rarest]:
                    rarest = broker
        if rarest < 0:
            continue
        for place in range(starts[rarest], starts[rarest + 1]):
            group = of_broker[place]
            holds = True
            for word in range(words):
                if sets[row, word] & ~groups[group, word]:
                    holds = False
                    break
            if holds:
                found[row] = group
                break
    return found
