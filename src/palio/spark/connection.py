"""`Connection`: a blocking client of a broker, for processes in which Spark runs sources and sinks.

Spark calls a source or a sink from threads of its own, now and then, and kills it when it likes. So
this is an ordinary session of a client, on an event loop in a thread of its own: a connection that
breaks is dialled again, requests that were not answered are asked again, durable publications go
again under their numbers, and entries that were not acknowledged come again. What must survive the
process is not kept here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from palio.client.blocking import Portal
from palio.client.outbox import Outbox
from palio.client.session import CLOSE_S, Session
from palio.client.transport import tcp
from palio.client.upstream import answers
from palio.errors import NoAnswer, PalioError
from palio.model.printing import shown_without
from palio.protocol.addresses import parse_address
from palio.protocol.batches import parts
from palio.protocol.client import Application, ClientCore
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Answer, Deliver, Gap, Gaps, Hello, Subscribe
from palio.protocol.requests import Request

TIMEOUT_S: Final = 60.0
"""Seconds that a broker may take to be reached, to answer a request, to accept a publication."""

Result = TypeVar("Result")


class BrokerLogin(NamedTuple):
    """The address of a broker, the client's name and token, and the authorities to trust."""

    url: str
    name: str = "spark"
    token: str = ""
    ca: str = ""
    """The file of the authorities to trust; empty for those of the system."""

    def __repr__(self) -> str:
        return shown_without(self, "token")

    @property
    def tls(self) -> str | None:
        """The authorities to trust for an address of TLS, unless they are the system's."""
        return self.ca if self.ca and parse_address(self.url).is_secure else None


class Connection(Application):
    """A session with a broker, for one durable subscription or for publications.

    `incarnation` is the second half of the name that publications are numbered under.
    """

    def __init__(
        self, login: BrokerLogin, incarnation: str = "", *, timeout_s: float = TIMEOUT_S
    ) -> None:
        parse_address(login.url)
        self.url = login.url
        self.timeout_s = timeout_s
        self._received: SimpleQueue[Deliver | Gaps | PalioError] = SimpleQueue()
        self._core = ClientCore(self)
        hello = Hello("client", login.name, PROTOCOL_VERSION, login.token, incarnation)
        self._session = Session(self._core, tcp(login.tls), [login.url], hello, random.Random())
        self._core.session = self._session.core
        self._outbox = Outbox(self._core.publications, self._core.may_publish, self._session.flush)
        self._portal = Portal("palio-spark")
        try:
            self._portal.call(self._session.open(retry_s=timeout_s))
        except BaseException:
            self._portal.close()
            raise

    @property
    def broker(self) -> str:
        """The broker's own name for itself."""
        return self._session.core.broker

    @property
    def publisher(self) -> str:
        """The name that the events published here bear."""
        return self._session.core.publisher

    def ask(self, request: Request) -> Any:
        """Send a request; return the data of its answer, or raise its refusal."""
        return self._call(self._answered(request))

    async def _answered(self, request: Request) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._core.table.ask(request, answers(answered))
        async with asyncio.timeout(self.timeout_s):
            answer = await answered
        return answer.data if isinstance(answer, Answer) else None

    def receive(self, timeout_s: float) -> Deliver | Gaps | None:
        """Return the next entry of the durable subscription, or the next gaps; None if neither
        arrives in time.
        """
        try:
            received = (
                self._received.get(timeout=timeout_s)
                if timeout_s > 0
                else self._received.get_nowait()
            )
        except Empty:
            return None
        if isinstance(received, PalioError):
            self._received.put(received)  # for the next call too
            raise received
        return received

    def acknowledge(self, key: int, entry: int) -> None:
        """Let the broker forget the entries of a durable subscription up to one."""
        self._call(self._acknowledged(key, entry))

    async def _acknowledged(self, key: int, entry: int) -> None:
        self._core.table.acknowledge(key, entry)

    def publish(self, batches: Iterable[pa.RecordBatch], first: int) -> None:
        """Publish events durably under the numbers from `first` on; return once all are accepted.

        `Unreachable` if the broker accepts nothing for `timeout_s` seconds.
        """
        self._call(self._published([part for batch in batches for part in parts(batch)], first))

    async def _published(self, batches: Sequence[pa.RecordBatch], first: int) -> None:
        self._core.publications.next = first
        receipts = [self._outbox.offer(batch, durable=True) for batch in batches]
        try:
            for receipt in receipts:
                async with asyncio.timeout(self.timeout_s):
                    await receipt
        finally:
            for receipt in receipts:
                if not receipt.cancel() and not receipt.cancelled():
                    receipt.exception()  # so that nobody misses it: the first is raised

    def close(self) -> None:
        """Leave the broker."""
        if self._portal.is_open:
            self._portal.call(self._closed())
            self._portal.close()

    async def _closed(self) -> None:
        self._core.end()
        await self._session.closed(CLOSE_S)

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._portal.call(work)
        except TimeoutError:
            raise NoAnswer(f"{self.url} did not answer within {self.timeout_s:g} s") from None

    # --- messages from the broker (`client.Application`) ---

    def deliver_durable(self, message: Deliver) -> None:
        """An entry; what was published for those who were here could not be read again."""
        if message.entry:
            self._received.put(message)

    def lose(self, gaps: Sequence[Gap]) -> None:
        """Events that are lost."""
        self._received.put(Gaps(tuple(gaps)))

    def withdrawn(self, ended: Subscribe, error: PalioError) -> None:
        """The subscription is over."""
        del ended
        self._received.put(error)

    def flow(self) -> None:
        """Publish pending events, as the window may allow it."""
        self._outbox.flow()

    def ended(self, error: PalioError) -> None:
        """There will be no further connection."""
        self._outbox.end(error)
        self._received.put(error)
