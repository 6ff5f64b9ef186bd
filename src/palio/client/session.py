"""`Session` runs a `ClientSession` on asyncio.

It dials and closes connections, sets the timer, and wakes callers of `open`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Final

from palio.client.transport import Dial, Wire
from palio.errors import IllegalMessage, PalioError, Unreachable
from palio.protocol.client_session import ClientSession, Connector, Owner
from palio.protocol.messages import Hello, Message, SubscribeAll

CLOSE_S: Final = 5.0
"""How long a connection may take to write its last words."""

logger: Final = logging.getLogger("palio")


class _Receiver:
    """Receives from one connection; ignores it once the session has another."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session.core
        self._loop = asyncio.get_running_loop()

    def arrived(self, message: Message) -> None:
        session = self._session
        if session.receiver is self:
            self._core.receive(message, self._loop.time())
            if self._core.wake_at < session.timer_at:
                session.set_timer()

    def lost(self, reason: str) -> None:
        self._session.lost(self, Unreachable(reason))

    def illegal(self, error: IllegalMessage) -> None:
        if self._session.receiver is self:
            self._core.illegal(error, self._loop.time())
            self._session.set_timer()


class Session(Connector):
    """The shell round a `ClientSession` (see `client_session.Connector`)."""

    def __init__(
        self,
        owner: Owner,
        dial: Dial,
        urls: Sequence[str],
        hello: Hello,
        draw: random.Random,
    ) -> None:
        self.core = ClientSession(self, owner, urls, hello, draw.random, soon=self._soon)
        self.receiver: _Receiver | None = None
        """The receiver of the current connection."""
        self.timer_at = inf
        """When the session is looked at again."""
        self._dial = dial
        self._dialling: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._closing: Wire | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: list[asyncio.Future[None]] = []
        self._was_lost = False

    async def open(self, *, retry_s: float = 0.0) -> None:
        """Connect for the first time, or after `pause`: every address is tried once, and again
        and again for so many seconds.
        """
        loop = asyncio.get_running_loop()
        self.core.connect(loop.time(), retry_s=retry_s)
        self.set_timer()
        if self.core.is_connected:
            return
        opened: asyncio.Future[None] = loop.create_future()
        self._connecting.append(opened)
        try:
            await opened
        except asyncio.CancelledError:
            self._connecting = [future for future in self._connecting if not future.done()]
            # Stop dialling if the last caller of `open` was cancelled.
            if opened.cancelled() and not self._connecting:
                self.core.abandon()
                self.set_timer()
            raise

    def pause(self) -> None:
        """Leave the broker, which keeps the session for its grace. `open` comes back."""
        self.core.pause()
        self.set_timer()

    async def closed(self, patience_s: float) -> None:
        """Wait until the last words are written and the connection is closed."""
        self.set_timer()
        closing, self._closing = self._closing, None
        if closing is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await closing.wait_closed()

    def set_timer(self) -> None:
        """Set the timer that calls `ClientSession.tick`."""
        at = self.core.wake_at
        if at == self.timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at = at
        self._timer = None if at == inf else asyncio.get_running_loop().call_at(at, self._tick)

    def _tick(self) -> None:
        at, self.timer_at, self._timer = self.timer_at, inf, None
        # The loop calls a timer up to one step of its clock too early.
        self.core.tick(max(at, asyncio.get_running_loop().time()))
        self.set_timer()

    def lost(self, receiver: _Receiver, error: Exception) -> None:
        """A connection broke, or was not made."""
        if receiver is self.receiver:
            self._wire = self._dialling = None
            self.core.lost(error, asyncio.get_running_loop().time())
            self.set_timer()

    # --- what the session wants done (`client_session.Connector`) ---

    def dial(self, url: str) -> None:
        """Open a connection, in a task."""
        self.receiver = _Receiver(self)
        self._dialling = asyncio.get_running_loop().create_task(self._connect(url, self.receiver))

    async def _connect(self, url: str, receiver: _Receiver) -> None:
        try:
            wire = await self._dial(url, receiver)
        except Exception as error:  # noqa: BLE001  # whatever a dial of one's own may raise
            self.lost(receiver, error)
        else:
            self._dialling = None
            self._wire = wire
            self.core.dialled(asyncio.get_running_loop().time())
            self.set_timer()

    def send(self, message: Message) -> None:
        """Write a message to the connection."""
        assert self._wire is not None
        self._wire.send(message)
        if isinstance(message, SubscribeAll):
            # The broker can start on the subscriptions while this turn of the loop continues.
            self._wire.flush()

    def _soon(self) -> None:
        """Send subscriptions that were held back at the end of this turn of the loop."""
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.core.flush()
        self.flush()

    def flush(self) -> None:
        """Write what was sent, if there is a connection."""
        if self._wire is not None:
            self._wire.flush()

    def close(self) -> None:
        """Close the connection, or stop dialling."""
        self.set_timer()
        self.receiver = None
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
            self._closing = wire

    def opened(self, *, resumed: bool) -> None:
        """Resume callers of `open`; log a connection that is back."""
        if self._was_lost:
            self._was_lost = False
            how = "the session resumed" if resumed else "all is subscribed again"
            logger.warning("connected to %s again; %s", self.core.broker, how)
        self._resolve_connecting(None)

    def unopened(self, error: PalioError, *, again: bool) -> None:
        """Fail callers of `open`, unless the session dials again."""
        if again:
            level = logging.WARNING if self._connecting else logging.INFO
            logger.log(level, "%s; it is dialled again", error)
        else:
            self._resolve_connecting(error)

    def broke(self, error: Exception) -> None:
        """Log that the connection broke."""
        self._was_lost = True
        broker = self.core.broker
        logger.warning("the connection to %s broke (%s); it is dialled again", broker, error)

    def _resolve_connecting(self, error: PalioError | None) -> None:
        waiting, self._connecting = self._connecting, []
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
