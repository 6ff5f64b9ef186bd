"""`Session`: what a client and its broker remember of each other, across connections.

1. A connection that breaks is dialled again: the addresses in turn, beginning with the one that
   answered last, with pauses that grow and are partly left to chance, so that a thousand clients of
   a broker that comes back do not come at once.
2. If the broker still knows the session, both go on where they were: what the other has not got is
   sent again, nothing is lost or doubled.
3. If not, the session is *renewed*: its owner says again all that must be known, and tells those
   who may have missed something.
4. What the other end cannot take is sent again, since a bit may have flipped on its way; in the end
   it is left out, and the session goes on without it. Each end is told by the other's greeting.
5. What no attempt can change (who we are is not accepted, or a greeting is illegal) ends it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from palio import errors
from palio.client.transport import Dial, Wire
from palio.errors import (
    Closed,
    DamagedFrame,
    IllegalMessage,
    InvalidInput,
    LimitExceeded,
    NotAuthenticated,
    NotPermitted,
    PalioError,
    Unreachable,
)
from palio.protocol.failures import error_of
from palio.protocol.limits import FRAME_TRIES, GREETING_S, HEARTBEAT_S, PROTOCOL_VERSION
from palio.protocol.messages import Bye, Failure, Hello, Message, Ping, Pong, Seen, Welcome
from palio.protocol.streams import Stream
from palio.protocol.unreached import why_not

__all__ = ["BACKOFF_MAX_S", "BACKOFF_MIN_S", "DIAL_S", "Owner", "Session"]

DIAL_S: Final = 5.0
"""How long one attempt to connect may take, and then the broker's answer to the greeting."""

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 5.0
"""The pause between attempts doubles from the one to the other."""

CLOSE_S: Final = 5.0
"""How long a connection may take to write its last words."""

SEEN_AFTER_S: Final = 0.01
"""What has arrived is told to the broker after this at the latest. Events that come one by one are
not each answered: that would cost as much again as they do."""

SILENT_BEATS: Final = 3
"""A connection on which nothing came for so many heartbeats is lost."""


_log: Final = logging.getLogger("palio")


class Owner(Protocol):
    """Who is told what happens in a session."""

    def renewed(self, session: Session) -> None:
        """The broker knows nothing of us: say it all again. Also when it is the first time."""

    def connected(self, session: Session) -> None:
        """Messages go out again."""

    def lost(self, session: Session) -> None:
        """The connection broke; it is dialled again."""

    def handle(self, session: Session, message: Message) -> None:
        """A counted message came. `IllegalMessage` if it is none that a broker may send."""

    def refused(self, session: Session, message: Message, error: IllegalMessage) -> None:
        """The broker cannot take something that was sent; it is sent no more."""

    def ended(self, session: Session, error: PalioError) -> None:
        """There will be no further connection."""


