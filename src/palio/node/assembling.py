"""`Assembling`: patterns that this broker assembles with others, for its clients.

The router decides where each part is assembled (`palio.routing.patterns`). This module adds what
only the node has: the time, the grants of clients, and the checks of messages from neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import inf
from operator import ne
from typing import Final

from msgspec.structs import replace

from palio.errors import (
    IllegalMessage,
    InvalidEvent,
    InvalidInput,
    LimitExceeded,
    NotPermitted,
    NotSupported,
)
from palio.matching.protocol import RowMask
from palio.model.advertisements import Advertisement
from palio.model.events import SEQ, TIME
from palio.model.filters import FALSE, Filter
from palio.model.parcels import Parcel
from palio.model.patterns import Occurrence, Pattern
from palio.model.row_parcels import RowParcel
from palio.model.values import NO_VALUES, Bindings, checked
from palio.node.authority import Principal, narrow, publishable, receivable
from palio.node.effects import Moment
from palio.protocol.limits import MAX_NUMBER, MAX_PUBLISHER_CHARS
from palio.routing.algorithms import ALGORITHMS
from palio.routing.messages import Advertise, Batch, Control
from palio.routing.patterns.legal import bound
from palio.routing.patterns.messages import (
    AssemblyProgress,
    Composite,
    HeldBack,
    SubscribePattern,
    TooLate,
    WithEvents,
    events_of,
)
from palio.routing.patterns.router import Patterned
from palio.routing.protocol import Peer, Router, Send

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)

EARLY_S: Final = 0.001
"""Work due this soon is done at once, as the wall clock and the clock of timers differ."""

_ABLE: Final = " or ".join(
    algorithm.name for algorithm in ALGORITHMS.values() if algorithm.assembles
)

NO_DURABLE: Final = "brokers keep no pattern for a disconnected client; leave durable= out"


class Assembling:
    """The patterns of one broker, if its routing assembles any."""

    def __init__(self, router: Router) -> None:
        self.router = router if isinstance(router, Patterned) else None

    @property
    def counts(self) -> dict[str, int]:
        """The patterns at this broker, and the events that came too late for them."""
        router = self.router
        return {
            "patterns": 0 if router is None else len(router.subscriptions),
            "late_events": 0 if router is None else router.late,
        }

    # --- time ---

    def due_at(self, at: Moment) -> float:
        """Return when `advance` must be called next, by the clock of timers."""
        wake = None if self.router is None else self.router.wake
        return inf if wake is None else at.now + max(0.0, (wake - _wall(at)) / _SECOND)

    def advance(self, at: Moment) -> list[Send] | None:
        """Return the messages that are due by now; None if there are none."""
        if self.router is None or self.due_at(at) > at.now + EARLY_S:
            return None
        return self.router.advance(_wall(at))

    # --- requests of clients ---

    def request(
        self, key: int, what: Filter | Pattern, values: Bindings, principal: Principal
    ) -> SubscribePattern:
        """Return the router's request for a client's pattern, each step narrowed by its grants."""
        if isinstance(what, Filter):
            raise InvalidInput("brokers assemble patterns, such as a THEN b; this is one filter")
        if self.router is None:
            raise NotSupported(
                "brokers assemble patterns only where publishers advertise: set broker.routing "
                f"to {_ABLE} for all, or let the client assemble it"
            )
        what.bind(values)  # an error of the subscriber's own comes before one of authority
        return SubscribePattern(key, narrowed(what, values, principal), values)

    def check_room(self, subscriber: Peer, more: int) -> None:
        """Refuse more patterns than the limit allows, before any of them changes anything."""
        if self.router is not None and more:
            self.router.check_room(subscriber, more)

    # --- between brokers ---

    @staticmethod
    def restrict_incoming(principal: Principal, control: Control) -> tuple[Control | None, int]:
        """Return a neighbour's message as its grant permits it, and the number of denied events.
        Raise `IllegalMessage` for events that no broker can have numbered.
        """
        if isinstance(control, TooLate):
            numbers = (control.first_seq, control.last_seq, control.count)
            are_numbers = all(0 <= number <= MAX_NUMBER for number in numbers)
            if not are_numbers or not _is_publisher(control.publisher):
                raise IllegalMessage(principal.name, "late events with impossible numbers")
        elif isinstance(control, WithEvents):
            for event in events_of(control):
                _check(principal.name, event)
            if not principal.publishes_all:
                return _permitted(control, publishable, principal)
        elif isinstance(control, SubscribePattern) and not principal.may_receive_all:
            pattern = bound(Peer.broker(principal.name), control)
            try:
                pattern = narrowed(pattern, NO_VALUES, principal)
            except (NotPermitted, LimitExceeded):  # no event may match it
                pattern = Pattern((FALSE,) * len(pattern.steps))
            return replace(control, pattern=pattern, values=NO_VALUES), 0
        elif isinstance(control, Batch) and not principal.publishes_all:
            return _offered(control, principal)
        return control, 0

    @staticmethod
    def restrict_outgoing(principal: Principal, control: Control) -> Control | None:
        """Return the part of a router's message that a neighbour may receive; None for nothing."""
        if principal.may_receive_all or not isinstance(control, WithEvents):
            return control
        return _permitted(control, receivable, principal)[0]


