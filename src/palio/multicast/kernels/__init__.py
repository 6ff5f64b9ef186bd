"""The compiled functions of the planners, and when they are loaded: at the first call.

No event waits for a plan to be made, so there is no second way in plain Python. A broker that
changes plans loads them beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Words

__all__ = ["absorb", "load", "merge", "supersets"]

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Kernels:
    supersets: Any
    merge: Any
    absorb: Any


@cache
def load() -> _Kernels:
    """Load the kernels, or compile them if that was never done here."""
    from palio.matching.kernels.cache import KernelCache
    from palio.multicast.kernels import merging

    def everything() -> _Kernels:
        one, words = np.ones(1, np.int64), np.ones((1, 1), np.uint64)
        merging.supersets(words, words, np.array([0, 1]), 0 * one)
        merging.merge(words.copy(), np.ones(1), 1)
        merging.absorb(words.copy(), np.ones(1), words, np.ones(1))
        return _Kernels(merging.supersets, merging.merge, merging.absorb)

    kept = KernelCache.of("multicast", [merging], merging.merge)
    return kept.load(everything) or everything()


def supersets(sets: Words, groups: Words, starts: Longs, of_broker: Longs) -> Longs:
    """For each set the first group that holds all of it, -1 if none does or it is empty."""
    found: Longs = load().supersets(sets, groups, starts, of_broker)
    return found


def merge(sets: Words, shares: Floats, wanted: int) -> tuple[Longs, float]:
    """Merge pairs, always the one that adds least waste, until `wanted` are left: by set the one
    that it is merged into, and the waste in all.
    """
    owners, waste = load().merge(sets.copy(), shares.copy(), wanted)
    return owners, float(waste)


def absorb(
    heads: Words, head_shares: Floats, tails: Words, tail_shares: Floats
) -> tuple[Longs, float]:
    """Merge each tail into the head where it adds least waste: by tail its head, and the waste."""
    owners, waste = load().absorb(heads.copy(), head_shares.copy(), tails, tail_shares)
    return owners, float(waste)
