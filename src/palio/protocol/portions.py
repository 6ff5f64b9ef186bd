"""`portions`: the division of a long message into several frames.

The tables that a broker sends to a peer grow with its clients. The size of a frame and the work of
one step are limited. A receiver applies each portion of a `Batch` on arrival, so it briefly has the
beginning of a new table alone. The first portion marks the table as new. The last one has the
wave, so that a settled wave covers the whole table. A receiver reassembles a `Flood` with a version
before it applies it.
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
"""The size to assume for a value that is not text."""

_encoder: Final = msgspec.msgpack.Encoder(enc_hook=str)


def portions(message: Message) -> Iterator[Message]:
    """Divide a message between brokers lazily into one or more messages of the same meaning.

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
    """Yield the events that a monitor holds back, then the rest of its state."""
    held = control.progress.held
    for start, end in _parts(held, MOST_HELD):
        if end < len(held):
            is_back = isinstance(control, Returned)
            yield Route(HeldBack(control.key, held[start:end], is_back))
        else:
            yield Route(replace(control, progress=replace(control.progress, held=held[start:])))


def cut(control: Batch | Flood, most: int = PORTION) -> Iterator[Route]:
    """Divide a table into messages of at most `most` requests."""
    requests = control.requests
    has_more = isinstance(control, Flood) and control.more
    for start, end in _parts(requests, most):
        wave = control.wave if end == len(requests) else None
        fresh = control.fresh and start == 0
        part = replace(control, requests=requests[start:end], fresh=fresh, wave=wave)
        if isinstance(part, Flood) and part.version:
            part = replace(part, more=has_more or end < len(requests))
        yield Route(part)


def _parts(items: tuple[_Item, ...], most: int) -> Iterator[tuple[int, int]]:
    """Yield slices within `PORTION_BYTES`, of at least one item and at most `most`."""
    start = size = 0
    for index, item in enumerate(items):
        weight = len(_encoder.encode(item))
        if index > start and (size + weight > PORTION_BYTES or index - start == most):
            yield start, index
            start, size = index, 0
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
    """Estimate a subscription's share of the `TOGETHER_CHARS` of one message. The result is larger
    than the limit if it needs a message of its own: it is durable or has a collection.

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
