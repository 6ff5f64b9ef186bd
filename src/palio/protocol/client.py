"""`ClientCore`: what a client has under way with its broker, without I/O.

```
  shell --ask, publish, acknowledge, move------> ClientCore --> ClientSession --> the shell's
  shell <-deliver, outcomes, receipts, ended---- ClientCore <-- ClientSession <-- connection
```

A request is answered once, or fails; a publication too. What is asked is kept in the `Table`: a
session that is renewed is told all of it. While a client moves it has two sessions: what both
brokers deliver is given on once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
    pack_mask,
    unpack_mask,
)
from palio.protocol.publications import Publications, Receipt
from palio.protocol.requests import DONE, Table


class Application:
    """Whom a client serves: a shell of `ClientCore` overrides what matters to it."""

    def deliver(self, message: Deliver) -> None:
        """Events for whoever wants them."""

    def deliver_named(
        self, message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        """An event by itself for the subscriptions of these keys, but for those that are
        `unconfirmed`: it is for them if they want it, named or not.
        """
        del keys, unconfirmed
        self.deliver(message)

    def deliver_durable(self, message: Deliver) -> None:
        """Events for one durable subscription, which may have come before: see `Receipts`."""
        self.deliver(message)

    def deliver_assembled(self, message: Assembled) -> None:
        """An occurrence of a pattern that brokers assembled, which may have come before."""

    def bookmarked(self, key: int, bookmark: bytes) -> None:
        """How far a durable subscription had got, before anything comes for it."""

    def lose(self, gaps: Sequence[Gap]) -> None:
        """The broker dropped events, as this client fell behind."""

    def renewed(self, *, may_have_missed: bool) -> None:
        """A session began; what is published while there is none is not known."""

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """A subscription that was in force is over: the broker refuses it, or another client of the
        same identity has cancelled it.
        """

    def flow(self) -> None:
        """There may be room to publish more."""

    def disconnected(self) -> None:
        """The connection broke; it is dialled again."""

    def redirected(self, urls: Sequence[str]) -> None:
        """The broker is about to go, and there are others at these addresses: `ClientCore.move`."""

    def ended(self, error: PalioError) -> None:
        """There will be no further connection; all that was open has been told."""


class ClientCore:
    """A client's requests, publications and subscriptions, in one session or between two.

    Set `session` before anything else is called.
    """

    session: ClientSession
    """Where things are said."""

    def __init__(self, application: Application, *, window: int = WINDOW_BYTES) -> None:
        self.publications: Final = Publications(self._send, window=window)
        self._application = application
        self.table: Final = Table(self._send, application.withdrawn)
        """The requests to the broker."""
        self._arriving: ClientSession | None = None
        """The session of a moving client that no broker has welcomed yet..."""
        self._left: ClientSession | None = None
        """...or the one that will be left."""
        self._has_missed = False
        """True if that one was lost while it was being left."""
        self._crossing: Crossing | None = None
        self._crossed_at: float | None = None
        self._error: PalioError | None = None
        """Why there will be no further connection, if that is so."""
        self._hearers: Final[dict[type, Callable[[ClientSession, Any], None]]] = {
            Deliver: self._delivered,
            Assembled: self._assembled,
            Accepted: self._accepted,
            Refused: self._refused,
            Done: self._answered,
            Failed: self._answered,
            Answer: self._answered,
            Gaps: self._lost_events,
            Bookmarked: self._bookmarked,
            Withdrawn: self._withdrawn,
            Ended: self._ended,
            Redirect: self._redirected,
        }

    def _send(self, message: Message) -> None:
        self.session.send(message)

    def allow_publish(self) -> bool:
        """Return whether what is published leaves now: there is a connection, and the broker keeps
        up.

        While a client is at two brokers, nothing does: it would overtake what went by the other.
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
        """Send events (see `Publications.publish`); `allow_publish` says whether that is wise."""
        if self._error is None:
            self.publications.publish(parcel, receipts, durable=durable, is_last=is_last)
        else:
            for receipt in receipts:
                receipt.fail(self._error)
                if is_last:
                    receipt.answer("")

    # --- moving, and the end ---

    def move(self, arriving: ClientSession) -> None:
        """Go to another broker: once it welcomes us in this session, all is said there."""
        self._arriving = arriving
        self._crossing = self._crossing or Crossing()
        self._crossed_at = None

    def moved(self, now: float) -> None:
        """All is in force at the new broker, or it could not be reached: leave one of the two. What
        one that is not connected did not say is lost.
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
        """Leave for good."""
        self._end_others(error)
        self.session.end(error)

    def _end_others(self, error: PalioError | None) -> None:
        """Leave all sessions of a moving client but the one that counts."""
        for other in (self._arriving, self._left):
            if other is not None:
                other.end(error)
        self._arriving = self._left = None

    # --- what the session tells (`client_session.Owner`) ---

    def renewed(self, session: ClientSession, *, is_first: bool) -> None:
        """The broker knows nothing of this client: say it all again."""
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
        """There may be room for what waits to be published."""
        if session is self.session and session.is_connected:
            self._application.flow()

    def lost(self, session: ClientSession) -> None:
        """The connection broke."""
        if session is self.session:
            self._application.disconnected()

    def hear(self, session: ClientSession, message: Message) -> None:
        """Take a message of a broker."""
        self._hearers[type(message)](session, message)

    def ended(self, session: ClientSession, error: PalioError) -> None:
        """There is no way back to a broker."""
        if session is self.session and self._error is None:
            self._error = error
            self._end_others(error)
            self.table.end(error)
            self.publications.end(error)
            self._application.ended(error)

    # --- what the broker says ---

    def _delivered(self, session: ClientSession, message: Deliver) -> None:
        parcel = message.parcel
        named = parcel.shape.names if parcel.event is None else parcel.event
        if SEQ not in named or TIME not in named:
            raise IllegalMessage("the broker", f"events without {SEQ} and {TIME}")
        if message.subscriptions is not None and len(parcel) != 1:
            raise IllegalMessage("the broker", "several events, and for whom they are")
        if message.entry:
            if session is self.session:  # another that is being left has its own numbers
                self._application.deliver_durable(message)
        elif self._crossing is None:
            self._give_on(message)
        else:
            fresh = self._crossing.first_time(message)
            if fresh is not None:
                self._give_on(fresh)
            if self._crossed_at is not None and session.heard_at >= self._crossed_at:
                self._crossing = None

    def _give_on(self, message: Deliver) -> None:
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

    def _withdrawn(self, session: ClientSession, message: Withdrawn) -> None:
        if session is self.session:
            self.table.withdraw(message.keys)

    def _ended(self, session: ClientSession, message: Ended) -> None:
        if session is self.session:
            for key in message.keys:
                self.table.end_subscription(key, error_of(message.failure))

    def _redirected(self, session: ClientSession, message: Redirect) -> None:
        """Refuse anything more of a client that moves already."""
        if session is self.session and self._arriving is None and self._left is None:
            self._application.redirected(message.urls)


class Crossing:
    """Events that came since the move began, so that those that come on both ways are delivered
    once.
    """

    def __init__(self) -> None:
        self._seen = DedupWindow()
        self._found: set[tuple[int, tuple[tuple[str, int], ...]]] = set()
        """Occurrences, each by its key and the publishers and numbers of its events."""

    def first_time(self, message: Deliver) -> Deliver | None:
        """Those events of a message that had not come before under its key, if any; now they
        have. Whom they are for is to be found out: the two brokers may know different things.
        """
        parcel, numbers = message.parcel, message.parcel.numbers
        line = f"{message.key}\n{parcel.publisher}"
        fresh = unpack_mask(message.rows, len(parcel)) & self._seen.fresh(line, numbers)
        if not fresh.any():
            return None
        self._seen.add(line, numbers[fresh])
        return msgspec.structs.replace(message, rows=pack_mask(fresh), subscriptions=None)

    def is_found_first(self, message: Assembled) -> bool:
        """Return whether an occurrence had not come before under its key; now it has."""
        found = message.key, tuple((each.publisher, each.seq) for each in message.parts)
        is_new = found not in self._found
        self._found.add(found)
        return is_new
