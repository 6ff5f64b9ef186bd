"""`Effort`: how much work a relation between two filters may be.

To compare two filters at the limits, alternative by alternative, takes half a second, and a broker
compares whatever its clients subscribe to. What has run out of effort gives the answer that is
always sound: that one filter does not cover the other, that two alternatives do not merge.
"""

from __future__ import annotations

from palio.model.filters import Conjunction
from palio.model.limits import MAX_COMPARISONS

__all__ = ["Effort"]


class Effort:
    """Work that is left.

    >>> effort = Effort(3)
    >>> effort.spend(2), effort.spend(2), effort.is_spent
    (True, False, True)
    """

    def __init__(self, left: float = MAX_COMPARISONS) -> None:
        self._left = left

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self._left < 0

    def spend(self, units: float) -> bool:
        """Take some; False if there was not so much."""
        self._left -= units
        return self._left >= 0

    def compare(self, one: Conjunction, other: Conjunction) -> bool:
        """Take what it is to compare two conjunctions without variables."""
        return self.spend(one.weight + other.weight)
