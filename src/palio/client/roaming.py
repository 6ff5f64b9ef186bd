"""`Roaming`: a client's connection to a broker, and its moves from one broker to another."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from palio.client.deadlines import Deadlines
from palio.client.outbox import Outbox
from palio.client.session import CLOSE_S, Session
from palio.client.transport import Dial
from palio.client.upstream import Upstream, answers
from palio.errors import Closed, InvalidConfiguration, NoAnswer, PalioError, Unreachable, Unsettled
from palio.protocol.addresses import parse_address
from palio.protocol.client import Application, ClientCore
from palio.protocol.client_session import ClientSession
from palio.protocol.limits import CROSSING_S
from palio.protocol.messages import (
    AddPeer,
    Advertise,
    Apply,
    Cancel,
    Drain,
    Hello,
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
from palio.protocol.requests import Request

logger: Final = logging.getLogger("palio")

MOST_KNOWN: Final = 16
"""Addresses that a client knows without having been given them by its application are no more than
it takes to have so many in all."""

MAX_PENDING_STATES: Final = 64
"""States of the connection that wait for one iteration over them; beyond, the oldest are dropped:
a connection that breaks more often meanwhile is of interest for its last state alone."""

SETTLE_AGAIN_S: Final = 0.1
"""How long a client waits before it asks again about brokers that were not reached."""


Status: TypeAlias = Literal["connecting", "connected", "disconnected", "closed"]
"""`connecting` is the first time; a client that is `disconnected` dials again by itself, unless it
was suspended; one that is `closed` never does."""


class ConnectionState(Struct, frozen=True):
    """The state of a client's connection, and the name of its broker, empty before the first."""

    status: Status
    broker: str


