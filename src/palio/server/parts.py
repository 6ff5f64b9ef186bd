"""`Parts`: a message of many events on its way to the node, some rows at a time."""

from __future__ import annotations

from typing import TypeGuard

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

    __slots__ = ("_given", "_message")

    def __init__(self) -> None:
        self._message: Divisible | None = None
        self._given = 0

    @property
    def is_begun(self) -> bool:
        """Whether something is left of it."""
        return self._message is not None

    def begin(self, message: Divisible) -> None:
        """All of it is to be handed over, from its first row on."""
        self._message, self._given = message, 0

    def next(self, rows: int) -> tuple[Divisible, int | None]:
        """So many rows more of what was begun: the message, and up to where its rows are due. None
        is for all that are left: that was the last of it.
        """
        message = self._message
        assert message is not None
        self._given += rows
        if self._given < len(message.parcel):
            return message, self._given
        self._message = None
        return message, None

    def drop(self) -> None:
        """The rest is not handed over."""
        self._message = None
