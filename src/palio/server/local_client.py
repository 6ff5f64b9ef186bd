"""`Guest`: a front's session with the node. Fronts are ordinary clients that skip the codec.

1. The first word is `Hello` with the token that the front was shown, so the node decides what its
   principal may do; a front decides nothing.
2. Events wait here only within the node's window: `Seen` is said when the front is done with them,
   so a slow consumer is the node's to bound, and it hears of the gap.
3. With `keep_bytes`, the last of what was done is not yet said to be seen. Whoever lost its
   connection can come back with the `position` that it had reached, and the node sends the rest:
   the session is resumed as any other is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from palio.errors import Closed, PalioError, Unreachable
from palio.protocol.batches import parts
from palio.protocol.failures import class_of
from palio.protocol.limits import PROTOCOL_VERSION, SEEN_EVERY_BYTES
from palio.protocol.messages import (
    Accepted,
    Acknowledge,
    Answer,
    Ask,
    Bye,
    Deliver,
    Done,
    Failed,
    Failure,
    Gaps,
    Hello,
    Message,
    Parcel,
    Ping,
    Pong,
    Publish,
    Refused,
    Replace,
    Seen,
    Subscribe,
    Unsubscribe,
    Update,
    Welcome,
)
from palio.protocol.streams import size_of
from palio.server.turns import Pace

__all__ = ["RESUME_BYTES", "Connect", "Declined", "Guest", "Link", "News", "Receipt"]

RESUME_BYTES: Final = 1 << 20
"""How much of what was sent to a consumer can be sent again after a break: more than the buffers of
a connection hold, and well below the node's window."""

KEY: Final = 1
"""A guest has one subscription."""


class Link(Protocol):
    """A connection to the node (`palio.server.server.LocalLink`)."""

    def send(self, message: Message) -> None:
        """Hand a message to the node."""

    def close(self) -> None:
        """End the connection; the session waits for its grace."""


class Connect(Protocol):
    """Makes a link (`palio.server.server.Server.connect_local`)."""

    def __call__(
        self,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None = None,
        *,
        principal: str = "",
    ) -> Link:
        """A new link; both callbacks are called on the loop."""


class Declined(PalioError):
    """The node refused something; `kind` is the class of `palio.errors` that says why."""

    def __init__(self, failure: Failure) -> None:
        self.kind = failure.kind
        self.details = failure.details
        super().__init__(failure.message)

    @property
    def type(self) -> type[PalioError]:
        """The class itself."""
        return class_of(self.kind)


class Receipt(NamedTuple):
    """What became of a publication."""

    publisher: str
    first_seq: int
    last_seq: int
    level: str
    refused: tuple[Refused, ...] = ()
    """Rows that were not published, and why."""


class News(NamedTuple):
    """Something for the consumer, and how many messages of the session it takes with it."""

    position: int
    message: Deliver | Gaps


_Request: TypeAlias = Subscribe | Replace | Update | Unsubscribe | Ask


