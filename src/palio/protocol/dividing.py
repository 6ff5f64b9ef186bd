"""A message of events, taken row by row: what is too much work at once goes in parts.

Who sends it counts one message, whatever its receiver makes of it: see `Stream.begun`.
"""

from __future__ import annotations

from typing import TypeAlias, TypeGuard, TypeVar

from msgspec.structs import replace

from palio.protocol.messages import Forward, Message, Publish, pack_mask, unpack_mask

__all__ = ["Divisible", "is_divisible", "mark_of", "part_of"]

Divisible: TypeAlias = Publish | Forward
"""May be taken in parts, unless it goes a way of its own."""

_Divisible = TypeVar("_Divisible", Publish, Forward)


def is_divisible(message: Message) -> TypeGuard[Divisible]:
    """Whether its rows may be taken one after the other. What is addressed to some brokers, or goes
    round a broken link, is known to them by its number.
    """
    if isinstance(message, Forward):
        return message.detour is None and message.addressed is None
    return isinstance(message, Publish)


def mark_of(message: Divisible) -> tuple[object, ...]:
    """By what a message is known again: whose events it has, the first, how many, their shape, and
    their size.
    """
    parcel = message.parcel
    if isinstance(message, Publish):
        first = message.first_seq
    else:
        first = int(parcel.numbers[0]) if len(parcel) else 0
    return type(message), parcel.publisher, first, len(parcel), parcel.shape, parcel.nbytes


def part_of(message: _Divisible, first: int, end: int) -> _Divisible:
    """The rows of a message from one to before another, as a message that says just that.

    >>> import pyarrow as pa
    >>> from palio.protocol.messages import Parcel
    >>> part = part_of(Publish(Parcel("ann", pa.record_batch({"x": [5, 6, 7]})), 10), 1, 3)
    >>> part.first_seq, part.parcel.batch.to_pylist()
    (11, [{'x': 6}, {'x': 7}])
    """
    if first == 0 and end >= len(message.parcel):
        return message
    parcel = message.parcel.slice(first, end)
    if isinstance(message, Publish):
        return replace(message, parcel=parcel, first_seq=message.first_seq + first)
    rows = message.rows
    if rows is not None:
        rows = pack_mask(unpack_mask(rows, len(message.parcel))[first:end])
    return replace(message, parcel=parcel, rows=rows)