class Roaming(Upstream, Application):
    """An upstream at a broker: to connect, to leave for a while, to go elsewhere, and to ask."""

    has_broker = True

    def __init__(
        self,
        urls: Sequence[str],
        hello: Hello,
        dial: Dial,
        *,
        draw: random.Random,
        timeout: float | None,
    ) -> None:
        self.name: Final = hello.name
        self.identity: Final = hello.identity
        self.core: Final = ClientCore(self)
        publications, may_publish = self.core.publications, self.core.may_publish
        self.outbox: Final = Outbox(publications, may_publish, self._write)
        self.deadlines: Final = Deadlines(timeout, self._state)
        self.is_ready = False
        """Whether it was connected once and has not ended."""
        self.has_ended = False
        self.state = ConnectionState("connecting", "")
        self._watchers: set[asyncio.Queue[ConnectionState]] = set()
        """One for each iteration over `states`."""
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
            raise Closed("the connection has ended for good; connect again")

    def check_ready(self) -> None:
        """Refuse what is not to be connected now."""
        self.check_usable()
        if not self.is_ready:
            raise Unreachable(
                "this client was never connected; write `async with palio.connect(...) as client` "
                "or `client = await palio.connect(...)`"
            )

    def _state(self) -> str:
        """Describe the state of the connection, for errors."""
        session = self.session
        is_there = "stands" if session.is_connected else "is lost and is dialled again"
        return f"the connection to {session.broker or session.urls[0]} {is_there}"

    # --- the connection ---

    @property
    def is_listening(self) -> bool:
        """False while the connection is lost or suspended: what is under way comes later."""
        return self.state.status != "disconnected"

    def _enter(self, status: Status) -> None:
        self.state = ConnectionState(status, self.session.broker)
        for watcher in self._watchers:
            if watcher.full():
                watcher.get_nowait()
            watcher.put_nowait(self.state)

    async def states(self) -> AsyncGenerator[ConnectionState, None]:
        """Yield the state of the connection, and each state after it; the last is `closed`."""
        watcher: asyncio.Queue[ConnectionState] = asyncio.Queue(MAX_PENDING_STATES)
        self._watchers.add(watcher)
        state = self.state
        try:
            yield state
            while state.status != "closed":
                state = await watcher.get()
                yield state
        finally:
            self._watchers.discard(watcher)

    async def open(self, *, retry_s: float = 0.0) -> None:
        """Connect; wait so many seconds for a broker that answers."""
        await self._session.open(retry_s=retry_s)

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

    async def _go_elsewhere(self, offered: Sequence[str]) -> None:
        """The broker is about to go: move to another one, if there is any that takes this client.

        A call that came first to leave it, or a lost connection, makes this needless.
        """
        async with self._one_at_a_time:
            here, broker = self.session.urls[0], self.session.broker
            others = elsewhere(self.session.urls, offered, self._draw)
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
            with suppress(Unsettled):  # events of those brokers did not come before either
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
            raise NoAnswer(
                f"not all that was published was answered in {seconds:g} s ({self._state()}); "
                "resume(url) goes to another broker without waiting for it"
            ) from None

    async def close(self, patience_s: float = CLOSE_S) -> None:
        """Leave the broker for good."""
        if self._going is not None:
            self._going.cancel()
        self.core.end()
        await self._session.closed(patience_s)

    # --- requests ---

    def ask(self, request: Request) -> asyncio.Future[Any]:
        """Send a request; what is returned is done with its answer."""
        self.check_ready()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.core.table.ask(request, answers(reply))
        self.deadlines.watch(reply, unanswered(request), self.deadlines.seconds)
        return reply

    async def settled(self, patience: float, /) -> None:
        """Ask again while some are missing: a network that forms or mends itself is whole
        soon.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while unreached := (await self.ask(Settle(0))).unreached:
            if loop.time() >= until:
                raise Unsettled(unreached)
            await asyncio.sleep(SETTLE_AGAIN_S)

    # --- messages from the broker (`client.Application`) ---

    def redirected(self, urls: Sequence[str]) -> None:
        """The broker is about to go."""
        if not self.stays and (self._going is None or self._going.done()):
            going = self._go_elsewhere(urls)
            self._going = asyncio.get_running_loop().create_task(going)

    def flow(self) -> None:
        """Publish pending events: the session is back, or the window allows more."""
        if self.state.status != "connected" or self.state.broker != self.session.broker:
            self._enter("connected")
        self.outbox.flow()

    def disconnected(self) -> None:
        """The connection broke, or the client was suspended."""
        self._enter("disconnected")

    def ended(self, error: PalioError) -> None:
        """There is no way back to a broker."""
        self._enter("closed")
        self.is_ready, self.has_ended = False, True
        self.deadlines.close()
        self.outbox.end(error)


def unanswered(request: Request) -> str:
    """The state of a request that was not answered in time, for the error."""
    match request:
        case Subscribe():
            return "nothing was subscribed; the broker is notified if it has subscribed it"
        case Replace() | Update():
            return "the change is in force here, and is sent to the broker"
        case Unsubscribe():
            return "no more events are received here, and the broker is notified"
        case Withdraw() | Cancel():
            return "what it covers may be over or not; the broker is asked again"
        case Advertise() | Unadvertise():
            return "the broker may or may not know; it is notified that nothing is advertised"
        case Apply():
            return "the plan may or may not be in use; look at the topology, and ask again"
        case Drain():
            return "the broker may or may not be handing over what it has; ask again"
        case AddPeer() | RemovePeer():
            return "the link may be there or not; ask for the peers, and again"
        case RemoveBroker():
            return "the broker may or may not be retired; look at the topology, and ask again"
    return "ask again"


def elsewhere(addresses: Sequence[str], offered: Sequence[str], draw: random.Random) -> list[str]:
    """The addresses to try: those that the application gave, in any order, so that the clients of
    one broker do not all go to one other; then those that the broker names. `known` begins with
    that of the broker itself.

    A client that is connected by TLS goes nowhere without it.

    >>> elsewhere(["palio://b1"], ["palio://b2", "b3", "palio://b1"], random.Random(1))
    ['palio://b2']
    >>> elsewhere(["palios://b1", "palios://b4"], ["palio://b2"], random.Random(1))
    ['palios://b4']
    """
    here, *others = addresses
    draw.shuffle(others)
    fit = [url for url in _fit(offered, here) if url not in addresses]
    return [*others, *fit[: max(0, MOST_KNOWN - len(addresses))]]


def _fit(offered: Sequence[str], here: str) -> Iterator[str]:
    is_secure = here.startswith("palios://")
    for url in dict.fromkeys(offered):
        try:
            address = parse_address(url)
        except InvalidConfiguration:
            continue  # what an application's own `dial` would make of it nobody knows
        if address.is_secure or not is_secure:
            yield url
