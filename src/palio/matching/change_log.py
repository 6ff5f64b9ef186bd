"""A log of changes as words, which a kernel reads without asking Python for anything.

Each change leaves a record: key, destination, number of comparisons, which of their numbers are
floats (a bit for each), then what each comparison is of, then the numbers. A key that is gone, or
whose filter is more than comparisons with numbers, has -1 of them. Only the writer writes, behind
what readers were told of; a buffer that is full is replaced by a copy and left to its readers.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

import numpy as np

from palio.errors import InvalidInput
from palio.matching.layers import Longs
from palio.matching.subscriptions import Subscription, Use
from palio.model.operators import Op

__all__ = ["ChangeLog", "is_recent"]


FIRST_WORDS: Final = 256
"""Words of the first buffer; each next one is twice as long."""

MOST_COMPARISONS: Final = 60
"""What has more is left to those who compile whole layers: one word says which are floats."""

HEAD: Final = 4

_OPS: Final = {op: number for number, op in enumerate((Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE))}
_GONE: Final = Struct("<4q")
_INTEGERS: Final = tuple(Struct(f"<{HEAD + 2 * count}q") for count in range(MOST_COMPARISONS + 1))


def is_recent(subscription: Subscription) -> bool:
    """Whether a subscription is nothing but a few comparisons with numbers."""
    comparisons = subscription.comparisons
    return comparisons is not None and len(comparisons[1]) <= MOST_COMPARISONS


class ChangeLog:
    """Records of changes, and the slots of the attributes that they compare.

    >>> log = ChangeLog()
    >>> log.note(7, None)
    False
    >>> log.words()[:4].tolist()
    [7, 0, -1, 0]
    """

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.slot_of: dict[str, int] = {}
        self._buffer = bytearray(8 * FIRST_WORDS)
        self._codes: dict[tuple[Use, ...], tuple[int, ...]] = {}

    def note(self, key: int, subscription: Subscription | None) -> bool:
        """Write a record; whether the key is among the recent rows from now on."""
        comparisons = None if subscription is None else subscription.comparisons
        record = _GONE
        fields: tuple[int | float, ...] = (key, 0, -1, 0)
        if subscription is not None and comparisons is not None:
            uses, numbers = comparisons
            count, floats = len(numbers), 0
            if count <= MOST_COMPARISONS:
                record = _INTEGERS[count]
                if float in map(type, numbers):
                    kinds = ["d" if type(number) is float else "q" for number in numbers]
                    record = Struct(f"<{HEAD + count}q{''.join(kinds)}")
                    floats = sum(1 << place for place, kind in enumerate(kinds) if kind == "d")
                destination = subscription.destination
                fields = (key, destination, count, floats, *self._codes_of(uses), *numbers)
        start = self.ends[-1] if self.ends else 0
        end = start + len(fields)
        self._make_room(end)
        try:
            record.pack_into(self._buffer, 8 * start, *fields)
        except struct.error:
            raise InvalidInput(f"key {key} and its destination must be 64-bit integers") from None
        self.ends.append(end)
        return record is not _GONE

    def _codes_of(self, uses: tuple[Use, ...]) -> tuple[int, ...]:
        """What each comparison is of, as a number."""
        codes = self._codes.get(uses)
        if codes is None:
            slots = [self.slot_of.setdefault(name, len(self.slot_of)) for name, _ in uses]
            codes = tuple(slot << 3 | _OPS[op] for slot, (_, op) in zip(slots, uses, strict=True))
            self._codes[uses] = codes
        return codes

    def _make_room(self, words: int) -> None:
        if 8 * words > len(self._buffer):
            larger = bytearray(max(16 * words, 2 * len(self._buffer)))
            larger[: len(self._buffer)] = self._buffer
            self._buffer = larger

    def words(self) -> Longs:
        """The words of all records that are there, and whatever stands behind them."""
        return np.frombuffer(self._buffer, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return len(self._buffer)
