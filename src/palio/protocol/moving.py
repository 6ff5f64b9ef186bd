"""`Crossing`: a client between two brokers, hearing both for a while."""

from __future__ import annotations

from palio.matching.protocol import RowMask
from palio.protocol.messages import Parcel
from palio.protocol.seen_numbers import SeenNumbers

__all__ = ["Crossing"]


class Crossing:
    """What came since the move began, so that what comes on both ways is given on once."""

    def __init__(self) -> None:
        self._seen = SeenNumbers()

    def first_time(self, parcel: Parcel, mask: RowMask) -> RowMask:
        """Which of some events had not come before; now they have."""
        numbers = parcel.numbers
        fresh = mask & self._seen.fresh(parcel.publisher, numbers)
        self._seen.add(parcel.publisher, numbers[fresh])
        return fresh
