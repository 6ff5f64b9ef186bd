"""`Table`: a client's requests to its broker: those in force, and those without an answer.

When a session is renewed, the table declares its present state to the broker. Callers that waited
for an answer get that of the declaration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Final, TypeAlias

import msgspec

from palio.errors import PalioError
from palio.protocol.failures import error_of
from palio.protocol.limits import UPDATES_UNDER_WAY
from palio.protocol.messages import (
    Acknowledge,
    AddPeer,
    Advertise,
    Answer,
    Apply,
    Cancel,
    Done,
    Drain,
    Failed,
    Message,
    Nack,
    Query,
    RemoveBroker,
    RemovePeer,
    Replace,
    Settle,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
)

Request: TypeAlias = (
    Subscribe
    | Replace
    | Update
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Withdraw
    | Cancel
    | Settle
    | Query
    | RemoveBroker
    | Apply
    | Drain
    | AddPeer
    | RemovePeer
)

Outcome: TypeAlias = Done | Answer | Failed | PalioError
"""The outcome of a request: the broker's answer, or the reason why there is none."""

Waiter: TypeAlias = Callable[[Outcome], None]
"""A callback for the outcome of a request, called once."""

_REFUSED: Final = 0

DONE: Final = Done(0)
"""The answer to a request that a new session made needless, such as the end of a subscription."""


