"""Randomness as an argument: one seeded stream, the same on every machine."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeVar

import numpy as np

T = TypeVar("T")

_BLOCK: Final = 1024


class Randomness:
    """Numbers drawn from a seed, in blocks because numpy's single draws are slow.

    >>> Randomness(7).below(1000) == Randomness(7).below(1000)
    True
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._block: list[float] = []

    def uniform(self) -> float:
        """A float in [0, 1)."""
        if not self._block:
            self._block = self._generator.random(_BLOCK).tolist()
            self._block.reverse()
        return self._block.pop()

    def below(self, bound: int) -> int:
        """An int in [0, bound)."""
        return int(self.uniform() * bound)

    def between(self, low: int, high: int) -> int:
        """An int in [low, high]."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.uniform() < probability

    def exponential(self, mean: float) -> float:
        """The gap to the next event of a Poisson process."""
        return -mean * float(np.log1p(-self.uniform()))

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Some of the items, without repetition."""
        pool = list(items)
        self.shuffle(pool)
        return pool[:count]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Bring the items into another order, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def branch(self) -> Randomness:
        """A stream of its own, so that what one part draws does not shift another's numbers."""
        return Randomness(self.below(2**53))
