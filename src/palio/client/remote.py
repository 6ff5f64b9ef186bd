"""`Remote`: an audience at the end of a session: what the broker is told, and what it tells.

Local first: a change is in force for what this client gives on before the broker knows of it, and a
subscription that the broker refuses is as it was before. What is under way between the two is known
to `ClientCore`, which asks here how things stand when it has to say everything again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np

from palio.client.audience import Audience, new_matcher
from palio.client.deadlines import TIMEOUT_S, Deadlines
from palio.client.events import ANY_PUBLISHER, Gap
from palio.client.outbox import Outbox
from palio.client.sequences import REORDER_S
from palio.client.session import Session
from palio.client.subscription import Subscription
from palio.client.transport import Dial
from palio.client.waiting import DONE, answers, in_background
from palio.errors import Closed, PalioError, Unreachable, Unsettled
from palio.matching.index import Index
from palio.matching.protocol import Matcher, Matches, RowMask
from palio.model.filters import Filter
from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol import messages
from palio.protocol.client import ClientCore
from palio.protocol.messages import (
    Advertise,
    Deliver,
    Hello,
    Parcel,
    Replace,
    Retire,
    Settle,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
    unpack_mask,
)
from palio.protocol.requests import Request

__all__ = ["Remote", "unanswered"]

SETTLE_AGAIN_S: Final = 0.1
"""How long a client waits before it asks again for brokers that could not be told."""

FEW_SUBSCRIPTIONS: Final = 8
"""So few are asked one by one whether they want an event: the engine begins at a higher price."""

_UNKNOWN: Final = Gap(ANY_PUBLISHER, 0, 0, 0)


class Remote(Audience):
    """An audience whose events come from a broker, which is told what it wants."""

    def __init__(
        self,
        urls: Sequence[str],
        hello: Hello,
        dial: Dial,
        *,
        matcher: Matcher | None,
        draw: random.Random,
        timeout: float | None = TIMEOUT_S,
        reorder_s: float = REORDER_S,
    ) -> None:
        super().__init__(matcher)
        self._reorder_s = reorder_s
        self._hello = hello
        self._dial = dial
        self._draw = draw
        self._core = ClientCore(self)
        self._session = Session(self._core, dial, urls, hello, draw)
        self._core.session = self._session.core
        self._outbox = Outbox(self._core.publications, self._core.may_publish)
        self._deadlines = Deadlines(timeout, self._state)
        self._leavers: set[asyncio.Future[None]] = set()
        """What those wait for who have unsubscribed."""
        self._next_advertised = 0
        self._durable: dict[Subscription, Matcher] = {}
        self._leases: dict[Subscription, float] = {}
        self._is_open = True
        self._has_been_connected = False
        self._is_away = False
        """Whether the connection is lost or suspended: what is under way comes when it is back."""
        self._missed: dict[Subscription, None] = {}
        """Subscriptions that were made anew and are perhaps not in force everywhere."""
        self._is_settling = False
        """Whether the broker is asked if they are; that is asked again in a new session."""
        self.spurious = 0
        """Events that came and were for no subscription any longer."""

    def _check_open(self) -> None:
        if self._has_been_connected and self._is_open and not self._closed:
            self._check_home()
        else:
            self._check_usable()
            raise Unreachable(
                "this client was never connected; write `async with palio.connect(...) as client` "
                "or `client = await palio.connect(...)`"
            )

    def _check_usable(self) -> None:
        """Refuse what can never be connected again."""
        super()._check_open()
        if not self._is_open:
            raise Closed("the connection has ended for good; connect anew")

    # --- changes, told to the broker ---

    def _ask(self, request: Request) -> asyncio.Future[Any]:
        """Send a request; what is returned is done with its answer."""
        self._check_open()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._core.ask(request, answers(future))
        self._deadlines.watch(future, unanswered(request), self._deadlines.seconds)
        return future

    def _state(self) -> str:
        """How it stands with the connection, for people."""
        session = self._core.session
        is_there = "stands" if session.is_connected else "is lost and is dialled again"
        return f"the connection to {session.broker or session.urls[0]} {is_there}"

    def _announce(self, subscription: Subscription) -> Awaitable[None]:
        return self._ask(self._description(self._numbers[subscription], subscription))

    def _description(self, key: int, subscription: Subscription) -> Subscribe:
        """A subscription as it is now, as its broker must know it."""
        return Subscribe(
            0,
            key,
            _text(subscription.filter),
            dict(subscription.values),
            subscription.durable,
            self._leases.get(subscription, 0.0),
        )

    def _rebind(self, subscription: Subscription, values: Bindings) -> Awaitable[None]:
        in_background(super()._rebind(subscription, values))
        before = subscription.values
        changed = {name: value for name, value in values.items() if value is not before[name]}
        if not changed or not self._is_open:
            return DONE
        return self._ask(Update(0, self._numbers[subscription], changed))

    def _exchange(
        self, subscription: Subscription, what: Filter | Pattern, values: Bindings
    ) -> Awaitable[None]:
        in_background(super()._exchange(subscription, what, values))
        return self._ask(Replace(0, self._numbers[subscription], _text(what), dict(values)))

    def _withdraw(self, subscription: Subscription, *, forget: bool) -> Awaitable[None]:
        key = self._numbers.get(subscription, -1)
        request = Unsubscribe(0, key, forget)
        withdrawn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._closed or not self._core.unsubscribe(request, answers(withdrawn)):
            return DONE
        if forget:
            in_background(withdrawn)
        return self._while_connected(withdrawn, unanswered(request))

    def _while_connected(self, change: asyncio.Future[Any], what: str) -> Awaitable[None]:
        """Done with a change that is in force here, or when the connection breaks: the broker is
        told of it in any case.
        """
        change.add_done_callback(_retrieved)
        if not self._core.session.is_connected:
            return DONE
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leavers.add(told)
        told.add_done_callback(self._leavers.discard)
        change.add_done_callback(lambda _: _finish([told]))
        self._deadlines.watch(told, what, self._deadlines.seconds)
        return told

    async def _settled(self, patience: float) -> None:
        """Ask again while some are missing: a network that forms or mends itself is whole soon."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while unreached := (await self._ask(Settle(0))).unreached:
            if loop.time() >= until:
                raise Unsettled(unreached)
            await asyncio.sleep(SETTLE_AGAIN_S)

    def _is_listening(self) -> bool:
        return not self._is_away

    def _matcher_of(self, subscription: Subscription) -> Matcher:
        """A durable subscription has an engine of its own: what comes for it is for it alone."""
        if not subscription.durable:
            return self._matcher
        if subscription not in self._durable:
            self._durable[subscription] = new_matcher()
        return self._durable[subscription]

    def _forget(self, subscription: Subscription) -> None:
        super()._forget(subscription)
        self._durable.pop(subscription, None)
        self._leases.pop(subscription, None)

    # --- what the session tells (`client.Application`) ---

    def described(self, key: int) -> Subscribe | None:
        """A subscription as it is now."""
        found = self._subscriptions.get(key)
        return None if found is None else self._description(key, found)

    def renewed(self, *, may_have_missed: bool) -> None:
        """The broker knew nothing of this client, and was told all of it again."""
        if may_have_missed:
            self._missed.update(dict.fromkeys(self._numbers))
            _tell_unknown(self._missed)
        self._has_been_connected = True
        for subscription in self._durable:
            subscription._receipts.renew()
        if self._missed and not self._is_settling:
            self._is_settling = True
            settled: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            settled.add_done_callback(self._is_whole)
            self._core.ask(Settle(0), answers(settled))

    def _is_whole(self, settled: asyncio.Future[Any]) -> None:
        """What was subscribed anew is in force everywhere; until now, events passed it by."""
        _retrieved(settled)
        self._is_settling = False
        missed, self._missed = self._missed, {}
        if self._is_open:
            _tell_unknown(each for each in missed if each in self._numbers)

    def withdrawn(self, key: int, error: PalioError) -> None:
        """The broker refuses a subscription that was in force before: it ends with the error."""
        if key in self._subscriptions:
            self._subscriptions[key]._finish(error)

    def flow(self) -> None:
        """The session is back, or there is room again for what waits to be published."""
        if self._is_away:
            self._is_away = False
            for subscription in self._numbers:
                subscription._wait_anew()
        self._outbox.go_on()

    def disconnected(self) -> None:
        """Who has unsubscribed need not wait for the broker to be back."""
        self._is_away = True
        _finish(list(self._leavers))

    def ended(self, error: PalioError) -> None:
        """There is no way back to a broker."""
        self._is_open = False
        self._deadlines.close()
        self._outbox.end(error)
        for subscription in list(self._numbers):
            subscription._finish(error)

    # --- events ---

    def deliver(self, message: Deliver, fresh: RowMask | None) -> None:
        """Events for whoever wants them."""
        parcel = message.parcel
        if parcel.event is not None and message.rows is None and fresh is None:
            wanting = self._wanting(parcel.event, parcel)
            self.spurious += not wanting
            self._hand_out_lone(parcel, wanting)
            return
        mask = unpack_mask(message.rows, len(parcel)) if fresh is None else fresh
        matches = _within(mask, self._matcher.match(parcel.batch))
        self.spurious += int(mask.sum()) - _rows_of(matches, len(parcel))
        self._hand_out(parcel.publisher, [(parcel.batch, matches)])

    def _wanting(self, event: Mapping[str, Any], parcel: Parcel) -> list[int]:
        """The numbers of the subscriptions that want an event, but for durable ones."""
        if len(self._subscriptions) <= FEW_SUBSCRIPTIONS:
            return [
                number
                for number, each in self._subscriptions.items()
                if not each.durable and each.concerns(event)
            ]
        matcher = self._matcher
        if isinstance(matcher, Index):
            keys = matcher.match_event(event)
        else:
            keys = matcher.match(parcel.batch).keys
        numbers: list[int] = np.unique(keys // MAX_PATTERN_STEPS).tolist()
        return numbers

    def deliver_durable(self, message: Deliver) -> None:
        """Events for one durable subscription; what it wants no longer is acknowledged."""
        subscription = self._subscriptions.get(message.key)
        if subscription is None or not subscription.durable:
            return  # it was unsubscribed meanwhile
        parcel = message.parcel
        mask = unpack_mask(message.rows, len(parcel))
        numbers = parcel.numbers
        receipts = subscription._receipts
        if message.entry:
            if receipts.again(message.entry, parcel.publisher, numbers[mask]):
                return
            mask &= receipts.fresh(parcel.publisher, numbers)
        matches = _within(mask, self._durable[subscription].match(parcel.batch))
        wanted = _rows_of(matches, len(parcel))
        subscription.spurious += int(mask.sum()) - wanted
        entry = None
        if message.entry:
            entry = receipts.expect(message.entry, parcel.publisher, numbers[mask], wanted)
        self._hand_out(parcel.publisher, [(parcel.batch, matches)], entry)

    def lose(self, gaps: Sequence[messages.Gap]) -> None:
        """Events that the broker dropped because this client fell behind, or that may have been
        lost on their way to it.
        """
        for each in gaps:
            gap = Gap(each.publisher, each.first_seq, each.last_seq, each.count)
            for number, subscription in self._subscriptions.items():
                is_for_all = each.key < 0 and (not subscription.durable or not each.count)
                if number == each.key or is_for_all:
                    subscription._inbox.note(subscription, gap)


def _tell_unknown(subscriptions: Iterable[Subscription]) -> None:
    """Events of anybody may have been lost to these."""
    for subscription in subscriptions:
        subscription._inbox.note(subscription, _UNKNOWN)


def _retrieved(change: asyncio.Future[Any]) -> None:
    """It does not matter whether the broker confirms what ends with the session anyway."""
    if not change.cancelled():
        change.exception()


def unanswered(request: Request) -> str:
    """What is known of a request that nobody has answered in time."""
    match request:
        case Subscribe():
            return "nothing was subscribed; the broker is told so if it has subscribed it"
        case Replace() | Update():
            return "the change is in force here, and the broker will be told of it"
        case Unsubscribe():
            return "nothing more is heard here, and the broker will be told so"
        case Advertise() | Unadvertise():
            return "the broker may or may not know; it will be told that nothing is advertised"
        case Retire():
            return "the broker may or may not be retired; look at the topology, and ask again"
    return "ask again"


def _text(what: Filter | Pattern) -> str:
    """What a broker is asked for: for a pattern whatever any of its steps wants."""
    return str(what if isinstance(what, Filter) else reduce(or_, what.steps))


def _within(mask: RowMask, matches: Matches) -> Matches:
    """The matches in some rows."""
    if mask.all():
        return matches
    keep = mask[matches.rows]
    return Matches(matches.rows[keep], matches.keys[keep])


def _rows_of(matches: Matches, count: int) -> int:
    """How many of `count` rows somebody wants."""
    wanted = np.zeros(count, np.bool_)
    wanted[matches.rows] = True
    return int(wanted.sum())


def _finish(waiting: list[asyncio.Future[Any]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
