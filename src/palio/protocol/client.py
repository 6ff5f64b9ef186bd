"""Track a client's requests, publications and subscriptions at its broker, without I/O.

```
  shell --ask, publish, acknowledge, move------> ClientCore --> ClientSession --> the shell's
  shell <-deliver, outcomes, receipts, ended---- ClientCore <-- ClientSession <-- connection
```

Each request and each publication is answered exactly once, or fails. `Table` keeps the requests in
force, and declares them to the broker of a renewed session. A client that moves has two sessions
for a while; events that both brokers deliver reach the application once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from typing import Any, Final

import msgspec

from palio.errors import IllegalMessage, PalioError
from palio.model.events import SEQ, TIME
from palio.protocol.client_session import ClientSession
from palio.protocol.dedup_window import DedupWindow
from palio.protocol.failures import error_of
from palio.protocol.limits import OVERLAP_S, WINDOW_BYTES
from palio.protocol.messages import (
    Accepted,
    Answer,
    Assembled,
    Blocked,
    Bookmarked,
    Deliver,
    Done,
    Ended,
    Failed,
    Gap,
    Gaps,
    Message,
    Parcel,
    Redirect,
    Refused,
    StoredAt,
    Subscribe,
    Withdrawn,
)
from palio.protocol.publications import Publications, Receipt
from palio.protocol.requests import DONE, Table


class Application:
    """Receive a client's events and outcomes: a shell of `ClientCore` overrides what it needs."""

    def deliver(self, message: Deliver) -> None:
        """Deliver events to all subscriptions that match them."""

    def deliver_named(
        self, message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        """Deliver a single event to the subscriptions under these keys. Those that are
        `unconfirmed` are matched here, listed or not: the broker may have an older filter.
        """
        del keys, unconfirmed
        self.deliver(message)

    def deliver_durable(self, message: Deliver) -> None:
        """Deliver events to one durable subscription; they may be duplicates (see `Receipts`)."""
        self.deliver(message)

    def deliver_assembled(self, message: Assembled) -> None:
        """Deliver an occurrence of a pattern that brokers assembled; it may be a duplicate."""

    def bookmarked(self, key: int, bookmark: bytes) -> None:
        """Take the progress of a resumed durable subscription, ahead of its first event."""

    def blocked(self, message: Blocked) -> None:
        """Note whether entries of a durable subscription wait for acks of those delivered."""

    def lose(self, gaps: Sequence[Gap]) -> None:
        """Report lost events: the broker dropped them, or they may be lost."""

    def renewed(self, *, may_have_missed: bool) -> None:
        """Note a new session; events published between two sessions may be lost."""

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """Note the end of a subscription that was in force: the broker refuses it, or another
        client of the same identity has cancelled it.
        """

    def flow(self) -> None:
        """Publish more, as the window may allow it again."""

    def disconnected(self) -> None:
        """Note that the connection broke; the session redials."""

    def redirected(self, urls: Sequence[str]) -> None:
        """Move to a broker at one of these addresses (`ClientCore.move`): this one shuts down."""

    def ended(self, error: PalioError) -> None:
        """Note that the client never reconnects; every open request has failed by now."""


class ClientCore:
    """Keep a client's state in one session, or in two during a move.

    Set `session` before any other call.
    """

    session: ClientSession
    """The session in which the client sends."""

    def __init__(self, application: Application, *, window: int = WINDOW_BYTES) -> None:
        self.publications: Final = Publications(self._send, window=window)
        self._application = application
        self.table: Final = Table(self._send, application.withdrawn)
        """The requests to the broker."""
        self._arriving: ClientSession | None = None
        """The new session of a moving client, until a broker welcomes it."""
        self._left: ClientSession | None = None
        """The old session of a moving client, from then until the move is complete."""
        self._has_missed = False
        """True if the old broker lost that session during the move, and events with it."""
        self._crossing: Crossing | None = None
        self._crossed_at: float | None = None
        """When duplicates of events from the old broker need no longer be detected."""
        self._error: PalioError | None = None
        """The reason why the client has ended, if it has."""
        self._handlers: Final[dict[type, Callable[[ClientSession, Any], None]]] = {
            Deliver: self._delivered,
            Assembled: self._assembled,
            Accepted: self._accepted,
            Refused: self._refused,
            Done: self._answered,
            Failed: self._answered,
            Answer: self._answered,
            Gaps: self._lost_events,
            Bookmarked: self._bookmarked,
            Blocked: self._blocked,
            Withdrawn: self._withdrawn,
            Ended: self._ended,
            Redirect: self._redirected,
        }

    def _send(self, message: Message) -> None:
        self.session.send(message)

    def may_publish(self) -> bool:
        """Return whether events may be published now: connected, and the windows have room.

        None may during a move: they would overtake those that the old broker still forwards.
        """
        session = self.session
        return (
            self._left is None
            and session.is_connected
            and session.stream.has_room
            and self.publications.has_room
        )

    # --- verbs ---

    def publish(
        self,
        parcel: Parcel,
        receipts: Sequence[Receipt],
        *,
        durable: StoredAt,
        is_last: bool = True,
    ) -> None:
        """Send events (see `Publications.publish`); call it only if `may_publish` is true."""
        if self._error is None:
            self.publications.publish(parcel, receipts, durable=durable, is_last=is_last)
        else:
            for receipt in receipts:
                receipt.fail(self._error)
                if is_last:
                    receipt.answer("")

    # --- moving, and the end ---

    def move(self, arriving: ClientSession) -> None:
        """Move to another broker: once it welcomes `arriving`, that is the session in use."""
        self._arriving = arriving
        self._crossing = self._crossing or Crossing()
        self._crossed_at = None

    def moved(self, now: float) -> None:
        """Complete a move, or abort it if the new broker is unreachable: end the other session.
        Report a gap if the old one is not connected, as its undelivered events are lost.
        """
        left = self._left
        if left is not None and (self._has_missed or not left.is_connected):
            self._application.lose((Gap("*", 0, 0, 0),))
        self._has_missed = False
        self._end_others(None)
        self._crossed_at = now + OVERLAP_S
        self.publications.left()
        self.flow(self.session)

    def end(self, error: PalioError | None = None) -> None:
        """End all sessions for good."""
        self._end_others(error)
        self.session.end(error)

    def _end_others(self, error: PalioError | None) -> None:
        """End all sessions of a moving client but the one in use."""
        for other in (self._arriving, self._left):
            if other is not None:
                other.end(error)
        self._arriving = self._left = None

    # --- calls of the session (`client_session.Owner`) ---

    def renewed(self, session: ClientSession, *, is_first: bool) -> None:
        """Declare all requests to the broker of a new session."""
        moves = session is self._arriving
        if moves:
            self._left, self.session, self._arriving = self.session, session, None
        elif session is not self.session:
            self._has_missed = True
            return
        self.table.declare()
        self._application.renewed(may_have_missed=not (is_first or moves))
        if is_first and not moves:
            self.publications.begin()
        elif moves:
            self.publications.cross()
        else:
            self.publications.renew()

    def flow(self, session: ClientSession) -> None:
        """Publish pending events, as the window may allow it again."""
        if session is self.session and session.is_connected:
            self._application.flow()

    def lost(self, session: ClientSession) -> None:
        """Report that the connection in use broke."""
        if session is self.session:
            self._application.disconnected()

    def process(self, session: ClientSession, message: Message) -> None:
        """Process a message of a broker."""
        self._handlers[type(message)](session, message)

    def ended(self, session: ClientSession, error: PalioError) -> None:
        """Fail everything that is open, once the session in use has ended."""
        if session is self.session and self._error is None:
            self._error = error
            self._end_others(error)
            self.table.end(error)
            self.publications.end(error)
            self._application.ended(error)

    # --- messages of the broker ---

    def _delivered(self, session: ClientSession, message: Deliver) -> None:
        parcel = message.parcel
        named = parcel.shape.names if parcel.event is None else parcel.event
        if SEQ not in named or TIME not in named:
            raise IllegalMessage("the broker", f"events without {SEQ} and {TIME}")
        if message.subscriptions is not None and len(parcel) != 1:
            raise IllegalMessage("the broker", "the subscriptions of several events")
        if message.entry:
            if session is self.session:  # entries of the old broker have numbers of another queue
                self._application.deliver_durable(message)
        elif self._crossing is None:
            self._dispatch(message)
        else:
            fresh = self._crossing.first_time(message)
            if fresh is not None:
                self._dispatch(fresh)
            if self._crossed_at is not None and session.received_at >= self._crossed_at:
                self._crossing = None

    def _dispatch(self, message: Deliver) -> None:
        if message.key != -1:
            self._application.deliver_durable(message)
        elif message.subscriptions is not None:
            self._application.deliver_named(message, message.subscriptions, self.table.unconfirmed)
        else:
            self._application.deliver(message)

    def _assembled(self, _session: ClientSession, message: Assembled) -> None:
        if self._crossing is None or self._crossing.is_found_first(message):
            self._application.deliver_assembled(message)

    def _accepted(self, session: ClientSession, message: Accepted) -> None:
        self.publications.accepted(message, behind=session is not self.session)
        self.flow(self.session)

    def _refused(self, session: ClientSession, message: Refused) -> None:
        self.publications.refused(message, behind=session is not self.session)

    def _answered(self, _session: ClientSession, message: Done | Failed | Answer) -> None:
        self.table.answer(message.id, message)
        if isinstance(message, Done):
            for id in message.others:
                self.table.answer(id, DONE)

    def _lost_events(self, _session: ClientSession, message: Gaps) -> None:
        self._application.lose(message.gaps)

    def _bookmarked(self, session: ClientSession, message: Bookmarked) -> None:
        if session is self.session:
            self._application.bookmarked(message.key, message.bookmark)

    def _blocked(self, session: ClientSession, message: Blocked) -> None:
        if session is self.session:
            self._application.blocked(message)

    def _withdrawn(self, session: ClientSession, message: Withdrawn) -> None:
        if session is self.session:
            self.table.withdraw(message.keys)

    def _ended(self, session: ClientSession, message: Ended) -> None:
        if session is self.session:
            for key in message.keys:
                self.table.end_subscription(key, error_of(message.failure))

    def _redirected(self, session: ClientSession, message: Redirect) -> None:
        """Move away from the broker, unless a move is under way."""
        if session is self.session and self._arriving is None and self._left is None:
            self._application.redirected(message.urls)


def rows_of(message: Deliver) -> Sequence[int]:
    """Return the rows of a delivery that are for this client.

    >>> from palio.model.row_parcels import RowParcel
    >>> rows_of(Deliver(RowParcel("p", [{"x": 1}, {"x": 2}])))
    range(0, 2)
    """
    if message.rows is None:
        return range(len(message.parcel))
    from palio.model.masks import unpack_mask

    rows: list[int] = unpack_mask(message.rows, len(message.parcel)).nonzero()[0].tolist()
    return rows


class Crossing:
    """Remember the events received since a move began, to deliver those on both paths once."""

    def __init__(self) -> None:
        self._seen = DedupWindow()
        self._occurrences: set[tuple[int, tuple[tuple[str, int], ...]]] = set()
        """Each by its key and the publishers and numbers of its events."""

    def first_time(self, message: Deliver) -> Deliver | None:
        """Return the events of a message that are new under its key, if any, and remember them.
        The client matches them itself, as the brokers may have different subscriptions in force.
        """
        parcel = message.parcel
        line = f"{message.key}\n{parcel.publisher}"
        rows = rows_of(message)
        numbers = [parcel.seqs[row] for row in rows] if message.rows else parcel.seqs
        is_new = self._seen.fresh(line, numbers)
        if not any(is_new):
            return None
        self._seen.add(line, list(compress(numbers, is_new)))
        fresh = list(compress(rows, is_new))
        if len(fresh) < len(parcel):
            parcel = parcel.take(fresh)
        return msgspec.structs.replace(message, parcel=parcel, rows=None, subscriptions=None)

    def is_found_first(self, message: Assembled) -> bool:
        """Return whether an occurrence is new under its key, and remember it."""
        occurrence = message.key, tuple((event.publisher, event.seq) for event in message.parts)
        is_new = occurrence not in self._occurrences
        self._occurrences.add(occurrence)
        return is_new
