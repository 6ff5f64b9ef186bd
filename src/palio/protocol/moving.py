"""`Crossing`: a client between two brokers, hearing both for a while."""

from __future__ import annotations

import msgspec

from palio.protocol.messages import Assembled, Deliver, pack_mask, unpack_mask
from palio.protocol.seen_numbers import SeenNumbers

__all__ = ["Crossing"]


class Crossing:
    """What came since the move began, so that what comes on both ways is given on once."""

    def __init__(self) -> None:
        self._seen = SeenNumbers()
        self._found: set[tuple[int, tuple[tuple[str, int], ...]]] = set()
        """Occurrences, each by its key and the publishers and numbers of its events."""

    def first_time(self, message: Deliver) -> Deliver | None:
        """Those events of a message that had not come before under its key, if any; now they
        have. Whom they are for is to be found out: the two brokers may know different things.
        """
        parcel, numbers = message.parcel, message.parcel.numbers
        line = f"{message.key}\n{parcel.publisher}"
        fresh = unpack_mask(message.rows, len(parcel)) & self._seen.fresh(line, numbers)
        if not fresh.any():
            return None
        self._seen.add(line, numbers[fresh])
        return msgspec.structs.replace(message, rows=pack_mask(fresh), subscriptions=None)

    def is_found_first(self, message: Assembled) -> bool:
        """Whether an occurrence had not come before under its key; now it has."""
        found = message.key, tuple((each.publisher, each.seq) for each in message.parts)
        is_new = found not in self._found
        self._found.add(found)
        return is_new
