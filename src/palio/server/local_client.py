"""`InternalClient`: a front's session with the node, as of any client but without codec.

It is a shell round `ClientCore` without a timer: nobody is silent within one process.

1. The first word is `Hello` with the token that the front was shown, so the node decides what its
   principal may do; a front decides nothing.
2. Events wait here only within the node's window: `StreamAck` is sent when the front is done with
them,
   so the node bounds a slow consumer, and sends it the gap.
3. With `keep_bytes`, `StreamAck` for the last of what was done is held back. A consumer that lost
its
   connection can come back with the `position` that it had reached, and the node sends the rest:
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
from palio.protocol.limits import PROTOCOL_VERSION, SEEN_EVERY_BYTES
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
"""How much of what was sent to a consumer can be sent again after a break: more than the buffers of
a connection hold, and well below the node's window."""

KEY: Final = 1
"""A client has one subscription at most, under this key."""

_GOES: Final = "the broker is about to go; ask another one"

NOW: Final = 0.0
"""A client's session has no timer, so that it does not matter what time it is."""


class Link(Protocol):
    """A connection to the node (`palio.server.local_link.LocalLink`)."""

    def send(self, message: Message) -> None:
        """Hand a message to the node."""

    def close(self) -> None:
        """End the connection; the session waits for its grace."""


Connect: TypeAlias = Callable[[Callable[[Message], None], Callable[[str], None]], Link]
"""Makes a link (`palio.server.server.Server.connect_local`); both callbacks are called on the loop,
with each message and with why it ends."""


class Declined(PalioError):
    """The node refused something; `kind` names the class of `palio.errors`."""

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
        return sum(each.last_seq - each.first_seq + 1 for each in self.refused)


