"""`SeenNumbers`: which durable events have come here, so that each is handed on once.

Remembered are the numbers themselves, a bit for each, for the newest blocks of each publisher. What
is older than that is let through: rather twice than never. What is added is written to the journal
in the same step as the events, and nothing else is: if that step fails, its numbers are taken back
here, and the journal never had them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from palio.model.events import RowMask
from palio.model.parcels import ONE_ROW, runs
from palio.protocol.limits import MAX_PUBLISHERS, WINDOW_BLOCKS

__all__ = ["AddNumbers", "DropNumbers", "ForgetNumbers", "SeenNumbers", "united"]

BLOCK: Final = 1 << 12
"""Numbers of one block: what a single number costs the journal is a bit for each."""

_FULL: Final = (1 << BLOCK) - 1
"""The one object that all complete blocks share."""


class AddNumbers(NamedTuple):
    """Numbers of durable events that have come here, beside those that are known under this key."""

    key: str
    """Whose, and of which block."""
    bits: bytes
    """A bit for each number, the first of the block first."""


class DropNumbers(NamedTuple):
    """All that is known under this key is to be forgotten."""

    key: str


class ForgetNumbers(NamedTuple):
    """All that is known under keys that begin so is to be forgotten: what is known here, and what
    an earlier step that failed was to take off the disk.
    """

    prefix: str


Writes: TypeAlias = "list[AddNumbers | DropNumbers]"


def united(some: bytes, others: bytes) -> bytes:
    r"""The numbers of both.

    >>> united(b"\x01", b"\x04\x01")
    b'\x05\x01'
    """
    return _packed(int.from_bytes(some, "little") | int.from_bytes(others, "little"))


def _packed(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _shared(bits: int) -> int:
    return _FULL if bits == _FULL else bits


def _common(bits: int, first: int, last: int) -> int:
    """Which numbers of a range have come, as bits from its first one on."""
    return bits >> first % BLOCK & (1 << last - first + 1) - 1


def _range(first: int, last: int) -> int:
    return ((1 << last - first + 1) - 1) << first % BLOCK


def _unpacked(bits: int, count: int) -> RowMask:
    packed = np.frombuffer(bits.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)


class SeenNumbers:
    """Numbers of durable events, by publisher.

    >>> seen = SeenNumbers()
    >>> seen.add("p", np.array([1, 2, 5]))
    [AddNumbers(key='p#0', bits=b'&')]
    >>> seen.fresh("p", np.array([2, 3, 5, 6])).tolist()
    [False, True, False, True]
    """

    def __init__(self, stored: Iterable[AddNumbers] = ()) -> None:
        self._blocks: dict[str, dict[int, int]] = {}
        """For each publisher and block the numbers that have come, as the bits of an integer."""
        for key, bits in stored:
            publisher, place = _read(key)
            blocks = self._blocks.setdefault(publisher, {})
            blocks[place] = _shared(int.from_bytes(bits, "little"))

    def fresh(self, publisher: str, numbers: npt.NDArray[np.int64]) -> RowMask:
        """Which of some ascending numbers have not come before."""
        blocks = self._blocks.get(publisher, {})
        if len(numbers) == 1:
            number = int(numbers[0])
            is_fresh = not _common(blocks.get(number // BLOCK, 0), number, number)
            return ONE_ROW if is_fresh else ~ONE_ROW
        fresh = np.ones(len(numbers), np.bool_)
        begin = 0
        for first, last in runs(numbers, BLOCK):
            end = begin + last - first + 1
            seen = _common(blocks.get(first // BLOCK, 0), first, last)
            if seen:
                fresh[begin:end] = ~_unpacked(seen, end - begin)
            begin = end
        return fresh

    def add(self, publisher: str, numbers: npt.NDArray[np.int64]) -> Writes:
        """Remember ascending numbers that are fresh, and what to write in the journal for it."""
        blocks = self._blocks.pop(publisher, {})
        self._blocks[publisher] = blocks  # the one heard of last is the last
        added: dict[int, int] = {}
        for first, last in runs(numbers, BLOCK):
            place = first // BLOCK
            added[place] = added.get(place, 0) | _range(first, last)
        writes: Writes = []
        for place, bits in added.items():
            blocks[place] = _shared(blocks.get(place, 0) | bits)
            writes.append(AddNumbers(f"{publisher}#{place}", _packed(bits)))
        for place in sorted(blocks)[:-WINDOW_BLOCKS]:
            del blocks[place]
            writes.append(DropNumbers(f"{publisher}#{place}"))
        return writes + self._forgotten()

    def take_back(self, added: Iterable[AddNumbers]) -> None:
        """What was added is not on the disk after all."""
        for key, bits in added:
            publisher, place = _read(key)
            blocks = self._blocks.get(publisher, {})
            if place in blocks:
                blocks[place] &= ~int.from_bytes(bits, "little")

    def forget(self, prefix: str) -> ForgetNumbers:
        """Forget all publishers whose name begins so, and what to write for it."""
        for name in [each for each in self._blocks if each.startswith(prefix)]:
            del self._blocks[name]
        return ForgetNumbers(prefix)

    def _forgotten(self) -> Writes:
        """Let go of the publisher heard of longest ago where there are too many."""
        if len(self._blocks) <= MAX_PUBLISHERS:
            return []
        oldest = next(iter(self._blocks))
        return [DropNumbers(f"{oldest}#{place}") for place in self._blocks.pop(oldest)]


def _read(key: str) -> tuple[str, int]:
    """The publisher and the block that a key names."""
    publisher, _, place = key.rpartition("#")
    return publisher, int(place)
