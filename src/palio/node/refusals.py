"""`Refusals`: what becomes of a message that the other end could not take, however often it came.

1. It leaves the session, so that what was said after it arrives.
2. Requests of routers are tried one by one. One that is refused by itself is `Missing` at the
   neighbour, which counts as unreached for who asked for it (`settled`), until it is withdrawn
   or replaced. What it covers is told that neighbour besides (`Router.refused`), and until that
   is in force there live events may be lost: that is told now and then.
3. Facts are missing at a neighbour in the same way (see `Registry.refused`).
4. Events that were sent live are lost: counted, and told to a client as a gap. Durable ones stay
   in custody until the next session.
5. Without anything else the other end would be mistaken about all that follows. Its session ends,
   and a new one begins with everything told anew.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from palio.errors import IllegalMessage, PalioError
from palio.node.core import Core
from palio.node.missing import can_be_read
from palio.node.sessions import Neighbour, PeerSession
from palio.protocol.failures import failure
from palio.protocol.messages import (
    Answer,
    Assembled,
    Carry,
    Deliver,
    Facts,
    Failed,
    FlowStands,
    Forward,
    Gap,
    Gaps,
    Heard,
    Message,
    Parcel,
    Probe,
    Route,
    Seek,
    Took,
    unpack_mask,
)
from palio.protocol.portions import cut
from palio.routing.messages import Advertise, Batch, Flood, Request, Subscribe
from palio.routing.patterns.messages import Composite

__all__ = ["Refusals", "tell_covered"]

FEW_OWNERS: Final = 1_000
"""Subscriptions among which the owner of a refused one is looked for: no more than a moment."""

_NOTHING: Final = Facts(())
"""What says nothing, and by arriving shows that there is no need to end the session."""

_Instead: TypeAlias = "list[Message] | None"
"""What takes the place of a message; None if nothing can."""


class Refusals:
    """The sender's side of refused messages."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def settle(self, party: PeerSession, message: Message, reason: str) -> bool:
        """Put something else in the place of a refused message. False: the session must end."""
        if isinstance(party, Neighbour):
            instead = self._to_broker(party, message)
        else:
            instead = _to_client(message, reason)
        self._core.complain(
            "message_refused",
            party.name,
            1,
            message=type(message).__name__,
            reason=reason,
            **self._details(message),
        )
        if instead is None:
            return False
        party.replace(instead)
        return True

    def _to_broker(self, neighbour: Neighbour, message: Message) -> _Instead:
        match message:
            case Route(Batch() | Flood() as control) if control.requests:
                return self._requests(neighbour, control)
            case Facts(facts) if len(facts) > 1:
                return [Facts((fact,)) for fact in facts]
            case Facts(facts):
                for fact in facts:
                    self._core.durability.registry.refused(neighbour.name, fact)
                return [_NOTHING]
            case Forward(parcel, rows):
                neighbour.dropped += int(unpack_mask(rows, len(parcel)).sum())
                return [_NOTHING]
            case Route(Composite()):
                neighbour.dropped += 1
                return [_NOTHING]
            case Carry() | Took() | Probe() | Seek() | FlowStands() | Heard():
                return [_NOTHING]  # carried again in the next session; `Node` ends the question
        return None

    def _requests(self, neighbour: Neighbour, control: Batch | Flood) -> _Instead:
        """Leave out what cannot be taken, if that is known; else try the requests one by one."""
        requests = control.requests
        bad = [each for each in requests if not can_be_read(each)]
        if not bad and len(requests) > 1:
            return list(cut(control, most=1))
        bad = bad or list(requests)
        neighbour.missing.lack(control, bad, neighbour.said_after_first())
        self._core.lacking.setdefault(neighbour, False)
        self._core.lapses.note()
        kept = tuple(each for each in requests if not any(each is one for one in bad))
        return [Route(replace(control, requests=kept))]

    # --- for people ---

    def _details(self, message: Message) -> dict[str, Any]:
        match message:
            case Route(Batch((request,)) | Flood(_, (request,))):
                return self._about(request)
            case Facts(facts):
                return {"subjects": [f"{each.origin} {each.subject}" for each in facts[:3]]}
            case Forward(parcel) | Carry(parcel) | Deliver(parcel):
                return _numbers(parcel)
        return {}

    def _about(self, request: Request) -> dict[str, Any]:
        if not isinstance(request, Subscribe | Advertise):
            return {}
        text = str(request.filter)
        return {"filter": text[:200], "owners": self._owners(text)}

    def _owners(self, text: str) -> list[str]:
        """Clients that subscribed here to just that; those whose subscription covers it or was
        merged into it are not found.
        """
        owners: dict[str, None] = {}
        subscriptions = (
            (session.owner, each)
            for session in self._core.sessions.values()
            for each in session.subscriptions.values()
        )
        for owner, each in islice(subscriptions, FEW_OWNERS):
            try:
                if str(each.filter.bind(each.values)) == text:
                    owners[owner] = None
            except PalioError:
                continue
        return list(owners)


def tell_covered(core: Core) -> None:
    """Tell neighbours what is covered by what one of them could not read. That may cover something
    in its turn, and be unreadable as well.
    """
    while core.lacking:
        neighbour, has_less = core.lacking.popitem()
        missing = neighbour.missing
        untold, missing.untold = missing.untold, []
        if core.neighbours.get(neighbour.name) is not neighbour:
            continue
        for control in untold:
            sends = core.router.refused(neighbour.peer, control)
            core.route(sends)
            has_less = has_less or bool(sends)
        if has_less:
            core.lapses.ways_changed()


def _to_client(message: Message, reason: str) -> _Instead:
    match message:
        case Deliver(parcel, key=key) if not len(parcel):
            return [Gaps((Gap("*", 0, 0, 0, key),))]
        case Deliver(parcel, rows, key, entry):
            count = int(unpack_mask(rows, len(parcel)).sum())
            first, last = int(parcel.numbers[0]), int(parcel.numbers[-1])
            whose = key if entry else -1
            return [Gaps((Gap(parcel.publisher, first, last, count, whose),))]
        case Assembled():
            return [Gaps((message.gap,))]
        case Answer(id):
            return [Failed(id, failure(IllegalMessage("the client", reason)))]
    return None


def _numbers(parcel: Parcel) -> dict[str, Any]:
    known = {"publisher": parcel.publisher}
    if not len(parcel):
        return known
    return {**known, "first_seq": int(parcel.numbers[0]), "last_seq": int(parcel.numbers[-1])}
