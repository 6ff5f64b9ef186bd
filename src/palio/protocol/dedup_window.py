"""`DedupWindow`: the numbers of durable events that a client received, to drop duplicates.

The window has one bit for each number, in the newest blocks of each publisher. Older numbers pass
as fresh: a duplicate is better than a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palio.model.parcels import runs
from palio.protocol.limits import MAX_PUBLISHERS, WINDOW_BLOCKS

BLOCK: Final = 1 << 12
"""The count of numbers in one block."""

_FULL: Final = (1 << BLOCK) - 1
"""The one object that all complete blocks share."""


def _shared(bits: int) -> int:
    return _FULL if bits == _FULL else bits


def _common(bits: int, first: int, last: int) -> int:
    """Return the received numbers of a range, as bits from its first one on."""
    return bits >> first % BLOCK & (1 << last - first + 1) - 1


def _range(first: int, last: int) -> int:
    return ((1 << last - first + 1) - 1) << first % BLOCK


class DedupWindow:
    """Numbers of durable events, by publisher.

    >>> seen = DedupWindow()
    >>> seen.add("p", [1, 2, 5])
    >>> seen.fresh("p", [2, 3, 5, 6])
    [False, True, False, True]
    """

    def __init__(self) -> None:
        self._blocks: dict[str, dict[int, int]] = {}
        """For each publisher and block, the received numbers as the bits of an integer."""

    def fresh(self, publisher: str, numbers: Sequence[int]) -> list[bool]:
        """Return for each of some ascending numbers whether it is new."""
        blocks = self._blocks.get(publisher, {})
        fresh: list[bool] = []
        for first, last in runs(numbers, BLOCK):
            seen = _common(blocks.get(first // BLOCK, 0), first, last)
            count = last - first + 1
            fresh += [not seen >> place & 1 for place in range(count)] if seen else [True] * count
        return fresh

    def add(self, publisher: str, numbers: Sequence[int]) -> None:
        """Remember ascending numbers."""
        blocks = self._blocks.pop(publisher, {})
        self._blocks[publisher] = blocks  # the most recently used publisher is last
        for first, last in runs(numbers, BLOCK):
            block = first // BLOCK
            blocks[block] = _shared(blocks.get(block, 0) | _range(first, last))
        for block in sorted(blocks)[:-WINDOW_BLOCKS]:
            del blocks[block]
        if len(self._blocks) > MAX_PUBLISHERS:  # evict the least recently used
            del self._blocks[next(iter(self._blocks))]

    def discard(self, publisher: str, number: int) -> None:
        """Forget a number: it is fresh when it comes again."""
        blocks = self._blocks.get(publisher, {})
        if number // BLOCK in blocks:
            blocks[number // BLOCK] &= ~_range(number, number)
