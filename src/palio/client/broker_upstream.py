"""`BrokerUpstream`: the upstream of a client: what the broker is told, and what it tells.

Local first: a change is in force for what this client gives on before the broker knows of it, and a
subscription that the broker refuses is as it was before. What is subscribed and what is under way
between the two is known to `ClientCore`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from palio.client.deadlines import Deadlines
from palio.client.dispatcher import Dispatcher
from palio.client.events import ANY_PUBLISHER, Gap, Late
from palio.client.outbox import Outbox
from palio.client.redirecting import elsewhere
from palio.client.registration import Registration
from palio.client.session import CLOSE_S, Session
from palio.client.transport import Dial
from palio.client.upstream import Change, Told, Upstream, answers, finish, is_refusal, log_refusal
from palio.errors import Closed, PalioError, Unreachable, Unsettled
from palio.matching.protocol import Matcher
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.protocol import messages
from palio.protocol.client import Application, ClientCore
from palio.protocol.client_session import ClientSession
from palio.protocol.limits import CROSSING_S
from palio.protocol.messages import (
    AddPeer,
    Advertise,
    Answer,
    Apply,
    Assembled,
    Cancel,
    Deliver,
    Drain,
    Hello,
    RemovePeer,
    Replace,
    Retire,
    Settle,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
    unpack_mask,
)
from palio.protocol.requests import Outcome, Request

__all__ = ["BrokerUpstream"]

logger: Final = logging.getLogger("palio")

SETTLE_AGAIN_S: Final = 0.1
"""How long a client waits before it asks again for brokers that could not be told."""

_UNKNOWN: Final = Gap(ANY_PUBLISHER, 0, 0, 0)


class BrokerUpstream(Upstream, Application):
    """A broker, at the other end of a connection that is mended by itself."""

    has_broker = True

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
        self.dispatcher: Final = Dispatcher(self, matcher)
        self.name: Final = hello.name
        self.core: Final = ClientCore(self)
        publications, may_publish = self.core.publications, self.core.may_publish
        self.outbox: Final = Outbox(publications, may_publish, self._write)
        self.deadlines: Final = Deadlines(timeout, self._state)
        self.is_ready = False
        """Whether it was connected once and has not ended."""
        self.has_ended = False
        self.is_listening = True
        """False while the connection is lost or suspended: what is under way comes later."""
        self._hello = hello
        self._dial = dial
        self._draw = draw
        self._session = self._new_session(urls)
        self.core.session = self._session.core
        self._one_at_a_time = asyncio.Lock()
        """For what leaves the broker or comes back: to suspend, to resume, to move."""
        self.stays = False
        """Whether it looks after a broker that is about to go, and does not leave it."""
        self._going: asyncio.Task[None] | None = None
        """On the way to another broker, as that of now is about to go."""
        self._leavers: set[asyncio.Future[None]] = set()
        """What those wait for who have unsubscribed."""
        self._next_advertised = 0
        self._missed: dict[Registration, None] = {}
        """Subscriptions that were made anew and are perhaps not in force everywhere."""
        self._is_settling = False
        """Whether the broker is asked if they are; that is asked again in a new session."""

    @property
    def session(self) -> ClientSession:
        """The session with the broker of now."""
        return self.core.session

    def _write(self) -> None:
        self._session.flush()

    def _new_session(self, urls: Sequence[str]) -> Session:
        return Session(self.core, self._dial, urls, self._hello, self._draw)

    def check_usable(self) -> None:
        """Refuse what can never be connected again."""
        if self.has_ended:
            raise Closed("the connection has ended for good; connect anew")

    def check_ready(self) -> None:
        """Refuse what is not to be connected now."""
        self.check_usable()
        if not self.is_ready:
            raise Unreachable(
                "this client was never connected; write `async with palio.connect(...) as client` "
                "or `client = await palio.connect(...)`"
            )

    def _state(self) -> str:
        """How it stands with the connection, for people."""
        session = self.session
        is_there = "stands" if session.is_connected else "is lost and is dialled again"
        return f"the connection to {session.broker or session.urls[0]} {is_there}"

    # --- the connection ---

    async def open(self) -> None:
        """Connect."""
        await self._session.open()

    async def resume(self, urls: Sequence[str]) -> None:
        """Come back; to other addresses if some are given."""
        async with self._one_at_a_time:
            if urls:
                self.session.urls[:] = urls
            await self.open()

    async def suspend(self) -> None:
        """Leave the broker once what was published is answered; it keeps the session."""
        async with self._one_at_a_time:
            if self.session.is_connected:
                await self._answered()
            self._session.pause()
            self.disconnected()

    async def move(self, urls: Sequence[str]) -> None:
        """Leave the broker once everything is in force at another one."""
        async with self._one_at_a_time:
            await self._answered()
            self.check_usable()
            await self._move(self._new_session(urls))

    async def _go_elsewhere(self, told: Sequence[str]) -> None:
        """The broker is about to go: move to another one, if there is any that takes this client.

        Whoever came first to leave it, or has no connection, has found another way.
        """
        async with self._one_at_a_time:
            here, broker = self.session.urls[0], self.session.broker
            others = elsewhere(self.session.urls, told, self._draw)
            if not others or self.stays or not self.session.is_connected:
                return
            try:
                await self._answered()
                await self._move(self._new_session(others))
            except PalioError as error:
                logger.warning(
                    "%s is about to go, and there is no way to another: %s", broker, error
                )
            else:
                self.session.urls.append(here)
                logger.info("%s is about to go; moved to %s", broker, self.session.broker)

    async def _move(self, new: Session) -> None:
        self.core.move(new.core)
        try:
            await new.open()
            with suppress(Unsettled):  # those brokers were not heard before either
                await self.settled(0.0)
            await asyncio.sleep(CROSSING_S)
            with suppress(TimeoutError):  # the broker that is left answers for what it got
                async with asyncio.timeout(CLOSE_S):
                    await self.outbox.idle(sent_only=True)
        finally:
            if self.session is new.core:
                self._session = new
            self.core.moved(asyncio.get_running_loop().time())

    async def _answered(self) -> None:
        """Return when all that was published before is answered."""
        seconds = self.deadlines.seconds
        try:
            async with asyncio.timeout(seconds):
                await self.outbox.idle()
        except TimeoutError:
            raise Unreachable(
                f"not all that was published was answered in {seconds:g} s ({self._state()}); "
                "resume(url) goes to another broker without waiting for it"
            ) from None

    async def close(self, patience_s: float = CLOSE_S) -> None:
        """Leave the broker for good."""
        if self._going is not None:
            self._going.cancel()
        self.core.end()
        await self._session.closed(patience_s)

    # --- what the broker is told ---

    def ask(self, request: Request) -> asyncio.Future[Any]:
        """Send a request; what is returned is done with its answer."""
        self.check_ready()
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.core.ask(request, answers(told))
        self.deadlines.watch(told, _unanswered(request), self.deadlines.seconds)
        return told

    def tell(self, change: Change, /) -> Told:
        """See `Upstream`."""
        if isinstance(change, Unsubscribe):
            withdrawn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if not self.core.unsubscribe(change, answers(withdrawn)):
                return None
            return self._while_connected(withdrawn, change, may_refuse=change.forget)
        if isinstance(change, Update) and not self.is_ready:
            return None
        return self.ask(change)

    async def cancel(self, what: Filter | Pattern, /, *, forget: bool) -> int:
        """See `Upstream`. Who acts under no identity is by itself."""
        if not self._hello.identity:
            return 0
        answer: Answer = await self.ask(Cancel(0, str(what), forget))
        ended: int = answer.data
        return ended

    def _while_connected(
        self, change: asyncio.Future[Any], request: Request, *, may_refuse: bool = False
    ) -> Told:
        """Done with a change that is in force here, or when the connection breaks: the broker is
        told of it in any case. Nobody waits for a refusal where there is no connection: it is
        logged.
        """
        change.add_done_callback(_retrieved)
        if not self.session.is_connected:
            if may_refuse:
                log_refusal(change)
            return None
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leavers.add(told)
        told.add_done_callback(self._leavers.discard)
        change.add_done_callback(partial(_done, told, may_refuse))
        self.deadlines.watch(told, _unanswered(request), self.deadlines.seconds)
        return told

    def acknowledge(self, number: int, entry: int, held: int = 0, bookmark: bytes = b"", /) -> None:
        """See `Upstream`."""
        self.core.acknowledge(number, entry, held, bookmark)

    async def settled(self, patience: float, /) -> None:
        """Ask again while some are missing: a network that forms or mends itself is whole soon."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while unreached := (await self.ask(Settle(0))).unreached:
            if loop.time() >= until:
                raise Unsettled(unreached)
            await asyncio.sleep(SETTLE_AGAIN_S)

    async def advertise(self, what: Advertisement) -> int:
        """Announce what will be published; the number to withdraw it by."""
        number = self._next_advertised
        self._next_advertised += 1
        try:
            await self.ask(Advertise(0, number, str(what)))
        except BaseException:
            told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if self.core.unadvertise(number, answers(told)):  # it may be told of it yet
                log_refusal(told)
            raise
        return number

    async def unadvertise(self, number: int) -> None:
        """Withdraw an announcement, if that was not done already."""
        if self.core.advertises(number):
            self.check_ready()
            withdrawn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.core.unadvertise(number, answers(withdrawn))
            told = self._while_connected(withdrawn, Unadvertise(0, number))
            if told is not None:
                await told

    # --- what the broker tells (`client.Application`) ---

    def renewed(self, *, may_have_missed: bool) -> None:
        """The broker knew nothing of this client, and was told all of it again."""
        if may_have_missed:
            self._missed.update(dict.fromkeys(self.dispatcher))
            _tell_unknown(self._missed)
        elif self.is_ready:  # it has moved
            _tell_unknown(each for each in self.dispatcher if each.by_brokers)
        self.is_ready = True
        for each in self.dispatcher:
            if each.durable:
                each.renew()
        if self._missed and not self._is_settling:
            self._is_settling = True
            self.core.ask(Settle(0), self._is_whole)

    def _is_whole(self, outcome: Outcome) -> None:
        """What was subscribed anew is in force everywhere; until now, events passed it by."""
        self._is_settling = False
        missed, self._missed = self._missed, {}
        if not isinstance(outcome, PalioError):
            _tell_unknown(each for each in missed if not each.closed)

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """A subscription that was in force is over: it ends with the error."""
        found = self.dispatcher.get(ended.key)
        if found is not None:
            found.end(error)

    def flow(self) -> None:
        """The session is back, or there is room again for what waits to be published."""
        if not self.is_listening:
            self.is_listening = True
            for each in self.dispatcher:
                each.wait_anew()
        self.outbox.go_on()

    def redirected(self, urls: Sequence[str]) -> None:
        """The broker is about to go."""
        if not self.stays and (self._going is None or self._going.done()):
            going = self._go_elsewhere(urls)
            self._going = asyncio.get_running_loop().create_task(going)

    def disconnected(self) -> None:
        """Who has unsubscribed need not wait for the broker to be back."""
        self.is_listening = False
        for each in list(self._leavers):
            finish(each)

    def ended(self, error: PalioError) -> None:
        """There is no way back to a broker."""
        self.is_ready, self.has_ended = False, True
        self.deadlines.close()
        self.outbox.end(error)
        self.dispatcher.end(error)

    def deliver(self, message: Deliver) -> None:
        """Events for whoever wants them."""
        self.dispatcher.deliver(message.parcel, unpack_mask(message.rows, len(message.parcel)))

    def deliver_named(
        self, message: Deliver, keys: Sequence[int], unconfirmed: Collection[int]
    ) -> None:
        """An event by itself for these subscriptions, and perhaps for unconfirmed ones."""
        self.dispatcher.deliver_named(message.parcel, keys, unconfirmed)

    def deliver_durable(self, message: Deliver) -> None:
        """Events for one durable subscription."""
        found = self.dispatcher.get(message.key)
        if found is not None and found.durable:  # else it was unsubscribed meanwhile
            mask = unpack_mask(message.rows, len(message.parcel))
            self.dispatcher.deliver_durable(found, message.parcel, mask, message.entry)

    def deliver_assembled(self, message: Assembled) -> None:
        """An occurrence of a pattern, for the subscription that it is of."""
        found = self.dispatcher.get(message.key)
        if found is not None:  # else it was unsubscribed meanwhile
            found.occurred(message.parts)

    def bookmarked(self, key: int, bookmark: bytes) -> None:
        """A durable pattern goes on from there, unless it has got further."""
        found = self.dispatcher.get(key)
        if found is not None:
            found.bookmarked(bookmark)

    def lose(self, gaps: Sequence[messages.Gap]) -> None:
        """Events that the broker dropped because this client fell behind, or that may have been
        lost on their way to it.
        """
        for each in gaps:
            kind = Late if each.is_late else Gap
            gap = kind(each.publisher, each.first_seq, each.last_seq, each.count)
            for registration in self.dispatcher:
                is_for_all = each.key < 0 and (not registration.durable or not each.count)
                if registration.number == each.key:
                    registration.start_over()
                if registration.number == each.key or is_for_all:
                    registration.lose(gap)