class News(NamedTuple):
    """Something for the consumer, and how many messages of the session it takes with it."""

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
        """Pass the node's welcome on (`Connector`)."""
        self._client.welcomed(resumed=resumed)

    def unopened(self, error: PalioError, *, again: bool) -> None:
        """Pass the node's refusal on (`Connector`)."""
        del again
        self._client.turned_away(error)


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
            _no_chance,
            returns=False,
            paced=self._say,
        )
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publishing = asyncio.Lock()
        self._news: deque[News] = deque()
        self._came = asyncio.Event()
        self._said = 0
        self._kept: deque[tuple[int, int]] = deque()
        self._kept_bytes = 0
        self._released = 0
        self._failure: PalioError | None = None
        self._under_way = 0
        """Publications that are not answered."""
        self._is_to_go = False

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
        """Connect and be welcomed; `Declined` if the node does not know who this is."""
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
        """The name that its events bear."""
        return self._session.publisher

    @property
    def is_open(self) -> bool:
        """Return whether the session stands."""
        return self._failure is None

    # --- requests ---

    async def ask(self, request: Request) -> Any:
        """Send a request; the data of its answer, if it has any."""
        self._check()
        answered: asyncio.Future[Done | Answer] = asyncio.get_running_loop().create_future()
        self.table.ask(request, partial(_settle, answered))
        answer = await answered
        return answer.data if isinstance(answer, Answer) else None

    def unadvertise(self, key: int) -> asyncio.Future[Done | Answer]:
        """Announce it no longer."""
        answered: asyncio.Future[Done | Answer] = asyncio.get_running_loop().create_future()
        if not self.table.unadvertise(key, partial(_settle, answered)):
            answered.set_result(DONE)
        return answered

    async def publish_all(
        self, batches: Iterable[pa.RecordBatch], *, durable: StoredAt = False
    ) -> list[Receipt]:
        """Publish batches under consecutive numbers, whatever others publish meanwhile;
        others get their turn of the loop in between.
        """
        if self._is_to_go:
            raise Unreachable(_GOES)
        pace = Pace()
        self._under_way += 1
        try:
            async with self._publishing:
                published = [await self._publish(batch, pace, durable=durable) for batch in batches]
            return [await each.receipt(self.publisher) for each in published]
        finally:
            self._under_way -= 1
            self._go()

    async def _publish(
        self, batch: pa.RecordBatch, pace: Pace, *, durable: StoredAt
    ) -> _Publication:
        """Send a batch, in parts if it is large; it is answered later, as one."""
        self._check()
        first = self._core.publications.next
        publication = _Publication(first, first + batch.num_rows - 1)
        sent = list(parts(batch))
        for place, part in enumerate(sent, start=1):
            parcel, is_last = Parcel.of(self.publisher, part), place == len(sent)
            self._core.publish(parcel, [publication], durable=durable, is_last=is_last)
            await pace()
        if not sent:  # no message of an empty batch would bring an answer
            publication.answer(LEVELS[durable])
        return publication

    # --- news ---

    @property
    def has_news(self) -> bool:
        """Return whether `next` returns at once."""
        return bool(self._news)

    async def next(self) -> News:
        """The next events or gaps; `Closed` when there will be none."""
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
        """Release what `next` gave last: the consumer is done with it."""
        news = self._news.popleft()
        size = size_of(news.message)
        self._kept.append((news.position, size))
        self._kept_bytes += size
        self._say()

    def _say(self) -> None:
        """Acknowledge what the node need not keep, when that is much or nothing else waits."""
        while self._kept and self._kept_bytes > self._keep_bytes:
            _, size = self._kept.popleft()
            self._kept_bytes -= size
            self._released += size
        # `StreamAck` is cumulative: it ends before the first message that is kept, or in work.
        first = self._kept[0][0] if self._kept else self._news[0].position if self._news else None
        seen = self._session.stream.received if first is None else first - 1
        if seen > self._said and (self._released >= SEEN_EVERY_BYTES or not self._news):
            self._said, self._released = seen, 0
            self._session.say_seen(seen)

    # --- the end ---

    def close(self) -> None:
        """End the session."""
        self._session.end(Closed("the session is closed"))

    def leave(self) -> None:
        """End the connection; for its grace the session can be resumed."""
        self._session.abandon()
        self._session.end(Closed("the connection is closed"))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- the connection ---

    def welcomed(self, *, resumed: bool) -> None:
        """The node knows who this is."""
        self.resumed = resumed
        self._said = self._session.stream.received
        if resumed:
            self.table.take_up(Subscribe(0, KEY, ""))
        if not self._welcome.done():
            self._welcome.set_result(None)

    def turned_away(self, error: PalioError) -> None:
        """The node does not let this client in."""
        if not self._welcome.done():
            self._welcome.set_exception(_declined(error))

    # --- calls of the core (`client.Application`) ---

    def deliver(self, message: Deliver | Gaps) -> None:
        """Queue events for the consumer, who has to sort out duplicates (`Application`)."""
        self._news.append(News(self._session.stream.received + 1, message))
        self._came.set()

    def lose(self, gaps: Sequence[Gap]) -> None:
        """Queue gaps for the consumer (`Application`)."""
        self.deliver(Gaps(tuple(gaps)))

    def redirected(self, urls: Sequence[str]) -> None:
        """End: the front's client has to connect to another broker (`Application`). What it is
        publishing is answered first: it would be published there again.
        """
        del urls
        self._is_to_go = True
        self._go()

    def _go(self) -> None:
        if self._is_to_go and not self._under_way:
            self._session.end(Unreachable(_GOES))

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """Fail: the only subscription ended, or another session took it over (`Application`)."""
        del ended
        self.ended(error)

    def ended(self, error: PalioError) -> None:
        """Fail what is asked from now on (`Application`)."""
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
    is_told = is_final(error) or isinstance(error, LimitExceeded)
    return Declined(failure(error)) if is_told else error


def _no_chance() -> float:
    """Pauses between attempts are left to chance; a client makes one attempt."""
    return 0.0