class _Connection:
    """What one connection hears."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.wire: Wire | None = None

    def arrived(self, message: Message) -> None:
        if self.greeted.done():
            self._session._arrived(self, message)
        elif isinstance(message, Welcome):
            try:
                self._session._welcomed(self, message)
            except IllegalMessage as error:
                self.greeted.set_exception(error)
            else:
                self.greeted.set_result(None)
        elif isinstance(message, Bye):
            self.greeted.set_exception(_refusal(message))
        else:
            self.greeted.set_exception(
                IllegalMessage("the broker", f"{type(message).__name__} before its Welcome")
            )

    def lost(self, reason: str) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(Unreachable(reason))
        else:
            self._session._lost(self, reason)

    def illegal(self, error: IllegalMessage) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(error)
        else:
            self._session._cannot_take(self, error)


class Session:
    """A client's end of a session with a broker."""

    def __init__(
        self,
        owner: Owner,
        dial: Dial,
        urls: Sequence[str],
        hello: Hello,
        draw: random.Random,
    ) -> None:
        self.urls = list(urls)
        self.stream = Stream()
        self.broker = ""
        """The name of the broker at the other end."""
        self.publisher = ""
        self._owner = owner
        self._dial = dial
        self._hello = hello
        self._draw = draw
        self._id = ""
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: Wire | None = None
        self._ended = False
        self._heard_at = 0.0
        self._heartbeat_s = HEARTBEAT_S
        self._beat: asyncio.TimerHandle | None = None
        self._word: asyncio.TimerHandle | None = None
        self._heard = 0
        self._heard_before_beat = 0
        self._is_missed = False
        self._unnamed = 0
        """How often the broker could not take something that was not counted."""

    @property
    def is_connected(self) -> bool:
        """Whether messages go out at once."""
        return self._connection is not None

    # --- connections ---

    async def open(self) -> None:
        """Connect for the first time, or after `pause`: every address is tried once."""
        if self._ended:
            raise Closed("the session has ended; connect anew")
        if not self.is_connected:
            if self._task is not None:  # it was trying already, with addresses of before
                self._task.cancel()
            await self._round()

    def pause(self) -> None:
        """Leave the broker, which keeps the session for its grace. `open` comes back."""
        self._stop(Bye("suspended"))

    def end(self, error: PalioError | None = None) -> None:
        """Leave the broker for good."""
        if not self._ended:
            self._ended = True
            self._stop(Bye("closed"))
            self._owner.ended(self, error or Closed("the client is closed; connect anew"))

    async def _round(self) -> None:
        reasons = []
        for _ in self.urls:
            url = self.urls[0]
            try:
                async with asyncio.timeout(DIAL_S):
                    await self._greet(url)
            except (OSError, PalioError) as error:
                if _is_final(error):
                    raise
                reasons.append(f"{url}: {why_not(error, url)}")
                self.urls.append(self.urls.pop(0))
            else:
                return
        raise Unreachable(f"no broker answers: {'; '.join(reasons)}")

    async def _greet(self, url: str) -> None:
        connection = _Connection(self)
        wire = connection.wire = await self._dial(url, connection)
        try:
            hello = self._hello
            wire.send(
                Hello(
                    hello.role,
                    hello.name,
                    PROTOCOL_VERSION,
                    token=hello.token,
                    incarnation=hello.incarnation,
                    session=self._id,
                    received=self.stream.received if self._id else 0,
                    refused=self.stream.refused if self._id else "",
                )
            )
            async with asyncio.timeout(GREETING_S):
                await connection.greeted
        except BaseException:
            if self._connection is connection:  # welcomed, and cancelled in the same moment
                self._connection = None
            connection.greeted.cancel()
            wire.close()
            raise

    def _welcomed(self, connection: _Connection, welcome: Welcome) -> None:
        wire = connection.wire
        assert wire is not None
        again: list[Message] = []
        if welcome.resumed:
            self.stream.refused = ""
            self.stream.seen(welcome.received)
            if welcome.refused:
                self._returned(welcome.refused)
            again = self.stream.resume(welcome.received)
        else:
            self._unnamed = 0
            self.stream = Stream()
        self._connection = connection
        self._id, self.broker, self.publisher = welcome.session, welcome.name, welcome.publisher
        self._heartbeat_s = welcome.heartbeat_s or HEARTBEAT_S
        for message in again:
            wire.send(message)
        if not welcome.resumed:
            self._owner.renewed(self)
        if self._is_missed:
            self._is_missed = False
            how = "all goes on" if welcome.resumed else "all is subscribed anew"
            _log.warning("connected to %s again; %s", self.broker, how)
        self._owner.connected(self)
        self._heard_at = asyncio.get_running_loop().time()
        self._listen()

    def _returned(self, reason: str) -> None:
        """The broker could not take the first message that it has not seen."""
        error = IllegalMessage("this client", f"the broker says: {reason}")
        message = self.stream.returned()
        if message is not None:
            _log.error(
                "%s cannot take what it was sent (%s), which is left out: %s",
                self.broker,
                type(message).__name__,
                reason,
            )
            self.stream.replace(())
            self._owner.refused(self, message, error)
        elif not any(True for _ in self.stream.unseen()):
            self._unnamed += 1
            if self._unnamed >= FRAME_TRIES:
                raise error

    def _cannot_take(self, connection: _Connection, error: IllegalMessage) -> None:
        """Something came that cannot be read, or that no broker may send: it has not arrived."""
        if connection is not self._connection:
            return
        if isinstance(error, DamagedFrame) and not self.stream.damaged():
            self._lost(connection, str(error))
        else:
            self.stream.refuse(str(error))
            if self.stream.refusals == 1:
                _log.error("what %s sent cannot be taken: %s", self.broker, error)
            self._lost(connection, str(error))

    def _lost(self, connection: _Connection, reason: str) -> None:
        if connection is self._connection and not self._ended:
            _log.warning(
                "the connection to %s broke (%s); it is dialled again", self.broker, reason
            )
            self._is_missed = True
            self._disconnect()
            self._owner.lost(self)
            self._task = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        """Connect again, however long it takes."""
        pause = BACKOFF_MIN_S
        while True:
            await asyncio.sleep(pause * (0.5 + self._draw.random()))
            pause = min(2 * pause, BACKOFF_MAX_S)
            try:
                await self._round()
            except PalioError as error:
                if _is_final(error):
                    self.end(error)
                    return
                _log.info("%s", error)
            else:
                return

    def _stop(self, last: Bye) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None
        self._disconnect(last)

    def _disconnect(self, last: Bye | None = None) -> None:
        connection, self._connection = self._connection, None
        for handle in (self._beat, self._word):
            if handle is not None:
                handle.cancel()
        self._beat = self._word = None
        if connection is not None and connection.wire is not None:
            if last is not None:
                connection.wire.send(last)
            connection.wire.close()
            self._closing = connection.wire

    async def closed(self, patience_s: float = CLOSE_S) -> None:
        """Wait until the last words are written and the connection is closed."""
        if self._closing is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._closing.wait_closed()

    # --- messages ---

    def send(self, message: Message) -> None:
        """Send a counted message now, or when there is a connection."""
        self.stream.send(message)
        self._write(message)

    def _write(self, message: Message) -> None:
        if self._connection is not None and self._connection.wire is not None:
            self._connection.wire.send(message)

    def _arrived(self, connection: _Connection, message: Message) -> None:
        if connection is not self._connection:
            return
        self._heard += 1
        try:
            self._take(message)
        except IllegalMessage as error:
            self._cannot_take(connection, error)

    def _take(self, message: Message) -> None:
        if isinstance(message, Seen):
            self.stream.seen(message.count)
            self._owner.connected(self)
        elif isinstance(message, Ping):
            self._write(Pong())
        elif isinstance(message, Pong):
            pass
        elif isinstance(message, Bye):
            self._dismissed(message)
        elif isinstance(message, Hello | Welcome):
            raise IllegalMessage("the broker", f"{type(message).__name__} after the greeting")
        else:
            self._owner.handle(self, message)
            self.stream.arrive(message)
            self._acknowledge()

    def _dismissed(self, message: Bye) -> None:
        error = _refusal(message)
        if _is_final(error) and not isinstance(error, IllegalMessage):  # which has its own limit
            self._disconnect()
            self.end(error)
        elif self._connection is not None:
            self._lost(self._connection, str(error))

    def _acknowledge(self) -> None:
        """Say what arrived: when it is much, or a moment later."""
        word = self.stream.word()
        if word is not None:
            self._write(word)
        if self._word is None and self.stream.owes_word:
            self._word = asyncio.get_running_loop().call_later(SEEN_AFTER_S, self._say_seen)

    def _say_seen(self) -> None:
        self._word = None
        word = self.stream.word(now=True)
        if word is not None:
            self._write(word)

    def _listen(self) -> None:
        """Ask a silent broker whether it is there, and give up one that does not answer."""
        loop = asyncio.get_running_loop()
        if self._heard > self._heard_before_beat:
            self._heard_before_beat = self._heard
            self._heard_at = loop.time()
        silent_s = loop.time() - self._heard_at
        if silent_s >= SILENT_BEATS * self._heartbeat_s and self._connection is not None:
            self._lost(self._connection, f"nothing came for {silent_s:.0f} s")
            return
        if silent_s >= self._heartbeat_s:
            self._write(Ping())
        self._beat = loop.call_later(self._heartbeat_s, self._listen)


def _is_final(error: Exception) -> bool:
    """Whether the next attempt would meet it again."""
    final = NotAuthenticated | NotPermitted | IllegalMessage | InvalidInput
    return isinstance(error, final) and not isinstance(error, DamagedFrame | LimitExceeded)


def _refusal(bye: Bye) -> PalioError:
    if hasattr(errors, bye.code):
        return error_of(Failure(bye.code, bye.reason))
    return Unreachable(f"the broker said goodbye: {bye.reason or bye.code}")
