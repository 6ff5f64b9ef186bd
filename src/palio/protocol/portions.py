"""`portions`: what is too much for one frame goes in several.

The tables that a broker hands to a neighbour grow with its clients, frames do not, nor what a
broker does at a time. A `Batch` is applied as one; where it is cut, the receiver has the first part
of a new table for a moment before it has the rest. The first part says that the table is new, and
the last one bears the wave, so that what is settled is settled with all of it. A `Flood` with a
version is put together again before it is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from palio.model.patterns import Occurrence
from palio.protocol.limits import PORTION_BYTES, PORTION_FACTS, TOGETHER_CHARS
from palio.protocol.messages import Fact, Facts, Message, Route, Subscribe
from palio.routing.messages import PORTION, Batch, Flood, Request
from palio.routing.patterns.messages import MOST_HELD, HeldBack, Resume, Returned

_Item = TypeVar("_Item", Fact, Request, Occurrence)

_PLAIN_CHARS: Final = 16
"""The weight of a value that is no text."""

_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)


def portions(message: Message) -> Iterator[Message]:
    """A message between brokers as one or more that say the same, each cut when it is asked for.

    >>> list(portions(Facts((Fact("b1", 1, "links"),))))
    [Facts(facts=(Fact(origin='b1', version=1, subject='links', ...),))]
    """
    match message:
        case Facts(facts) if len(facts) > 1:
            for start, end in _parts(facts, PORTION_FACTS):
                yield Facts(facts[start:end])
        case Route(Batch() | Flood() as control) if len(control.requests) > 1:
            yield from cut(control)
        case Route(Resume() | Returned() as control):
            yield from _with_held(control)
        case _:
            yield message


def _with_held(control: Resume | Returned) -> Iterator[Route]:
    """The events that a monitor holds back before the rest of what it knows."""
    held = control.progress.held
    for start, end in _parts(held, MOST_HELD):
        if end < len(held):
            is_back = isinstance(control, Returned)
            yield Route(HeldBack(control.key, held[start:end], is_back))
        else:
            yield Route(replace(control, progress=replace(control.progress, held=held[start:])))


def cut(control: Batch | Flood, most: int = PORTION) -> Iterator[Route]:
    """Parts of no more than so many requests that together say the same."""
    requests = control.requests
    goes_on = isinstance(control, Flood) and control.more
    for start, end in _parts(requests, most):
        wave = control.wave if end == len(requests) else None
        fresh = control.fresh and start == 0
        part = replace(control, requests=requests[start:end], fresh=fresh, wave=wave)
        if isinstance(part, Flood) and part.version:
            part = replace(part, more=goes_on or end < len(requests))
        yield Route(part)


def _parts(items: tuple[_Item, ...], most: int) -> Iterator[tuple[int, int]]:
    """From where to where: as many as fit at a time, at least one and at most so many."""
    start = size = 0
    for at, item in enumerate(items):
        weight = len(_encoder.encode(item))
        if at > start and (size + weight > PORTION_BYTES or at - start == most):
            yield start, at
            start, size = at, 0
        size += weight
    yield start, len(items)


def weight(request: Request) -> int:
    """Return a request's share of the `PORTION_BYTES` of one frame; `PORTION` are never more than
    that.

    >>> from palio.routing.messages import Unsubscribe
    >>> weight(Unsubscribe(7)) * PORTION == PORTION_BYTES
    True
    """
    return max(len(_encoder.encode(request)), PORTION_BYTES // PORTION)


def chars_together(request: Subscribe) -> int:
    """About how many characters a subscription has, of the `TOGETHER_CHARS` that some may have
    together. More than these, if it has to go by itself: it is durable or has a collection.

    >>> chars_together(Subscribe(0, 1, "x < :most", {"most": 5}))
    25
    """
    if request.durable:
        return TOGETHER_CHARS + 1
    chars = len(request.filter)
    for value in request.values.values():
        if isinstance(value, str | bytes):
            chars += len(value)
        elif isinstance(value, Collection):
            return TOGETHER_CHARS + 1
        else:
            chars += _PLAIN_CHARS
    return chars