class Requests:
    """Open requests by their numbers.

    >>> requests, outcomes = Requests(), []
    >>> requests.enter(Settle(0), outcomes.append)
    Settle(id=1)
    >>> request, waiter = requests.take(1)
    >>> requests.take(1) is None  # its answer in a session that is over
    True
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[int, Request] = {}
        self._waiters: dict[int, Waiter] = {}

    def enter(self, request: Request, waiter: Waiter) -> Request:
        """Return the request with a new number; its answer is for this waiter."""
        number = next(self._numbers)
        numbered = self._open[number] = msgspec.structs.replace(request, id=number)
        self._waiters[number] = waiter
        return numbered

    def take(self, number: int) -> tuple[Request, Waiter] | None:
        """Remove a request that was answered, and return it with its waiter."""
        request = self._open.pop(number, None)
        return None if request is None else (request, self._waiters.pop(number))

    def take_all(self) -> list[tuple[Request, Waiter]]:
        """Remove and return all open requests, in order."""
        taken = list(zip(self._open.values(), self._waiters.values(), strict=True))
        self._open.clear()
        self._waiters.clear()
        return taken

    def end(self, error: PalioError) -> None:
        """Fail all open requests."""
        for _, waiter in self.take_all():
            waiter(error)


class _Joined:
    """Updates of one subscription, joined into one until an earlier one is answered."""

    def __init__(self, update: Update, waiter: Waiter) -> None:
        self.update = update
        self.waiters = [waiter]

    def join(self, update: Update, waiter: Waiter) -> None:
        """Join a later update, whose values take precedence."""
        values = {**self.update.values, **update.values}
        self.update = msgspec.structs.replace(self.update, values=values)
        self.waiters.append(waiter)


class Table:
    """The subscriptions and advertisements of a client as they are now, and its open requests."""

    def __init__(
        self,
        send: Callable[[Message], None],
        withdrawn: Callable[[Subscribe, PalioError], None],
    ) -> None:
        """`withdrawn` is called with each subscription that the broker ended by itself."""
        self.standing: Final[dict[int, Subscribe]] = {}
        """The subscriptions in force, by key."""
        self.unconfirmed: Final[dict[int, int]] = {}
        """By key, subscriptions of which the broker may have an older state, and the number of the
        request that it has yet to confirm; `_REFUSED` if it refused one."""
        self._send = send
        self._withdrawn = withdrawn
        self._requests = Requests()
        self._updates: Counter[int] = Counter()  # open ones, by key
        # Joined updates by key, yet to be sent. Any other request is sent behind them.
        self._joined: dict[int, _Joined] = {}
        self._advertised: dict[int, Advertise] = {}
        self._leaving: dict[int, Subscribe] = {}
        """Durable subscriptions whose end the broker has not confirmed."""
        # Number of sessions so far: of two brokers with a durable subscription, the one with the
        # greater number has it, in whatever order they learn of that.
        self._session_epoch = 0
        self._error: PalioError | None = None
        """The reason why no request is sent any more, if there is one."""

    def ask(self, request: Request, waiter: Waiter) -> None:
        """Send a request; its outcome is for this waiter.

        A subscription or advertisement is in force in all later sessions, too, until it is ended.
        """
        match request:
            case Subscribe(key=key):
                self.standing[key] = request
            case Replace(key=key) | Update(key=key) if key in self.standing:
                self.standing[key] = _changed(self.standing[key], request)
            case Advertise(key=key):
                self._advertised[key] = request
        if isinstance(request, Update) and self._updates[request.key] >= UPDATES_UNDER_WAY:
            self._join(request, waiter)
        else:
            self._submit(request, waiter)

    def _join(self, update: Update, waiter: Waiter) -> None:
        joined = self._joined.get(update.key)
        if joined is None:
            self._joined[update.key] = _Joined(update, waiter)
        else:
            joined.join(update, waiter)

    def _send_joined(self, keys: Iterable[int]) -> None:
        """Send the joined updates of some subscriptions."""
        for key in keys:
            joined = self._joined.pop(key, None)
            if joined is not None:
                self._submit(joined.update, partial(notify, joined.waiters))

    def take_up(self, request: Subscribe) -> None:
        """Continue a session of another program, which sent this request."""
        self.standing[request.key] = request

    def unsubscribe(self, request: Unsubscribe, waiter: Waiter) -> bool:
        """End a subscription; return False, and drop the waiter, if there is none to end."""
        key = request.key
        ended = self.standing.pop(key, None)
        if ended is None or self._error is not None:
            return False
        if request.forget and ended.durable:
            self._leaving[key] = ended
        self.unconfirmed.pop(key, None)
        self._submit(request, waiter)
        return True

    def advertises(self, key: int) -> bool:
        """Return whether an advertisement has this key."""
        return key in self._advertised

    def unadvertise(self, key: int, waiter: Waiter) -> bool:
        """End an advertisement; return False, and drop the waiter, if there is none to end."""
        if self._advertised.pop(key, None) is None or self._error is not None:
            return False
        self._submit(Unadvertise(0, key), waiter)
        return True

    def acknowledge(self, key: int, entry: int, held: int = 0, bookmark: bytes = b"") -> None:
        """A durable subscription has dealt with everything up to an entry (see `Acknowledge`)."""
        self.report(Acknowledge(key, entry, held, bookmark))

    def report(self, outcome: Acknowledge | Nack) -> None:
        """Report to the broker the outcome of entries of a durable subscription, if it stands."""
        if outcome.key in self.standing and self._error is None:
            self._send(outcome)

    def _submit(self, request: Request, waiter: Waiter) -> None:
        """Number a request, and send it behind all joined updates."""
        if self._error is not None:
            waiter(self._error)
            return
        if self._joined and not isinstance(request, Update):
            self._send_joined(list(self._joined))
        if isinstance(request, Subscribe) and request.durable:
            request = msgspec.structs.replace(request, session_epoch=self._session_epoch)
        request = self._requests.enter(request, waiter)
        if isinstance(request, Subscribe | Replace | Update) and request.key in self.standing:
            # Until it is confirmed, the broker may deliver events of the older state. A refused
            # change is in force here, and not there, until all is declared to a new session.
            key = request.key
            if not isinstance(request, Update) or self.unconfirmed.get(key) != _REFUSED:
                self.unconfirmed[key] = request.id
        if isinstance(request, Update):
            self._updates[request.key] += 1
        self._send(request)

    def answer(self, id: int, outcome: Done | Failed | Answer) -> None:
        """Take the outcome of a request. One that is not open belongs to an earlier session."""
        taken = self._requests.take(id)
        if taken is None:
            return
        request, waiter = taken
        if isinstance(request, Update):
            self._update_answered(request.key)
        if isinstance(request, Subscribe | Replace | Update):
            key = request.key
            if isinstance(outcome, Failed) and key in self.standing:
                self.unconfirmed[key] = _REFUSED
            elif self.unconfirmed.get(key) == id:
                del self.unconfirmed[key]
        elif isinstance(request, Unsubscribe):
            self._leaving.pop(request.key, None)
        waiter(outcome)

    def _update_answered(self, key: int) -> None:
        self._updates[key] -= 1
        if not self._updates[key]:
            del self._updates[key]
        if key in self._joined:
            self._send_joined((key,))

    def withdraw(self, keys: Iterable[int]) -> None:
        """Remove advertisements that another client of the same identity has withdrawn."""
        for key in keys:
            self._advertised.pop(key, None)

    def end_subscription(self, key: int, error: PalioError) -> None:
        """Remove a subscription that the broker has ended."""
        ended = self.standing.pop(key, None)
        joined = self._joined.pop(key, None)
        if ended is not None:
            self.unconfirmed.pop(key, None)
            self._withdrawn(ended, error)
        if joined is not None:
            notify(joined.waiters, error)

    def end(self, error: PalioError) -> None:
        """Fail all open requests, and all later ones."""
        self._error = error
        joined, self._joined = self._joined, {}
        self._requests.end(error)
        for updates in joined.values():
            notify(updates.waiters, error)

    def declare(self) -> None:
        """Declare all subscriptions and advertisements to a new session, and repeat other requests
        without an answer.

        A subscription is declared once, as it is now. So one answer may be for several waiters:
        those of its `Subscribe` and of all later changes.
        """
        self._session_epoch += 1
        subscribing: dict[int, list[Waiter]] = {}
        advertising: dict[int, list[Waiter]] = {}
        others: list[tuple[Request, Waiter]] = []
        over: list[Waiter] = []
        self._updates.clear()
        joined, self._joined = self._joined, {}
        for key, updates in joined.items():
            subscribing[key] = list(updates.waiters)
        for request, waiter in self._requests.take_all():
            match request:
                case Subscribe(key=key) | Replace(key=key) | Update(key=key):
                    subscribing.setdefault(key, []).append(waiter)
                case Advertise(key=key):
                    advertising.setdefault(key, []).append(waiter)
                case Unsubscribe(key=key) if key in self._leaving:
                    # A session ends what it has subscribed. Both at once, before another
                    # subscription takes the durable name.
                    self._submit(self._leaving[key], partial(notify, ()))
                    self._submit(request, waiter)
                case Unsubscribe() | Unadvertise():
                    over.append(waiter)
                case _:
                    others.append((request, waiter))
        self._subscribe_all(subscribing)
        for key, advertised in list(self._advertised.items()):
            self._submit(advertised, partial(notify, advertising.pop(key, ())))
        for request, waiter in others:
            self._submit(request, waiter)
        # Last, when the table is complete: waiters may send requests.
        for waiters in (over, *subscribing.values(), *advertising.values()):
            notify(waiters, DONE)

    def _subscribe_all(self, pending: dict[int, list[Waiter]]) -> None:
        """Declare all subscriptions, with the pending waiters of each key."""
        for key, standing in list(self.standing.items()):
            waiters = [*pending.pop(key, ()), partial(self._declared, key)]
            self._submit(standing, partial(notify, waiters))

    def _declared(self, key: int, outcome: Outcome) -> None:
        """End a subscription that the broker refuses although it was in force before."""
        if isinstance(outcome, Failed):
            self.end_subscription(key, error_of(outcome.failure))


def _changed(standing: Subscribe, change: Replace | Update) -> Subscribe:
    """Return a subscription with a change applied."""
    if isinstance(change, Update):
        return msgspec.structs.replace(standing, values={**standing.values, **change.values})
    filter, values, assembled = change.filter, change.values, change.assembled
    return msgspec.structs.replace(standing, filter=filter, values=values, assembled=assembled)


def notify(waiters: Iterable[Waiter], outcome: Outcome) -> None:
    """Report an outcome to all its waiters."""
    for waiter in waiters:
        waiter(outcome)
