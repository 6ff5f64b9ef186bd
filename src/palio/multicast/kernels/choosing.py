"""The kernel that finds the group of an event."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palio.matching.kernels.jit import compiled
from palio.matching.kernels.simd import ones_in

__all__ = ["supersets"]

Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]


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
