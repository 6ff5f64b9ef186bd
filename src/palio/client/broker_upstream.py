"""`BrokerUpstream`: the upstream of a client: its changes to the broker, and the broker's events.

Local first: a change is in force for what this client gives on before the broker knows of it, and a
subscription that the broker refuses is as it was before. What is subscribed and what is under way
between the two is known to `ClientCore`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from palio.client.dispatcher import Dispatcher
from palio.client.events import ANY_PUBLISHER, Gap, LateGap
from palio.client.registration import Registration
from palio.client.roaming import Roaming, unanswered
from palio.client.transport import Dial
from palio.client.upstream import Change, PendingReply, answers, finish, is_refusal, log_refusal
from palio.errors import Closed, PalioError, SubscriptionEnded, Unreachable
from palio.matching.protocol import Matcher
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.protocol import messages
from palio.protocol.client import rows_of
from palio.protocol.messages import (
    Acknowledge,
    Advertise,
    Answer,
    Assembled,
    Blocked,
    Cancel,
    Deliver,
    Hello,
    Nack,
    Query,
    Settle,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)
from palio.protocol.requests import Outcome, Request

_UNKNOWN: Final = Gap(ANY_PUBLISHER, 0, 0, 0)


class BrokerUpstream(Roaming):
    """A broker, at the other end of a connection that is mended by itself."""

    def __init__(
        self,
        urls: Sequence[str],
        hello: Hello,
        dial: Dial,
        *,
        matcher: Matcher | None,
        draw: random.Random,
        timeout: float | None,
    ) -> None:
        super().__init__(urls, hello, dial, draw=draw, timeout=timeout)
        self.dispatcher: Final = Dispatcher(self, matcher)
        self._unsubscribing: set[asyncio.Future[None]] = set()
        self._next_advertised = 0
        self._missed: dict[Registration, None] = {}
        """Subscriptions that were made again and are perhaps not in force everywhere."""
        self._is_settling = False
        """Whether the broker is asked if they are; that is asked again in a new session."""

    # --- requests to the broker ---

    def send_change(self, change: Change, /) -> PendingReply:
        """Send a change to the broker, or keep it for the next session."""
        if isinstance(change, Unsubscribe):
            withdrawn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if not self.core.table.unsubscribe(change, answers(withdrawn)):
                return None
            return self._while_connected(withdrawn, change, may_refuse=change.forget)
        if isinstance(change, Update) and not self.is_ready:
            return None
        return self.ask(change)

    async def cancel(self, filter: Filter | Pattern, /, *, delete: bool) -> int:
        """Cancel at the broker what others of the same identity receive; none without one."""
        if not self.identity:
            return 0
        answer: Answer = await self.ask(Cancel(0, str(filter), delete))
        ended: int = answer.data
        return ended

    def _while_connected(
        self, change: asyncio.Future[Any], request: Request, *, may_refuse: bool = False
    ) -> PendingReply:
        """Return a reply to a change that is in force here already. It is complete with the
        broker's answer, or when the connection breaks, as the broker is notified in any case.
        Without a connection a refusal is only logged.
        """
        change.add_done_callback(_retrieved)
        if not self.session.is_connected:
            if may_refuse:
                log_refusal(change)
            return None
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsubscribing.add(reply)
        reply.add_done_callback(self._unsubscribing.discard)
        change.add_done_callback(partial(_done, reply, may_refuse))
        self.deadlines.watch(reply, unanswered(request), self.deadlines.seconds)
        return reply

    def report(self, outcome: Acknowledge | Nack, /) -> None:
        """Report to the broker the outcome of entries of a durable subscription."""
        self.core.table.report(outcome)

    async def advertise(self, advertisement: Advertisement) -> int:
        """Announce what will be published; the number to withdraw it by."""
        number = self._next_advertised
        self._next_advertised += 1
        try:
            await self.ask(Advertise(0, number, str(advertisement)))
        except BaseException:
            reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if self.core.table.unadvertise(number, answers(reply)):  # the request may still arrive
                log_refusal(reply)
            raise
        return number

    async def unadvertise(self, number: int) -> None:
        """Withdraw an announcement, if that was not done already."""
        if self.core.table.advertises(number):
            self.check_ready()
            withdrawn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.core.table.unadvertise(number, answers(withdrawn))
            reply = self._while_connected(withdrawn, Unadvertise(0, number))
            if reply is not None:
                await reply

    # --- messages from the broker (`client.Application`) ---

    def renewed(self, *, may_have_missed: bool) -> None:
        """The broker knew nothing of this client, and all was declared to it again."""
        if may_have_missed:
            self._missed.update(dict.fromkeys(self.dispatcher))
            _note_unknown(self._missed)
        elif self.is_ready:  # it has moved
            _note_unknown(
                registration for registration in self.dispatcher if registration.by_brokers
            )
        self.is_ready = True
        for registration in self.dispatcher:
            if registration.durable:
                registration.renew()
        if self._missed and not self._is_settling:
            self._is_settling = True
            self.core.table.ask(Settle(0), self._is_whole)

    def _is_whole(self, outcome: Outcome) -> None:
        """Report a gap: subscriptions made again are in force everywhere only now."""
        self._is_settling = False
        missed, self._missed = self._missed, {}
        if not isinstance(outcome, PalioError):
            _note_unknown(registration for registration in missed if not registration.closed)

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """A subscription that was in force is over: it ends with the error."""
        registration = self.dispatcher.get(ended.key)
        if registration is not None:
            registration.end(error)

    def flow(self) -> None:
        """Publish pending events: the session is back, or the window allows more."""
        was_listening = self.is_listening
        super().flow()
        if not was_listening:
            for registration in self.dispatcher:
                if registration.assembling is not None:
                    registration.assembling.restart_wait()

    def disconnected(self) -> None:
        """Release callers that wait for the broker to confirm an unsubscribe."""
        super().disconnected()
        for key in list(self._unsubscribing):
            finish(key)

    def ended(self, error: PalioError) -> None:
        """There is no way back to a broker."""
        super().ended(error)
        self.dispatcher.end(error)

    def deliver(self, message: Deliver) -> None:
        """Dispatch events to all subscriptions that match."""
        self.dispatcher.deliver(message.parcel, rows_of(message))

    def deliver_named(
        self, message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        """An event by itself for these subscriptions, and perhaps for unconfirmed ones."""
        self.dispatcher.deliver_named(message.parcel, keys, unconfirmed)

    def deliver_durable(self, message: Deliver) -> None:
        """Events for one durable subscription."""
        registration = self.dispatcher.get(message.key)
        if registration is not None and registration.durable:  # else it was unsubscribed meanwhile
            self.dispatcher.deliver_durable(
                registration,
                message.parcel,
                rows_of(message),
                message.entry,
                message.attempt,
                is_part=message.part,
            )

    def deliver_assembled(self, message: Assembled) -> None:
        """An occurrence of a pattern, for the subscription that it is of."""
        registration = self.dispatcher.get(message.key)
        if registration is not None:  # else it was unsubscribed meanwhile
            registration.occurred(message.parts)

    def bookmarked(self, key: int, bookmark: bytes) -> None:
        """Resume a durable pattern from a bookmark, unless it has got further."""
        registration = self.dispatcher.get(key)
        if registration is not None:
            registration.bookmarked(bookmark)

    def blocked(self, message: Blocked) -> None:
        """Note whether events wait at the broker."""
        registration = self.dispatcher.get(message.key)
        if registration is not None:
            registration.is_blocked = message.is_blocked

    def lose(self, gaps: Sequence[messages.Gap]) -> None:
        """Events that the broker dropped because this client fell behind, or that may have been
        lost on their way to it.
        """
        for lost_range in gaps:
            kind = LateGap if lost_range.is_late else Gap
            gap = kind(
                lost_range.publisher,
                lost_range.first_seq,
                lost_range.last_seq,
                lost_range.count,
                lost_range.reason,
            )
            for registration in self.dispatcher:
                is_for_all = lost_range.key < 0 and (
                    not registration.durable or not lost_range.count
                )
                assembling = registration.assembling
                if registration.number == lost_range.key and assembling is not None:
                    assembling.start_over()
                if registration.number == lost_range.key or is_for_all:
                    registration.lose(gap)


def _note_unknown(registrations: Iterable[Registration]) -> None:
    """Events of anybody may have been lost to these."""
    for registration in registrations:
        registration.queue.note(registration, _UNKNOWN)


def _done(reply: asyncio.Future[None], may_refuse: bool, change: asyncio.Future[Any]) -> None:
    """Pass the answer to a change on to the caller that waits, with a refusal. If none waits
    any longer, that is logged.
    """
    error = None if change.cancelled() else change.exception()
    if not may_refuse or error is None or not is_refusal(error):
        finish(reply)
    elif reply.done():
        log_refusal(change)
    else:
        reply.set_exception(error)


def _retrieved(change: asyncio.Future[Any]) -> None:
    """It does not matter whether the broker confirms what ends with the session anyway."""
    if not change.cancelled():
        change.exception()


class Lifetimes:
    """The subscriptions of one client that end unless there is a source when their time is over
    (proxy IV-C).
    """

    def __init__(self, upstream: BrokerUpstream) -> None:
        self._upstream = upstream
        self._asking: set[asyncio.Task[None]] = set()

    async def begin(self, registration: Registration, offer_timeout: float) -> None:
        """Let a subscription wait so long. Without time to wait it is refused where there is no
        source, and in any case where nobody can know.
        """
        try:
            has_source = await self._has_source(registration)
            if not (has_source or offer_timeout):
                raise _unoffered(registration)
        except BaseException:
            registration.abandon()
            raise
        if offer_timeout:
            asyncio.get_running_loop().call_later(offer_timeout, self._is_over, registration)

    def _is_over(self, registration: Registration) -> None:
        if not registration.closed:
            asking = asyncio.ensure_future(self._end_unless_offered(registration))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)

    async def _end_unless_offered(self, registration: Registration) -> None:
        try:
            if not await self._has_source(registration) and not registration.closed:
                registration.abandon(_unoffered(registration))
        except Unreachable:
            self._is_over(registration)  # that asks once the broker is back
        except Closed:
            pass
        except PalioError as error:  # a filter that it may no longer subscribe to
            registration.abandon(error)

    async def _has_source(self, registration: Registration) -> bool:
        about = {"filter": str(registration.what), "values": dict(registration.values)}
        answer: Answer = await self._upstream.ask(Query(0, "source", about))
        return bool(answer.data)


def _unoffered(registration: Registration) -> SubscriptionEnded:
    return SubscriptionEnded(
        f"nobody advertises what {registration.bound!s:.200} wants, and its time to wait is over; "
        "subscribe again, or without offer_timeout to wait for ever"
    )
