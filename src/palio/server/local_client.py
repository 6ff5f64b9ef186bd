"""`InternalClient`: a front end's session with the node, as of any client but without a codec.

It is a shell of `ClientCore` without a timer: within one process no connection times out.

1. It begins with `Hello` and the token that the front end received, so the node alone decides what
   the principal may do.
2. Events are queued here within the node's window. The front end acks those that it has processed,
   so the node bounds the backlog of a slow consumer, and sends it gaps.
3. With `keep_bytes`, the ack for the last processed events is held back. A consumer that lost its
   connection can return with the `position` that it had reached, and the node retransmits the rest:
   the session is resumed as any other is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from palio.errors import Closed, LimitExceeded, PalioError, Unreachable
from palio.protocol.batches import parts
from palio.protocol.client import Application, ClientCore
from palio.protocol.client_session import ClientSession, Connector
from palio.protocol.failures import class_of, failure, is_final
from palio.protocol.limits import ACK_EVERY_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import (
    LEVELS,
    Answer,
    Deliver,
    Done,
    Failed,
    Failure,
    Gap,
    Gaps,
    Hello,
    Message,
    Parcel,
    Refused,
    StoredAt,
    Subscribe,
)
from palio.protocol.requests import DONE, Outcome, Request
from palio.protocol.streams import size_of
from palio.server.scheduler import Pace

RESUME_BYTES: Final = 1 << 20
"""Bytes sent to a consumer that can be retransmitted after a break: more than the buffers of a
connection hold, and well below the node's window."""

KEY: Final = 1
"""The key of a client's only subscription."""

_SHUTS_DOWN: Final = "the broker is about to shut down; connect to another one"

NOW: Final = 0.0
"""The time of all calls: the session has no timer."""


class Link(Protocol):
    """A connection to the node (`palio.server.local_link.LocalLink`)."""

    def send(self, message: Message) -> None:
        """Hand a message to the node."""

    def close(self) -> None:
        """End the connection; the node keeps the session for its grace period."""


Connect: TypeAlias = Callable[[Callable[[Message], None], Callable[[str], None]], Link]
"""Makes a link (`palio.server.server.Server.connect_local`). Both callbacks are called on the loop:
with each message, and with the reason of its end."""


class Declined(PalioError):
    """A refusal of the node; `kind` is the name of a class of `palio.errors`."""

    def __init__(self, failure: Failure) -> None:
        self.kind = failure.kind
        self.details = failure.details
        super().__init__(failure.message)

    @property
    def type(self) -> type[PalioError]:
        """The class itself."""
        return class_of(self.kind)


class Receipt(NamedTuple):
    """The outcome of a publication."""

    publisher: str
    first_seq: int
    last_seq: int
    level: str
    refused: tuple[Refused, ...] = ()
    """Rows that were not published, and why."""

    @property
    def events_refused(self) -> int:
        """The number of these rows."""
        return sum(refused.last_seq - refused.first_seq + 1 for refused in self.refused)


class News(NamedTuple):
    """A message for the consumer, and its number in the session."""

    position: int
    message: Deliver | Gaps


class _Plug(Connector):
    """A client's connection to the node (see `client_session.Connector`)."""

    session: ClientSession

    def __init__(self, client: InternalClient, connect: Connect) -> None:
        self._client = client
        self._connect = connect
        self._link: Link | None = None

    def dial(self, url: str) -> None:
        """Connect to the one node that there is (`Connector`)."""
        del url
        self._link = self._connect(self._receive, self._lost)
        self.session.dialled(NOW)

    def _receive(self, message: Message) -> None:
        self.session.receive(message, NOW)

    def _lost(self, reason: str) -> None:
        self.session.lost(Unreachable(f"the broker closed the session: {reason}"), NOW)

    def send(self, message: Message) -> None:
        """Hand a message to the node (`Connector`)."""
        if self._link is not None:
            self._link.send(message)

    def close(self) -> None:
        """Close the link (`Connector`)."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def opened(self, *, resumed: bool) -> None:
        """Forward the node's welcome (`Connector`)."""
        self._client.welcomed(resumed=resumed)

    def unopened(self, error: PalioError, *, again: bool) -> None:
        """Forward the node's refusal (`Connector`)."""
        del again
        self._client.rejected(error)


