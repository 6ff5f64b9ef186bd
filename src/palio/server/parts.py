"""`Parts`: a message of many events on its way to the node, some rows at a time."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from palio.model.limits import MAX_EVENT_TEXT_BYTES
from palio.model.untrusted import text_bytes
from palio.protocol.dividing import Divisible, is_divisible
from palio.protocol.messages import Message

__all__ = ["Parts", "is_large"]


def is_large(message: Message) -> TypeGuard[Divisible]:
    """Whether a message is to go to the node part by part, where that takes long."""
    return is_divisible(message) and len(message.parcel) > 1


class Parts:
    """One message, if one was begun, and how much of it the node has.

    >>> import pyarrow as pa
    >>> from palio.protocol.messages import Parcel, Publish
    >>> parts = Parts()
    >>> parts.begin(Publish(Parcel("ann", pa.record_batch({"x": [5, 6, 7]})), 10))
    >>> [parts.next(2)[1], parts.is_begun, parts.next(2)[1], parts.is_begun]
    [2, True, None, False]
    """

    __slots__ = ("_given", "_message", "_texts")

    def __init__(self) -> None:
        self._message: Divisible | None = None
        self._given = 0
        self._texts: npt.NDArray[np.int64] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether something is left of it."""
        return self._message is not None

    def begin(self, message: Divisible) -> None:
        """All of it is to be handed over, from its first row on."""
        self._message, self._given, parcel = message, 0, message.parcel
        is_small = parcel.nbytes <= MAX_EVENT_TEXT_BYTES
        self._texts = None if is_small else np.cumsum(text_bytes(parcel.batch))

    def next(self, rows: int) -> tuple[Divisible, int | None]:
        """So many rows more of what was begun, fewer if they have more text than one event may: the
        message, and up to where its rows are due. None is for all that are left: that was the last
        of it.
        """
        message = self._message
        assert message is not None
        if self._texts is not None:
            before = self._texts[self._given - 1] if self._given else 0
            most = np.searchsorted(self._texts, before + MAX_EVENT_TEXT_BYTES, "right")
            rows = min(rows, max(1, int(most) - self._given))
        self._given += rows
        if self._given < len(message.parcel):
            return message, self._given
        self._message = None
        return message, None

    def drop(self) -> None:
        """The rest is not handed over."""
        self._message = None
