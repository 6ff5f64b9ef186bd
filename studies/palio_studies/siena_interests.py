"""Interests that differ: several kinds of events, wanted alike or some far more than others."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final

from palio.language.parsing import parse_advertisement, parse_filter
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.simulation.randomness import Randomness

__all__ = ["ManyKinds"]

KINDS: Final = 10
VALUES: Final = 100
"""Of an event's value, and of the least that a party wants."""


class ManyKinds:
    """`Interests` in one of ten kinds, and in values from some bound on. The kind of rank r is
    drawn in proportion to r ** -skew: with 0 all alike.

    >>> print(ManyKinds(0.0).filter(0, Randomness(1)))
    kind = 5 AND value >= 95
    """

    def __init__(self, skew: float) -> None:
        self._bounds = list(accumulate(rank**-skew for rank in range(1, KINDS + 1)))
        self._kinds: dict[int, int] = {}
        """By object, what it publishes."""

    def filter(self, party: int, random: Randomness) -> Filter:
        """See `Interests`."""
        del party
        return parse_filter(f"kind = {self._kind(random)} AND value >= {random.below(VALUES)}")

    def advertisement(self, thing: int, random: Randomness) -> Advertisement:
        """See `Interests`."""
        kind = self._kinds[thing] = self._kind(random)
        return parse_advertisement(f"kind = {kind} AND EXISTS value")

    def event(self, thing: int, number: int, random: Randomness) -> Mapping[str, Any]:
        """See `Interests`."""
        del number
        return {"kind": self._kinds[thing], "value": random.below(VALUES)}

    def _kind(self, random: Randomness) -> int:
        return bisect(self._bounds, random.uniform() * self._bounds[-1])