class InternalClient(Application):
    """One session: `await InternalClient.open(...)` opens it, `close` or `leave` ends it."""

    def __init__(self, connect: Connect, hello: Hello, *, keep_bytes: int = 0) -> None:
        self.resumed = False
        self._keep_bytes = keep_bytes
        self._core = ClientCore(self)
        self.table: Final = self._core.table
        plug = _Plug(self, connect)
        self._core.session = self._session = plug.session = ClientSession(
            plug,
            self._core,
            ["the node"],
            hello,
            _no_jitter,
            returns=False,
            paced=self._send_ack,
        )
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publishing = asyncio.Lock()
        self._news: deque[News] = deque()
        self._came = asyncio.Event()
        self._acked = 0
        # Positions and sizes of processed messages that are not acked, so that they can be resumed.
        self._kept: deque[tuple[int, int]] = deque()
        self._kept_bytes = 0
        self._released = 0  # bytes since the last ack
        self._failure: PalioError | None = None
        self._unanswered = 0  # publications
        self._is_leaving = False

    @classmethod
    async def open(
        cls,
        connect: Connect,
        *,
        name: str,
        identity: str = "",
        token: str = "",
        session: str = "",
        received: int = 0,
        keep_bytes: int = 0,
    ) -> InternalClient:
        """Connect and shake hands; `Declined` if the node does not authenticate the client."""
        hello = Hello(
            "client",
            name,
            PROTOCOL_VERSION,
            token,
            session=session,
            received=received,
            identity=identity,
        )
        client = cls(connect, hello, keep_bytes=keep_bytes)
        client._session.connect(NOW)
        try:
            await client._welcome
        except BaseException:  # also when the caller was cancelled
            client.close()
            raise
        return client

    @property
    def session(self) -> str:
        """The number of the session, with which it can be resumed."""
        return self._session.id

    @property
    def publisher(self) -> str:
        """The publisher's name on its events."""
        return self._session.publisher

    @property
    def is_open(self) -> bool:
        """True until the session has ended."""
        return self._failure is None

    # --- requests ---

    async def ask(self, request: Request) -> Any:
        """Send a request; return the data of its answer, if it has any."""
        self._check()
        answered: asyncio.Future[Done | Answer] = asyncio.get_running_loop().create_future()
        self.table.ask(request, partial(_settle, answered))
        answer = await answered
        return answer.data if isinstance(answer, Answer) else None

    def unadvertise(self, key: int) -> asyncio.Future[Done | Answer]:
        """End an advertisement."""
        answered: asyncio.Future[Done | Answer] = asyncio.get_running_loop().create_future()
        if not self.table.unadvertise(key, partial(_settle, answered)):
            answered.set_result(DONE)
        return answered

    async def publish_all(
        self, batches: Iterable[pa.RecordBatch], *, durable: StoredAt = False
    ) -> list[Receipt]:
        """Publish batches under consecutive numbers, also if others publish at the same time. It
        yields to other tasks in between.
        """
        if self._is_leaving:
            raise Unreachable(_SHUTS_DOWN)
        pace = Pace()
        self._unanswered += 1
        try:
            async with self._publishing:
                published = [await self._publish(batch, pace, durable=durable) for batch in batches]
            return [await publication.receipt(self.publisher) for publication in published]
        finally:
            self._unanswered -= 1
            self._leave_if_answered()

    async def _publish(
        self, batch: pa.RecordBatch, pace: Pace, *, durable: StoredAt
    ) -> _Publication:
        """Send a batch, in several messages if it is large; one answer follows later."""
        self._check()
        first = self._core.publications.next
        publication = _Publication(first, first + batch.num_rows - 1)
        sent = list(parts(batch))
        for number, part in enumerate(sent, start=1):
            parcel, is_last = Parcel.of(self.publisher, part), number == len(sent)
            self._core.publish(parcel, [publication], durable=durable, is_last=is_last)
            await pace()
        if not sent:  # no message of an empty batch would bring an answer
            publication.answer(LEVELS[durable])
        return publication

    # --- news ---

    @property
    def has_news(self) -> bool:
        """True if `next` returns at once."""
        return bool(self._news)

    async def next(self) -> News:
        """Wait for the next events or gaps; `Closed` when there will be none."""
        while not self._news:
            self._check()
            self._came.clear()
            await self._came.wait()
        return self._news[0]

    @property
    def next_position(self) -> int:
        """The position of what `next` returns; if there is none yet, at least this."""
        return self._news[0].position if self._news else self._session.stream.received + 1

    @property
    def after_next(self) -> News | None:
        """The message behind the one that `next` returns; None if there is none yet."""
        return self._news[1] if len(self._news) > 1 else None

    def done(self) -> None:
        """Release the message that `next` returned: the consumer has processed it."""
        news = self._news.popleft()
        size = size_of(news.message)
        self._kept.append((news.position, size))
        self._kept_bytes += size
        self._send_ack()

    def _send_ack(self) -> None:
        """Ack messages that the node need not keep, if they are many or none is queued."""
        while self._kept and self._kept_bytes > self._keep_bytes:
            _, size = self._kept.popleft()
            self._kept_bytes -= size
            self._released += size
        # An ack is cumulative: it ends before the first message that is kept, or in work.
        first = self._kept[0][0] if self._kept else self._news[0].position if self._news else None
        count = self._session.stream.received if first is None else first - 1
        if count > self._acked and (self._released >= ACK_EVERY_BYTES or not self._news):
            self._acked, self._released = count, 0
            self._session.send_ack(count)

    # --- the end ---

    @property
    def failure(self) -> PalioError | None:
        """The reason why the session has ended; None while it is open."""
        return self._failure

    def close(self) -> None:
        """End the session."""
        self._session.end(Closed("the session is closed"))

    def leave(self) -> None:
        """End the connection; the session can be resumed within its grace period."""
        self._session.abandon()
        self._session.end(Closed("the connection is closed"))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the connection ---

    def welcomed(self, *, resumed: bool) -> None:
        """Note that the node has authenticated the client."""
        self.resumed = resumed
        self._acked = self._session.stream.received
        if resumed:
            self.table.take_up(Subscribe(0, KEY, ""))
        if not self._welcome.done():
            self._welcome.set_result(None)

    def rejected(self, error: PalioError) -> None:
        """Note that the node refuses this client."""
        if not self._welcome.done():
            self._welcome.set_exception(_declined(error))

    # --- calls of the core (`client.Application`) ---

    def deliver(self, message: Deliver | Gaps) -> None:
        """Queue events for the consumer, which has to drop duplicates (`Application`)."""
        self._news.append(News(self._session.stream.received + 1, message))
        self._came.set()

    def lose(self, gaps: Sequence[Gap]) -> None:
        """Queue gaps for the consumer (`Application`)."""
        self.deliver(Gaps(tuple(gaps)))

    def redirected(self, urls: Sequence[str]) -> None:
        """End: the front end's client has to connect to another broker (`Application`). Its open
        publications are answered first: else it would repeat them there.
        """
        del urls
        self._is_leaving = True
        self._leave_if_answered()

    def _leave_if_answered(self) -> None:
        if self._is_leaving and not self._unanswered:
            self._session.end(Unreachable(_SHUTS_DOWN))

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """Fail: the only subscription ended, or another session took it over (`Application`)."""
        del ended
        self.ended(error)

    def ended(self, error: PalioError) -> None:
        """Fail all later requests (`Application`)."""
        self._failure = _declined(error)
        self._came.set()


