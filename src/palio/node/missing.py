"""`Missing`: the requests of a router that a neighbour could not take.

A request that the neighbour refused is not in force there. What would change it is not sent either,
since nobody can change what he has not got; it is missing until it is withdrawn, or replaced by one
that can be read. A neighbour that refused one is sent none that this broker itself cannot read:
each of those would break the connection again.

What is missing covers nothing there: the router is told of it (`untold`), says what it covered in
its stead, and names the neighbour to those who want what is missing. Of a flood it cannot know who
that is, since what it passes on is another broker's: then it is named to everybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from palio.errors import IllegalMessage
from palio.protocol.messages import Message, Route
from palio.protocol.wire import Decoder, Encoder
from palio.routing.messages import (
    Advertise,
    Batch,
    Control,
    Flood,
    Request,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)

__all__ = ["Missing", "can_be_read"]

_Place: TypeAlias = tuple[str, str, int]
"""Whose request it is (empty for the sender's own), its kind, and its key."""

_SUBSCRIBED: Final = "subscription"
_ADVERTISED: Final = "advertisement"


class Missing:
    """What one neighbour lacks.

    >>> from palio.language.parsing import parse_filter
    >>> missing = Missing("b2")
    >>> batch = Batch((Subscribe(1, parse_filter("x = 1")), Subscribe(2, parse_filter("x = 2"))))
    >>> missing.lack(batch, batch.requests[:1])
    >>> missing.sift(Batch((Update(1, {"1": 5}, 1), Update(2, {"1": 5}, 1))))[0].requests
    (Update(key=2, values={'1': 5}, version=1),)
    >>> missing.honest(Settled(7))
    Settled(wave=7, unreached=())
    >>> [len(each.requests) for each in missing.untold]
    [1, 1]
    """

    def __init__(self, neighbour: str) -> None:
        self._neighbour = neighbour
        self._places: dict[_Place, None] = {}
        self.untold: list[Batch | Flood] = []
        """What the router has yet to be told of: whoever calls takes it out."""

    def __len__(self) -> int:
        return len(self._places)

    def lack(
        self, control: Batch | Flood, requests: Iterable[Request], after: Iterable[Message] = ()
    ) -> None:
        """The neighbour could not take these of a control message. What was said `after` it, while
        it was tried, may have withdrawn or replaced them.
        """
        lacking = tuple(requests)
        for request in lacking:
            place = _place(control, request)
            if place is not None:
                self._places[place] = None
        if lacking:
            self.untold.append(msgspec.structs.replace(control, requests=lacking))
        for message in after:
            if isinstance(message, Route) and isinstance(message.control, Batch | Flood):
                self._replace(message.control)

    def _replace(self, control: Batch | Flood) -> None:
        if control.fresh:
            self._forget(control)
        for request in control.requests:
            place = _place(control, request)
            if place is not None and not isinstance(request, Update):
                self._places.pop(place, None)

    def sift(self, control: Control) -> tuple[Control, list[Request]]:
        """What is to be sent of a control message, and the requests in it that are missing now."""
        if not isinstance(control, Batch | Flood):
            return control, []
        if control.fresh:
            self._forget(control)
        kept: list[Request] = []
        changed: list[Request] = []
        unreadable: list[Request] = []
        for request in control.requests:
            place = _place(control, request)
            if isinstance(request, Update):
                if place in self._places:
                    changed.append(request)
                    continue
            elif isinstance(request, Subscribe | Advertise) and not can_be_read(request):
                unreadable.append(request)
                continue
            elif place is not None:
                self._places.pop(place, None)
            kept.append(request)
        self.lack(control, [*unreadable, *changed])
        return msgspec.structs.replace(control, requests=tuple(kept)), unreadable

    def honest(self, control: Control) -> Control:
        """An answer of the neighbour's router, which does not know what it lacks of floods."""
        if isinstance(control, Settled) and self.is_of_floods:
            unreached = {*control.unreached, self._neighbour}
            return Settled(control.wave, tuple(sorted(unreached)))
        return control

    @property
    def is_of_floods(self) -> bool:
        """Whether any of it was flooded."""
        return any(whose for whose, _, _ in self._places)

    def _forget(self, control: Batch | Flood) -> None:
        """A table is told anew."""
        whose = _whose(control)
        self._places = dict.fromkeys(place for place in self._places if place[0] != whose)


def can_be_read(request: Request) -> bool:
    """Whether a broker of this version can read a request."""
    frames = Encoder().encode(Route(Batch((request,))))
    try:
        return len(list(Decoder("itself").feed(b"".join(frames)))) == 1
    except IllegalMessage:
        return False


def _whose(control: Batch | Flood) -> str:
    return control.origin if isinstance(control, Flood) else ""


def _place(control: Batch | Flood, request: Request) -> _Place | None:
    match request:
        case Subscribe(key) | Update(key) | Unsubscribe(key):
            return _whose(control), _SUBSCRIBED, key
        case Advertise(key) | Unadvertise(key):
            return _whose(control), _ADVERTISED, key
    return None
