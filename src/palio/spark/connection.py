"""`Connection`: a blocking client of a broker, for processes in which Spark runs sources and sinks.

Spark calls a source or a sink from threads of its own, now and then, and kills it when it likes.
So this is the smallest shell round a `ClientSession`: one connection, one thread that reads and
answers the broker's heartbeat, nothing resumed. What must survive a break is not kept here: entries
wait in the broker's custody, and publications have numbers under which they can be sent again.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, NamedTuple

from palio.errors import IllegalMessage, PalioError, Unreachable
from palio.model.hiding import shown_without
from palio.protocol.addresses import parse_address
from palio.protocol.client_session import ClientSession
from palio.protocol.failures import error_of
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Answer,
    Ask,
    Deliver,
    Done,
    Failed,
    Hello,
    Message,
    Subscribe,
)
from palio.protocol.unreached import why_not
from palio.protocol.wire import Decoder, Encoder

__all__ = ["Connection", "Door"]

READ_BYTES: Final = 1 << 18

TIMEOUT_S: Final = 60.0
"""Seconds that a broker may take to greet, to answer a request, or to take what is written."""


QUESTIONS: Final = 1 << 20
"""Questions have numbers from here on, so that no caller's own number is among them."""


class Door(NamedTuple):
    """The address of a broker, the client's name and token, and the authorities to trust."""

    url: str
    name: str = "spark"
    token: str = ""
    ca: str = ""
    """The file of the authorities to trust; empty for those of the system."""

    def __repr__(self) -> str:
        return shown_without(self, "token")

    def socket(self, timeout_s: float) -> socket.socket:
        """An open connection, over TLS for `palios://`."""
        host, port, is_secure = parse_address(self.url)
        try:
            plain = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise self._unreachable(error) from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_secure:
            return plain
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            return context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise self._unreachable(error) from None

    def _unreachable(self, error: OSError) -> Unreachable:
        return Unreachable(f"no broker answers at {self.url}: {why_not(error, self.url)}")