class _Publication:
    """A publication that the node has not answered for (see `publications.Receipt`)."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self._refused: list[Refused] = []
        self._error: PalioError | None = None
        self._answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def refuse(self, refused: Refused) -> None:
        """Note rows that were refused (`publications.Receipt`)."""
        self._refused.append(refused)

    def fail(self, error: PalioError) -> None:
        """Note why the publication failed (`publications.Receipt`)."""
        self._error = _declined(error)

    def answer(self, level: str) -> None:
        """Complete the publication (`publications.Receipt`)."""
        if self._answered.done():
            return
        if self._error is None:
            self._answered.set_result(level)
        else:
            self._answered.set_exception(self._error)
            self._answered.exception()  # nobody may be waiting any longer

    async def receipt(self, publisher: str) -> Receipt:
        """Wait for the outcome, and return it."""
        level = await self._answered
        return Receipt(publisher, self.first, self.last, level, tuple(self._refused))


def _settle(answered: asyncio.Future[Done | Answer], outcome: Outcome) -> None:
    """Complete the future of a request with its outcome."""
    if answered.done():
        return
    if isinstance(outcome, Failed):
        answered.set_exception(Declined(outcome.failure))
    elif isinstance(outcome, PalioError):
        answered.set_exception(_declined(outcome))
        answered.exception()  # nobody may be waiting any longer
    else:
        answered.set_result(outcome)


def _declined(error: PalioError) -> PalioError:
    """Turn the node's refusal of a session into the same class as its other refusals."""
    is_refusal = is_final(error) or isinstance(error, LimitExceeded)
    return Declined(failure(error)) if is_refusal else error


def _no_jitter() -> float:
    """Return the random part of pauses between attempts: an internal client makes one attempt."""
    return 0.0