def _tell_unknown(registrations: Iterable[Registration]) -> None:
    """Events of anybody may have been lost to these."""
    for each in registrations:
        each.queue.note(each, _UNKNOWN)


def _done(told: asyncio.Future[None], may_refuse: bool, change: asyncio.Future[Any]) -> None:
    """A change is answered: whoever waits goes on, or is told that it was refused. If nobody waits
    any longer, that is logged.
    """
    error = None if change.cancelled() else change.exception()
    if not may_refuse or error is None or not is_refusal(error):
        finish(told)
    elif told.done():
        log_refusal(change)
    else:
        told.set_exception(error)


def _retrieved(change: asyncio.Future[Any]) -> None:
    """It does not matter whether the broker confirms what ends with the session anyway."""
    if not change.cancelled():
        change.exception()


def _unanswered(request: Request) -> str:
    """What is known of a request that nobody has answered in time."""
    match request:
        case Subscribe():
            return "nothing was subscribed; the broker is told so if it has subscribed it"
        case Replace() | Update():
            return "the change is in force here, and the broker will be told of it"
        case Unsubscribe():
            return "nothing more is heard here, and the broker will be told so"
        case Withdraw() | Cancel():
            return "what it covers may be over or not; the broker is asked again"
        case Advertise() | Unadvertise():
            return "the broker may or may not know; it will be told that nothing is advertised"
        case Apply():
            return "the plan may or may not be in use; look at the topology, and ask again"
        case Drain():
            return "the broker may or may not be handing over what it has; ask again"
        case AddPeer() | RemovePeer():
            return "the link may be there or not; ask for the peers, and again"
        case Retire():
            return "the broker may or may not be retired; look at the topology, and ask again"
    return "ask again"
