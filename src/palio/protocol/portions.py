"""`portions`: what is too much for one frame goes in several.

The tables that a broker hands to a neighbour grow with its clients, frames do not, nor what a
broker does at a time. A `Batch` is applied as one; where it is cut, the receiver has the first part
of a new table for a moment before it has the rest. The first part says that the table is new, and
the last one bears the wave, so that what is settled is settled with all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from palio.protocol.limits import PORTION_BYTES, PORTION_FACTS
from palio.protocol.messages import Fact, Facts, Message, Route
from palio.routing.messages import PORTION, Batch, Flood, Request

__all__ = ["portions"]

_Item = TypeVar("_Item", Fact, Request)

_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)


def portions(message: Message) -> Iterable[Message]:
    """A message between brokers as one or more that say the same.

    >>> portions(Facts((Fact("b1", 1, "links"),)))
    [Facts(facts=(Fact(origin='b1', version=1, subject='links', ...),))]
    """
    match message:
        case Facts(facts) if len(facts) > 1:
            return [Facts(part) for part in _parts(facts, PORTION_FACTS)]
        case Route(Batch(requests, fresh, wave)) if len(requests) > 1:
            parts = list(_parts(requests))
            last = len(parts) - 1
            return [
                Route(Batch(part, fresh and at == 0, wave if at == last else None))
                for at, part in enumerate(parts)
            ]
        case Route(Flood(origin, requests, fresh, wave, 0)) if len(requests) > 1:
            parts = list(_parts(requests))
            last = len(parts) - 1
            return [
                Route(Flood(origin, part, fresh and at == 0, wave if at == last else None))
                for at, part in enumerate(parts)
            ]
    return [message]


def _parts(items: tuple[_Item, ...], most: int = PORTION) -> Iterator[tuple[_Item, ...]]:
    """As many as fit at a time, at least one and at most so many."""
    start = size = 0
    for at, item in enumerate(items):
        weight = len(_encoder.encode(item))
        if at > start and (size + weight > PORTION_BYTES or at - start == most):
            yield items[start:at]
            start, size = at, 0
        size += weight
    yield items[start:]
