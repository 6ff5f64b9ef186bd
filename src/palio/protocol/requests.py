"""`Table`: what a client has asked of its broker: what stands, and what is not yet answered.

When a session is renewed, everything is sent again from how things stand now, and those who wait
for an answer get that of the new question.
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
"""The outcome of a request: the broker's answer, or why there will be none."""

Waiter: TypeAlias = Callable[[Outcome], None]
"""Whoever waits for an answer; it is called once."""

_REFUSED: Final = 0

DONE: Final = Done(0)
"""The answer to a request that came true without one: what it was about is over."""


class Requests:
    """Open requests by their numbers.

    A request is sent once, but a session that is renewed asks again for what several of them
    together led to: so one answer may be for several waiters.

    >>> requests, heard = Requests(), []
    >>> requests.enter(Settle(0), heard.append)
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
        """The request with a number of its own, whose answer is for this waiter."""
        number = next(self._numbers)
        numbered = self._open[number] = msgspec.structs.replace(request, id=number)
        self._waiters[number] = waiter
        return numbered

    def take(self, number: int) -> tuple[Request, Waiter] | None:
        """A request that is answered, and who waits for that; it is open no longer."""
        request = self._open.pop(number, None)
        return None if request is None else (request, self._waiters.pop(number))

    def take_all(self) -> list[tuple[Request, Waiter]]:
        """All that is open, in order; nothing is, from now on."""
        taken = list(zip(self._open.values(), self._waiters.values(), strict=True))
        self._open.clear()
        self._waiters.clear()
        return taken

    def end(self, error: PalioError) -> None:
        """There will be no more answers."""
        for _, waiter in self.take_all():
            waiter(error)


class _Joined:
    """Updates of one subscription that wait until the broker has answered some of those before."""

    def __init__(self, update: Update, waiter: Waiter) -> None:
        self.update = update
        self.waiters = [waiter]

    def join(self, update: Update, waiter: Waiter) -> None:
        """A later one: its values count."""
        values = {**self.update.values, **update.values}
        self.update = msgspec.structs.replace(self.update, values=values)
        self.waiters.append(waiter)


class Table:
    """Requests of a client to its broker: the subscriptions and advertisements that stand, as
    they are now, and the requests that are open.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        withdrawn: Callable[[Subscribe, PalioError], None],
    ) -> None:
        """`withdrawn` is called with what stood and is over without having been asked for."""
        self.standing: Final[dict[int, Subscribe]] = {}
        """The subscriptions that the broker is to have, by key."""
        self.unconfirmed: Final[dict[int, int]] = {}
        """The keys of subscriptions that the broker may know otherwise than they are here, and the
        number of the request that it has yet to confirm; `_REFUSED` if it refused one."""
        self._send = send
        self._withdrawn = withdrawn
        self._requests = Requests()
        self._updates: Counter[int] = Counter()
        """Updates that are open, by key."""
        self._joined: dict[int, _Joined] = {}
        """Those that are yet to be sent, by key: everything else is sent behind them."""
        self._advertised: dict[int, Advertise] = {}
        self._leaving: dict[int, Subscribe] = {}
        """Durable subscriptions whose end the broker has not confirmed."""
        self._visit = 0
        """How many sessions have begun: a later one counts, whichever broker learned of it
        first."""
        self._error: PalioError | None = None
        """Why nothing is asked any more, if that is so."""

    def ask(self, request: Request, waiter: Waiter) -> None:
        """Send a request whose answer is for one who waits.

        What is subscribed or advertised holds in every session to come, until `unsubscribe` or
        `unadvertise`.
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
            self._say(request, waiter)

    def _join(self, update: Update, waiter: Waiter) -> None:
        joined = self._joined.get(update.key)
        if joined is None:
            self._joined[update.key] = _Joined(update, waiter)
        else:
            joined.join(update, waiter)

    def _say_joined(self, keys: Iterable[int]) -> None:
        """Send what waits for answers before it."""
        for key in keys:
            joined = self._joined.pop(key, None)
            if joined is not None:
                self._say(joined.update, partial(tell, joined.waiters))

    def take_up(self, request: Subscribe) -> None:
        """The session was begun by another program, which has asked for this."""
        self.standing[request.key] = request

    def unsubscribe(self, request: Unsubscribe, waiter: Waiter) -> bool:
        """Hear it no more. Whether there was anything to say: else nobody is told."""
        key = request.key
        ended = self.standing.pop(key, None)
        if ended is None or self._error is not None:
            return False
        if request.forget and ended.durable:
            self._leaving[key] = ended
        self.unconfirmed.pop(key, None)
        self._say(request, waiter)
        return True

    def advertises(self, key: int) -> bool:
        """Return whether something is announced under this key."""
        return key in self._advertised

    def unadvertise(self, key: int, waiter: Waiter) -> bool:
        """Withdraw an announcement. Whether there was anything to say."""
        if self._advertised.pop(key, None) is None or self._error is not None:
            return False
        self._say(Unadvertise(0, key), waiter)
        return True

    def acknowledge(self, key: int, entry: int, held: int = 0, bookmark: bytes = b"") -> None:
        """A durable subscription has dealt with everything up to an entry (see `Acknowledge`)."""
        if key in self.standing and self._error is None:
            self._send(Acknowledge(key, entry, held, bookmark))

    def _say(self, request: Request, waiter: Waiter) -> None:
        if self._error is not None:
            waiter(self._error)
            return
        if self._joined and not isinstance(request, Update):
            self._say_joined(list(self._joined))
        if isinstance(request, Subscribe) and request.durable:
            request = msgspec.structs.replace(request, session_epoch=self._visit)
        request = self._requests.enter(request, waiter)
        if isinstance(request, Subscribe | Replace | Update) and request.key in self.standing:
            # Until it is confirmed, what the broker delivers may be for what was before. A refused
            # change is in force here until all is subscribed again.
            key = request.key
            if not isinstance(request, Update) or self.unconfirmed.get(key) != _REFUSED:
                self.unconfirmed[key] = request.id
        if isinstance(request, Update):
            self._updates[request.key] += 1
        self._send(request)

    def answer(self, id: int, outcome: Done | Failed | Answer) -> None:
        """Take the outcome of a request. One that is not open belongs to an earlier session."""
        found = self._requests.take(id)
        if found is None:
            return
        request, waiter = found
        if isinstance(request, Update):
            self._answered(request.key)
        if isinstance(request, Subscribe | Replace | Update):
            key = request.key
            if isinstance(outcome, Failed) and key in self.standing:
                self.unconfirmed[key] = _REFUSED
            elif self.unconfirmed.get(key) == id:
                del self.unconfirmed[key]
        elif isinstance(request, Unsubscribe):
            self._leaving.pop(request.key, None)
        waiter(outcome)

    def _answered(self, key: int) -> None:
        self._updates[key] -= 1
        if not self._updates[key]:
            del self._updates[key]
        if key in self._joined:
            self._say_joined((key,))

    def withdraw(self, keys: Iterable[int]) -> None:
        """Others of the same identity have withdrawn what was announced under these keys."""
        for key in keys:
            self._advertised.pop(key, None)

    def end_subscription(self, key: int, error: PalioError) -> None:
        """The broker has ended a subscription."""
        ended = self.standing.pop(key, None)
        joined = self._joined.pop(key, None)
        if ended is not None:
            self.unconfirmed.pop(key, None)
            self._withdrawn(ended, error)
        if joined is not None:
            tell(joined.waiters, error)

    def end(self, error: PalioError) -> None:
        """There will be no more answers."""
        self._error = error
        joined, self._joined = self._joined, {}
        self._requests.end(error)
        for each in joined.values():
            tell(each.waiters, error)

    def declare(self) -> None:
        """In a new session, subscribe and advertise all there is, and ask again what was not
        answered.
        """
        self._visit += 1
        subscribing: dict[int, list[Waiter]] = {}
        advertising: dict[int, list[Waiter]] = {}
        others: list[tuple[Request, Waiter]] = []
        over: list[Waiter] = []
        self._updates.clear()
        joined, self._joined = self._joined, {}
        for key, each in joined.items():
            subscribing[key] = list(each.waiters)
        for request, waiter in self._requests.take_all():
            match request:
                case Subscribe(key=key) | Replace(key=key) | Update(key=key):
                    subscribing.setdefault(key, []).append(waiter)
                case Advertise(key=key):
                    advertising.setdefault(key, []).append(waiter)
                case Unsubscribe(key=key) if key in self._leaving:
                    self._say(self._leaving[key], partial(tell, ()))  # before another has its name
                    self._say(request, waiter)
                case Unsubscribe() | Unadvertise():
                    over.append(waiter)
                case _:
                    others.append((request, waiter))
        self._subscribe_all(subscribing)
        for key, advertised in list(self._advertised.items()):
            self._say(advertised, partial(tell, advertising.pop(key, ())))
        for request, waiter in others:
            self._say(request, waiter)
        for waiters in (over, *subscribing.values(), *advertising.values()):  # who may call back
            tell(waiters, DONE)

    def _subscribe_all(self, waiting: dict[int, list[Waiter]]) -> None:
        """Subscribe all there is, for those who wait for an answer, by key."""
        for key, standing in list(self.standing.items()):
            waiters = [*waiting.pop(key, ()), partial(self._declared, key)]
            self._say(standing, partial(tell, waiters))

    def _declared(self, key: int, outcome: Outcome) -> None:
        """End a subscription that the broker refuses although it was in force before."""
        if isinstance(outcome, Failed):
            self.end_subscription(key, error_of(outcome.failure))


def _changed(known: Subscribe, change: Replace | Update) -> Subscribe:
    """A subscription once a change is in force."""
    if isinstance(change, Update):
        return msgspec.structs.replace(known, values={**known.values, **change.values})
    filter, values, assembled = change.filter, change.values, change.assembled
    return msgspec.structs.replace(known, filter=filter, values=values, assembled=assembled)


def tell(waiters: Iterable[Waiter], outcome: Outcome) -> None:
    """Tell all who wait what became of their request."""
    for waiter in waiters:
        waiter(outcome)