class Guest:
    """One session. Open it with `await Guest.open(...)`; close it with `close` or `leave`."""

    def __init__(self, *, received: int = 0, keep_bytes: int = 0) -> None:
        self.session = ""
        self.publisher = ""
        self.resumed = False
        self._received = received
        self._keep_bytes = keep_bytes
        self._link: Link | None = None
        self._welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._requests: dict[int, asyncio.Future[Done | Answer]] = {}
        self._next_id = 1
        self._next_seq = 1
        self._open: deque[_Publication] = deque()
        self._publishing = asyncio.Lock()
        self._news: deque[News] = deque()
        self._came = asyncio.Event()
        self._arrived = 0
        self._said = 0
        self._kept: deque[tuple[int, int]] = deque()
        self._kept_bytes = 0
        self._released = 0
        self._failure: PalioError | None = None

    @classmethod
    async def open(
        cls,
        connect: Connect,
        *,
        name: str,
        token: str = "",
        principal: str = "",
        session: str = "",
        received: int = 0,
        keep_bytes: int = 0,
    ) -> Guest:
        """Connect and be welcomed; `Declined` if the node does not know who this is."""
        guest = cls(received=received, keep_bytes=keep_bytes)
        guest._link = connect(guest._receive, guest._closed, principal=principal)
        hello = Hello("client", name, PROTOCOL_VERSION, token, session=session, received=received)
        guest._link.send(hello)
        try:
            welcome = await guest._welcome
        except BaseException:  # also when whoever opens it has gone
            guest.close()
            raise
        guest.session, guest.publisher = welcome.session, welcome.publisher
        guest.resumed = welcome.resumed
        return guest

    @property
    def is_open(self) -> bool:
        """Whether the session goes on."""
        return self._failure is None

    @property
    def owner(self) -> str:
        """Whose session this is: the name that the node found in the token."""
        return self.publisher.rpartition("/")[0]

    # --- requests ---

    async def subscribe(
        self, filter: str, values: Mapping[str, Any], *, durable: str = "", lease_s: float = 0.0
    ) -> None:
        """Hear what matches."""
        await self._ask(lambda id: Subscribe(id, KEY, filter, dict(values), durable, lease_s))

    async def replace(self, filter: str, values: Mapping[str, Any]) -> None:
        """Hear something else from now on, under the same identity."""
        await self._ask(lambda id: Replace(id, KEY, filter, dict(values)))

    async def update(self, values: Mapping[str, Any]) -> None:
        """Give parameters new values."""
        await self._ask(lambda id: Update(id, KEY, dict(values)))

    async def unsubscribe(self, *, forget: bool) -> None:
        """Hear nothing more; `forget` ends a durable subscription."""
        await self._ask(lambda id: Unsubscribe(id, KEY, forget))

    async def ask(self, what: str, about: Any = None) -> Any:
        """The answer to a question about the broker."""
        answer = await self._ask(lambda id: Ask(id, what, about))
        return answer.data if isinstance(answer, Answer) else None

    def acknowledge(self, entry: int) -> None:
        """A durable subscription has dealt with everything up to an entry."""
        self._send(Acknowledge(KEY, entry))

    async def publish(self, batch: pa.RecordBatch, *, durable: bool = False) -> Receipt:
        """Publish events of one shape; return when the node holds them, `durable`: on its disk."""
        (receipt,) = await self.publish_all([batch], durable=durable)
        return receipt

    async def publish_all(
        self, batches: Iterable[pa.RecordBatch], *, durable: bool = False
    ) -> list[Receipt]:
        """Publish batches under numbers that follow each other, whoever else publishes meanwhile;
        others get their turn of the loop in between.
        """
        pace = Pace()
        async with self._publishing:
            publications = [await self._publish(batch, pace, durable=durable) for batch in batches]
        return [await self._receipt(each) for each in publications]

    async def _publish(self, batch: pa.RecordBatch, pace: Pace, *, durable: bool) -> _Publication:
        """Send a batch, in parts if it is large; it is answered later, as one."""
        self._check()
        first, last = self._next_seq, self._next_seq + batch.num_rows - 1
        self._next_seq = last + 1
        accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        publication = _Publication(first, last, durable, accepted, [])
        self._open.append(publication)
        for part in parts(batch):
            self._send(Publish(Parcel.of(self.publisher, part), first, durable))
            first += part.num_rows
            await pace()
        return publication

    async def _receipt(self, publication: _Publication) -> Receipt:
        level = await publication.accepted
        refused = tuple(publication.refused)
        return Receipt(self.publisher, publication.first, publication.last, level, refused)

    async def _ask(self, request: Callable[[int], _Request]) -> Done | Answer:
        self._check()
        number, self._next_id = self._next_id, self._next_id + 1
        answered: asyncio.Future[Done | Answer] = asyncio.get_running_loop().create_future()
        self._requests[number] = answered
        self._send(request(number))
        return await answered

    # --- news ---

    @property
    def has_news(self) -> bool:
        """Whether `next` returns at once."""
        return bool(self._news)

    async def next(self) -> News:
        """The next events or gaps; `Closed` when there will be none."""
        while not self._news:
            self._check()
            self._came.clear()
            await self._came.wait()
        return self._news[0]

    def done(self) -> None:
        """The consumer is done with what `next` gave last; it may be said to be seen."""
        news = self._news.popleft()
        size = size_of(news.message)
        self._kept.append((news.position, size))
        self._kept_bytes += size
        self._say()

    def _say(self) -> None:
        """Tell the node what it need not keep, when that is much or nothing else waits."""
        while self._kept and self._kept_bytes > self._keep_bytes:
            _, size = self._kept.popleft()
            self._kept_bytes -= size
            self._released += size
        first = self._kept[0][0] if self._kept else self._news[0].position if self._news else None
        seen = self._arrived if first is None else first - 1
        if seen > self._said and (self._released >= SEEN_EVERY_BYTES or not self._news):
            self._said, self._released = seen, 0
            self._send(Seen(seen))

    # --- the end ---

    def close(self) -> None:
        """End the session."""
        if self._failure is None:
            self._send(Bye("closed"))
            self._end(Closed("the session is closed"))

    def leave(self) -> None:
        """End the connection; for its grace the session can be resumed."""
        if self._failure is None:
            self._end(Closed("the connection is closed"))

    def _end(self, failure: PalioError) -> None:
        self._closed_with(failure)
        if self._link is not None:
            self._link.close()

    def _closed(self, reason: str) -> None:
        self._closed_with(Unreachable(f"the broker closed the session: {reason}"))

    def _closed_with(self, failure: PalioError) -> None:
        if self._failure is None:
            self._failure = failure
            waiting: list[asyncio.Future[Any]] = [
                self._welcome,
                *self._requests.values(),
                *(each.accepted for each in self._open),
            ]
            for future in waiting:
                if not future.done():
                    future.set_exception(failure)
                    future.exception()  # nobody may be waiting any longer
            self._came.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # --- what the node says ---

    def _send(self, message: Message) -> None:
        if self._failure is None and self._link is not None:
            self._link.send(message)

    def _receive(self, message: Message) -> None:
        match message:
            case Welcome():
                if not self._welcome.done():
                    self._arrived = self._said = self._received if message.resumed else 0
                    self._welcome.set_result(message)
            case Bye(code, reason):
                self._closed_with(Declined(Failure(code, reason or code)))
            case Ping():
                self._send(Pong())
            case Pong() | Seen():
                pass
            case Deliver() | Gaps():
                self._arrived += 1
                self._news.append(News(self._arrived, message))
                self._came.set()
            case _:
                self._arrived += 1
                self._reply(message)
                self._say()

    def _reply(self, message: Message) -> None:
        match message:
            case Done(id) | Answer(id):
                self._answered(id, message)
            case Failed(id, failure):
                answered = self._requests.pop(id, None)
                if answered is not None and not answered.done():
                    answered.set_exception(Declined(failure))
            case Accepted(seq, level):
                self._accepted(seq, level)
            case Refused(first, last, _):
                for publication in self._open:
                    if publication.first <= last and first <= publication.last:
                        publication.refused.append(message)
            case _:
                pass

    def _answered(self, id: int, message: Done | Answer) -> None:
        answered = self._requests.pop(id, None)
        if answered is not None and not answered.done():
            answered.set_result(message)

    def _accepted(self, seq: int, level: str) -> None:
        """`durable` answers for all up to a number, `memory` for those that asked no more."""
        still: deque[_Publication] = deque()
        for publication in self._open:
            if publication.last > seq or (publication.durable and level != "durable"):
                still.append(publication)
            elif not publication.accepted.done():
                publication.accepted.set_result("durable" if publication.durable else "memory")
        self._open = still


class _Publication(NamedTuple):
    """A publication that the node has not answered for."""

    first: int
    last: int
    durable: bool
    accepted: asyncio.Future[str]
    refused: list[Refused]