class Connection:
    """A session with a broker, which ends with its connection.

    `incarnation` is the second half of the name that publications are numbered under; `broker` and
    `publisher` are what the broker calls itself and the publisher.
    """

    def __init__(self, door: Door, incarnation: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = door.url
        self.timeout_s = timeout_s
        self._heard: SimpleQueue[Message | PalioError] = SimpleQueue()
        self._early: list[Message] = []
        self._asked = QUESTIONS
        self._is_closed = False
        self._line = _Line(door, incarnation, self._heard, timeout_s)
        try:
            self._line.open(timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def broker(self) -> str:
        """What the broker calls itself."""
        return self._line.session.broker

    @property
    def publisher(self) -> str:
        """What the broker calls this publisher."""
        return self._line.session.publisher

    def subscribe(self, request: Subscribe) -> None:
        """Put a subscription in force; what the broker says against it is raised."""
        self.say(request)
        self._answered(request.id)

    def ask(self, what: str, about: Any = None) -> Any:
        """Ask a broker; return its answer, or raise its refusal."""
        self._asked += 1
        self.say(Ask(self._asked, what, about))
        return self._answered(self._asked)

    def _answered(self, request: int) -> Any:
        """The answer to a request, None where it has no more to say than that it was done."""
        until = monotonic() + self.timeout_s
        while (left := until - monotonic()) > 0:
            match self._next(left):
                case Done(id) if id == request:
                    return None
                case Answer(id, data) if id == request:
                    return data
                case Failed(id, failure) if id == request:
                    raise error_of(failure)
                case None:
                    break
                case message:
                    self._early.append(message)
        raise Unreachable(f"{self.url} did not answer within {self.timeout_s:g} s")

    def say(self, message: Message) -> None:
        """Send a message."""
        self._line.say(message)

    def early(self) -> list[Message]:
        """What came before the answer to the last request."""
        found, self._early = self._early, []
        return found

    def receive(self, timeout_s: float) -> Message | None:
        """The next message that is not about the connection; None if there is none so soon."""
        if self._early:
            return self._early.pop(0)
        return self._next(timeout_s)

    def close(self) -> None:
        """Hang up."""
        if not self._is_closed:
            self._is_closed = True
            self._line.hang_up()

    def _next(self, timeout_s: float) -> Message | None:
        try:
            heard = (
                self._heard.get(timeout=timeout_s) if timeout_s > 0 else self._heard.get_nowait()
            )
        except Empty:
            return None
        if isinstance(heard, PalioError):
            self._heard.put(heard)  # whoever asks again is told again
            raise heard
        return heard


class _Line:
    """A socket, the thread that reads from it, and the session on it (see `client_session`).

    `_session_lock` guards the session and what it wants written, `_writing` the socket: a thread
    that writes keeps no other from reading.
    """

    def __init__(
        self,
        door: Door,
        incarnation: str,
        heard: SimpleQueue[Message | PalioError],
        timeout_s: float,
    ) -> None:
        hello = Hello("client", door.name, PROTOCOL_VERSION, door.token, incarnation)
        self.session = ClientSession(
            self, self, [door.url], hello, _no_chance, returns=False, paced=_not_yet
        )
        self._heard = heard
        self._url = door.url
        self._timeout_s = timeout_s
        self._socket = door.socket(timeout_s)
        self._encoder = Encoder()
        self._out: list[bytes] = []
        self._session_lock = Lock()
        self._writing = Lock()
        self._opened: SimpleQueue[PalioError | None] = SimpleQueue()
        self._reader = Thread(target=self._read, name="palio-connection", daemon=True)

    def open(self, timeout_s: float) -> None:
        """Be welcomed."""
        self._reader.start()
        with self._session_lock:
            self.session.connect(monotonic())
        self._flush()
        try:
            error = self._opened.get(timeout=timeout_s)
        except Empty:
            raise Unreachable(f"{self._url} did not greet within {timeout_s:g} s") from None
        if error is not None:
            raise error

    def say(self, message: Message) -> None:
        """Send a message."""
        with self._session_lock:
            if not self.session.is_connected:
                raise Unreachable(f"the connection to {self._url} is over")
            self.session.send(message)
        self._flush()

    def hang_up(self) -> None:
        """End the session."""
        with self._session_lock:
            self.session.end()
        with suppress(Unreachable):
            self._flush()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._reader.ident is not None:
            self._reader.join(timeout=self._timeout_s)

    def _flush(self) -> None:
        try:
            with self._writing:
                with self._session_lock:
                    data, self._out = b"".join(self._out), []
                if data:
                    self._socket.sendall(data)
        except OSError as error:
            raise Unreachable(f"the connection to {self._url} broke: {error}") from None

    def _read(self) -> None:
        """What the thread does: everything that comes, until nothing more does."""
        decoder = Decoder(self._url)
        try:
            while True:
                try:
                    data = self._socket.recv(READ_BYTES)
                except TimeoutError:
                    continue  # the time is for writing; a broker that has died closes
                if not data:
                    break
                self._take(decoder, data)
                self._flush()
            end: Exception = Unreachable(f"{self._url} closed the connection")
        except OSError as error:
            end = Unreachable(f"the connection to {self._url} broke: {error}")
        except PalioError as error:
            end = error
        with self._session_lock:
            self.session.lost(end, monotonic())

    def _take(self, decoder: Decoder, data: bytes) -> None:
        with self._session_lock:
            before = self.session.stream.received
            try:
                for message in decoder.feed(data):
                    self.session.receive(message, monotonic())
            except IllegalMessage as error:
                self.session.illegal(error, monotonic())
            if self.session.stream.received > before:
                self.session.say_seen(self.session.stream.received)

    # --- `client_session.Connector` ---

    def dial(self, url: str) -> None:
        """See `Connector`: the socket is there."""
        del url
        self.session.dialled(monotonic())

    def send(self, message: Message) -> None:
        """See `Connector`."""
        self._out += map(bytes, self._encoder.encode(message))

    def close(self) -> None:
        """See `Connector`: nothing more is heard, and `hang_up` closes the socket."""

    def opened(self, *, resumed: bool) -> None:
        """See `Connector`."""
        del resumed
        self._opened.put(None)

    def unopened(self, error: PalioError, *, again: bool) -> None:
        """See `Connector`."""
        del again
        self._opened.put(error)

    def broke(self, error: Exception) -> None:
        """See `Connector`: the session ends with its connection."""

    # --- `client_session.Owner` ---

    def renewed(self, session: ClientSession, *, is_first: bool) -> None:
        """See `Owner`: nothing was said before."""

    def hear(self, session: ClientSession, message: Message) -> None:
        """See `Owner`."""
        del session
        if not isinstance(message, Deliver) or message.entry:
            self._heard.put(message)
        # What was published for those who were here could not be read a second time.

    def flow(self, session: ClientSession) -> None:
        """See `Owner`."""

    def lost(self, session: ClientSession) -> None:
        """See `Owner`."""

    def ended(self, session: ClientSession, error: PalioError) -> None:
        """See `Owner`."""
        del session
        self._heard.put(error)


def _no_chance() -> float:
    """Pauses between attempts are left to chance; this client makes one attempt."""
    return 0.0


def _not_yet() -> None:
    """`Seen` is said for all that one read has brought."""
