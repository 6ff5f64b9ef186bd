"""`SeenNumbers`: which durable events have come here, so that each is handed on once.

Remembered are the numbers themselves, a bit for each, for the newest blocks of each publisher. What
is older than that is let through: rather twice than never. A block is written to the journal
whenever a number is added to it, in the same step as the events; if that step fails, the numbers
are taken back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from palio.model.events import RowMask
from palio.model.parcels import ONE_ROW, runs
from palio.protocol.limits import MAX_PUBLISHERS, WINDOW_BLOCKS

__all__ = ["PutWindow", "SeenNumbers"]

BLOCK: Final = 1 << 12
"""Numbers of one block: what a single number costs the journal is a bit for each."""

_FULL: Final = (1 << BLOCK) - 1
"""The one object that all complete blocks share."""


class PutWindow(NamedTuple):
    """Numbers of durable events that have come here, in place of what was known under this key.

    Nothing, if `ranges` is empty: the key is to be forgotten.
    """

    key: str
    ranges: bytes


class _Block:
    """Which numbers of a block have come, as the bits of an integer."""

    __slots__ = ("bits",)

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits

    def common(self, first: int, last: int) -> int:
        """Which numbers of a range have come, as bits from its first one on."""
        return self.bits >> first % BLOCK & (1 << last - first + 1) - 1

    def add(self, first: int, last: int) -> None:
        """Take in a range."""
        bits = self.bits | _range(first, last)
        self.bits = _FULL if bits == _FULL else bits

    def remove(self, first: int, last: int) -> None:
        """Leave out a range."""
        self.bits &= ~_range(first, last)

    def packed(self) -> bytes:
        return self.bits.to_bytes((self.bits.bit_length() + 7) // 8, "little")

    @classmethod
    def unpacked(cls, packed: bytes) -> _Block:
        bits = int.from_bytes(packed, "little")
        return cls(_FULL if bits == _FULL else bits)


def _range(first: int, last: int) -> int:
    return ((1 << last - first + 1) - 1) << first % BLOCK


def _unpacked(bits: int, count: int) -> RowMask:
    packed = np.frombuffer(bits.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)


class SeenNumbers:
    """Numbers of durable events, by publisher.

    >>> seen = SeenNumbers()
    >>> seen.add("p", np.array([1, 2, 5]))[0].key
    'p#0'
    >>> seen.fresh("p", np.array([2, 3, 5, 6])).tolist()
    [False, True, False, True]
    """

    def __init__(self, stored: Iterable[PutWindow] = ()) -> None:
        self._blocks: dict[str, dict[int, _Block]] = {}
        for key, ranges in stored:
            publisher, _, number = key.rpartition("#")
            self._blocks.setdefault(publisher, {})[int(number)] = _Block.unpacked(ranges)

    def fresh(self, publisher: str, numbers: npt.NDArray[np.int64]) -> RowMask:
        """Which of some ascending numbers have not come before."""
        blocks = self._blocks.get(publisher, {})
        if len(numbers) == 1:
            number = int(numbers[0])
            block = blocks.get(number // BLOCK)
            is_fresh = block is None or not block.common(number, number)
            return ONE_ROW if is_fresh else ~ONE_ROW
        fresh = np.ones(len(numbers), np.bool_)
        begin = 0
        for first, last in runs(numbers, BLOCK):
            end = begin + last - first + 1
            block = blocks.get(first // BLOCK)
            seen = 0 if block is None else block.common(first, last)
            if seen:
                fresh[begin:end] = ~_unpacked(seen, end - begin)
            begin = end
        return fresh

    def add(self, publisher: str, numbers: npt.NDArray[np.int64]) -> list[PutWindow]:
        """Remember ascending numbers, and what to write in the journal for it."""
        blocks = self._blocks.pop(publisher, {})
        self._blocks[publisher] = blocks  # the one heard of last is the last
        changed: dict[int, _Block] = {}
        for first, last in runs(numbers, BLOCK):
            place = first // BLOCK
            block = changed[place] = blocks.setdefault(place, _Block())
            block.add(first, last)
        writes = [
            PutWindow(f"{publisher}#{place}", each.packed()) for place, each in changed.items()
        ]
        for place in sorted(blocks)[:-WINDOW_BLOCKS]:
            del blocks[place]
            writes.append(PutWindow(f"{publisher}#{place}", b""))
        return writes + self._forgotten()

    def take_back(self, publisher: str, numbers: npt.NDArray[np.int64]) -> list[PutWindow]:
        """What was added is not on the disk after all, and what to write for it: a later step
        may have written a block with these numbers in it.
        """
        blocks = self._blocks.get(publisher, {})
        changed: dict[int, _Block] = {}
        for first, last in runs(numbers, BLOCK):
            block = blocks.get(first // BLOCK)
            if block is not None:
                block.remove(first, last)
                changed[first // BLOCK] = block
        return [PutWindow(f"{publisher}#{place}", each.packed()) for place, each in changed.items()]

    def forget(self, prefix: str) -> list[PutWindow]:
        """Forget all publishers whose name begins so, and what to write for it."""
        gone = [name for name in self._blocks if name.startswith(prefix)]
        return [
            PutWindow(f"{name}#{place}", b"") for name in gone for place in self._blocks.pop(name)
        ]

    def _forgotten(self) -> list[PutWindow]:
        """Let go of the publisher heard of longest ago where there are too many."""
        if len(self._blocks) <= MAX_PUBLISHERS:
            return []
        oldest = next(iter(self._blocks))
        return [PutWindow(f"{oldest}#{place}", b"") for place in self._blocks.pop(oldest)]