def _wall(at: Moment) -> datetime:
    return _EPOCH + timedelta(microseconds=at.wall_us)


def narrowed(pattern: Pattern, values: Bindings, principal: Principal) -> Pattern:
    """Return the part of a pattern that a principal may receive: each step by itself (see
    `narrow`).

    >>> import palio
    >>> reader = Principal("reader", allow_subscribe=palio.parse("EXISTS a"))
    >>> str(narrowed(palio.parse("a = 1 THEN a = 2"), {}, reader))
    'a = 1 THEN a = 2'
    """
    if principal.may_receive_all:
        return pattern
    steps = [
        narrow(step, {name: values[name] for name in step.variables}, principal)
        for step in pattern.steps
    ]
    return Pattern(tuple(steps), pattern.within)


def _offered(batch: Batch, principal: Principal) -> tuple[Batch, int]:
    """Restrict advertisements to a grant, and return the number that exceeded it. Otherwise
    subscriptions would be forwarded, and patterns delegated, to a broker without such events.
    """
    requests = tuple(
        replace(request, filter=_offer(request.filter, principal))
        if isinstance(request, Advertise)
        else request
        for request in batch.requests
    )
    denied = sum(map(ne, requests, batch.requests))
    return replace(batch, requests=requests), denied


def _offer(advertisement: Advertisement, principal: Principal) -> Advertisement:
    try:
        return advertisement.within(principal.publishes)
    except LimitExceeded:
        return Advertisement(())


def _is_publisher(name: str) -> bool:
    return len(name) <= MAX_PUBLISHER_CHARS


def _check(sender: str, occurrence: Occurrence) -> None:
    """Refuse an event that no broker can have numbered and dated, or with invalid values."""
    event = occurrence.event
    if event.get(SEQ) != occurrence.seq or event.get(TIME) != occurrence.time:
        raise IllegalMessage(sender, f"an event whose {SEQ} and {TIME} are not its own")
    if occurrence.seq < 0 or not _is_publisher(occurrence.publisher):
        raise IllegalMessage(sender, "an event with an invalid publisher name or number")
    try:
        for value in event.values():
            checked(value)
    except InvalidEvent as error:
        raise IllegalMessage(sender, f"an event with an invalid value: {error}") from None


def _permitted(
    control: WithEvents, grant: Callable[[Principal, Parcel], RowMask], principal: Principal
) -> tuple[Control | None, int]:
    """Remove events that a grant denies, and return the number of them. An occurrence without one
    of its events is dropped, and a partial match starts over.
    """

    def only(events: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
        return tuple(
            event
            for event in events
            if grant(principal, RowParcel(event.publisher, [event.event]))[0]
        )

    if isinstance(control, Composite):
        out = len(control.parts) - len(only(control.parts))
        return None if out else control, out
    if isinstance(control, HeldBack):
        events = only(control.events)
        return replace(control, events=events), len(control.events) - len(events)
    before = control.progress
    taken, held = only(before.taken), only(before.held)
    out = len(before.taken) + len(before.held) - len(taken) - len(held)
    if not out:
        return control, 0
    taken = taken if len(taken) == len(before.taken) else ()
    return replace(control, progress=AssemblyProgress(taken, held, before.after)), out
