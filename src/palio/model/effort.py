"""`Effort`: how much work a relation between two filters may be.

To compare two filters at the limits, alternative by alternative, takes half a second, and a broker
compares whatever its clients subscribe to. What has run out of effort gives the answer that is
always sound: that one filter does not cover the other, that two alternatives do not merge, that an
advertisement and a filter may overlap.
"""

from __future__ import annotations

from typing import Protocol

from palio.model.limits import MAX_COMPARISONS

__all__ = ["Effort"]


class Weighed(Protocol):
    """A side of a comparison: a conjunction without variables, or a domain."""

    @property
    def intervals(self) -> int:
        """The number of intervals of values that it names."""

    @property
    def text_tests(self) -> int:
        """The number of tests of texts that are no intervals."""

    @property
    def weight(self) -> float:
        """The cost that it adds to a comparison, however small the other side is."""


class Effort:
    """Work that is left.

    >>> effort = Effort(3)
    >>> effort.spend(2), effort.spend(2), effort.is_spent
    (True, False, True)
    >>> effort.spent
    4
    """

    def __init__(self, left: float = MAX_COMPARISONS) -> None:
        self._given = self._left = left

    @property
    def spent(self) -> float:
        """What has been taken."""
        return self._given - self._left

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self._left < 0

    def spend(self, units: float) -> bool:
        """Take some; False if there was not so much."""
        self._left -= units
        return self._left >= 0

    def compare(self, one: Weighed, other: Weighed) -> bool:
        """Take what it is to compare two: every interval is held against every test of texts."""
        units = one.weight + other.weight
        tests = one.text_tests + other.text_tests
        if tests:
            units += tests * (one.intervals + other.intervals)
        return self.spend(units)
