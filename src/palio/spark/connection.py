"""`Connection`: a blocking client of a broker, for processes in which Spark runs sources and sinks.

Spark calls a source or a sink from threads of its own, now and then, and kills it when it likes.
So this client is the smallest that the protocol allows: one connection, one thread that reads and
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
from palio.protocol.failures import error_of
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    UNCOUNTED,
    Answer,
    Ask,
    Bye,
    Deliver,
    Done,
    Failed,
    Failure,
    Hello,
    Message,
    Ping,
    Pong,
    Seen,
    Subscribe,
    Welcome,
)
from palio.protocol.streams import Stream
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

    def _unreachable(self, error: OSError) -> Unreachable:
        return Unreachable(f"no broker answers at {self.url}: {why_not(error, self.url)}")

    def socket(self, timeout_s: float) -> socket.socket:
        """An open connection, over TLS for `palios://`."""
        host, port, is_secure = parse_address(self.url)
        try:
            plain = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise Unreachable(
                f"no broker answers at {self.url}: {why_not(error, self.url)}"
            ) from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_secure:
            return plain
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            return context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise Unreachable(
                f"no broker answers at {self.url}: {why_not(error, self.url)}"
            ) from None


class Connection:
    """A session with a broker, which ends with its connection.

    `incarnation` is the second half of the name that publications are numbered under; `broker` and
    `publisher` are what the broker calls itself and the publisher.
    """

    def __init__(self, door: Door, incarnation: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = door.url
        self.timeout_s = timeout_s
        self._socket = door.socket(timeout_s)
        self._encoder = Encoder()
        self._arrived = Stream()
        """Only what arrives is counted: nothing is resumed, so nothing that was sent is kept."""
        self._writing = Lock()
        self._heard: SimpleQueue[Message | PalioError] = SimpleQueue()
        self._early: list[Message] = []
        self._asked = QUESTIONS
        self._is_closed = False
        self._reader = Thread(target=self._read, name="palio-connection", daemon=True)
        self._reader.start()
        try:
            welcome = self._greeted(
                Hello("client", door.name, PROTOCOL_VERSION, door.token, incarnation)
            )
        except BaseException:
            self.close()
            raise
        self.broker = welcome.name
        self.publisher = welcome.publisher

    def _greeted(self, hello: Hello) -> Welcome:
        self._write(hello)
        answer = self.receive(self.timeout_s)
        if not isinstance(answer, Welcome):
            raise Unreachable(f"{self.url} did not greet within {self.timeout_s:g} s")
        return answer

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
        self._write(message)

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
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(Unreachable):
            self._write(Bye("closed"))
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join(timeout=self.timeout_s)

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

    def _write(self, message: Message) -> None:
        try:
            with self._writing:
                self._socket.sendall(b"".join(map(bytes, self._encoder.encode(message))))
        except OSError as error:
            raise Unreachable(f"the connection to {self.url} broke: {error}") from None

    def _read(self) -> None:
        """What the thread does: everything that comes, until nothing more does."""
        decoder = Decoder(self.url)
        try:
            while True:
                try:
                    data = self._socket.recv(READ_BYTES)
                except TimeoutError:
                    continue  # the time is for writing; a broker that has died closes
                if not data:
                    break
                for message in decoder.feed(data):
                    self._take(message)
                self._tell_seen()
            end: PalioError = Unreachable(f"{self.url} closed the connection")
        except OSError as error:
            end = Unreachable(f"the connection to {self.url} broke: {error}")
        except PalioError as error:
            end = error
        self._heard.put(end)

    def _take(self, message: Message) -> None:
        if type(message) not in UNCOUNTED:
            self._arrived.arrive(message)
        match message:
            case Ping():
                self._write(Pong())
            case Seen():
                pass
            case Deliver(entry=0):
                pass  # published for who was there; it could not be read a second time
            case Bye():
                raise _farewell(self.url, message)
            case _:
                self._heard.put(message)

    def _tell_seen(self) -> None:
        word = self._arrived.word(now=True)
        if word is not None:
            self._write(word)


def _farewell(url: str, bye: Bye) -> PalioError:
    if bye.code in ("NotAuthenticated", "NotPermitted", "InvalidInput"):
        return error_of(Failure(bye.code, f"{url}: {bye.reason}"))
    if bye.code == "IllegalMessage":
        return IllegalMessage(url, f"it says so of us: {bye.reason}")
    return Unreachable(f"{url} hung up: {bye.reason or bye.code}")
