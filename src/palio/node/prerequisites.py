"""`Prerequisites`: which appends were refused, for as long as others may need them."""

from __future__ import annotations

from typing import Final

from palio.node.effects import Append

__all__ = ["UNMET", "Prerequisites"]

UNMET: Final = "what it depends on could not be written"
"""Why an append is refused whose prerequisites are."""


class Prerequisites:
    """What a shell remembers of appends, which it answers in their order.

    >>> known = Prerequisites()
    >>> known.refused(3)
    >>> [known.are_met(Append(4, (), needs=(each,), oldest=3)) for each in (2, 3)]
    [True, False]
    """

    def __init__(self) -> None:
        self._refused: dict[int, None] = {}
        """The tickets of these, in order."""

    def refused(self, ticket: int) -> None:
        """An append could not be written."""
        self._refused[ticket] = None

    def are_met(self, append: Append) -> bool:
        """Whether nothing that an append needs was refused."""
        while self._refused and next(iter(self._refused)) < append.oldest:
            del self._refused[next(iter(self._refused))]
        return self._refused.keys().isdisjoint(append.needs)
