"""`Server`: the ports of one node's `Host`: it owns the loop's side of all and decides nothing.

```
  Connection, LocalLink --message--> Server --> Host --> Node
        ^                                        |
        +-------------------- send, close -------+---- append ----> journal --answered--> Host
        GroupSockets <--------- cast, tune ------+ <-- datagrams -- GroupSockets
```

1. The host and its node are called on the loop's thread only. A front that answers a message at
   once does not get in between, since messages to fronts wait until the effects are done.
2. An `Append` goes to the journal's writer, which answers on its own thread; the answer is handed
   to the node on the loop's.
3. After each turn of the loop the connections that have something to write are flushed, those that
   had more than fits in a turn continue (`scheduler`).
4. How late the loop is, and what held it, is measured (`loop_lag`).

Fronts, as HTTP is one, are clients that need no socket: see `Server.connect_local`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from palio.errors import IllegalMessage, LimitExceeded
from palio.multicast.datagrams import Datagram
from palio.node.effects import Moment, Report
from palio.node.host import Host, LinkPort, Machine
from palio.node.readiness import DRAINING, Readiness
from palio.protocol.limits import ANSWER_S, GREETING_S, MAX_BATCH_ROWS
from palio.protocol.messages import Bye, EventMessage, Message
from palio.server.connection_limiter import ConnectionLimiter
from palio.server.counters import Traffic
from palio.server.dialing import Dialer, Dialers
from palio.server.journal.journal import Diskless, Journal
from palio.server.limits import GOODBYE_S, LEAVE_S, MAX_CONNECTIONS
from palio.server.local_link import FrontDelivery, LocalLink
from palio.server.loop_lag import LoopLagMonitor
from palio.server.multicast.sockets import GroupSockets
from palio.server.scheduler import WRITABLE, CompletionQueue, LoopScheduler
from palio.server.transport import Connection

logger: Final = logging.getLogger("palio.server")


def duplicate(listening: socket.socket) -> socket.socket:
    """Make another socket of a listening one, which outlives the closing of that."""
    return socket.socket(fileno=os.dup(listening.fileno()))


class Server:
    """One broker: a node, its journal, its connections, its timer."""

    def __init__(
        self,
        node: Machine,
        journal: Journal | Diskless,
        *,
        multicast: GroupSockets | None = None,
        dialling: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        greeting_s: float = GREETING_S,
        rows_at_once: Callable[[], int] = lambda: MAX_BATCH_ROWS,
    ) -> None:
        self.node = node
        self.rows_at_once = rows_at_once
        self.journal = journal
        self.multicast = multicast
        self.traffic = Traffic()
        self.scheduler = LoopScheduler()
        self.loop_lag = LoopLagMonitor()
        self._loop = asyncio.get_running_loop()
        self._dialers = Dialers(
            self._loop, self._dialled_connection, self._unreachable, self.traffic, dialling
        )
        self.host = Host(node, journal, self, self._report, multicast, self._dialers)
        self._completions = CompletionQueue(self.scheduler, self._answer)
        self.limiter = ConnectionLimiter(max_connections, self.traffic)
        """Of all sockets, those of the fronts among them."""
        self._greeting_s = greeting_s
        self._open: set[Connection] = set()
        self._empty = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: list[asyncio.Server] = []
        self._closing = False

    # --- incarnation ---

    def start(self) -> None:
        """Begin: from now on the node is called."""

        def on_loop(call: Callable[..., None], *arguments: object) -> None:
            try:
                self._loop.call_soon_threadsafe(call, *arguments)
            except RuntimeError:
                logger.debug("journal_answer_late")

        self.journal.start(
            lambda tickets: on_loop(self._completions.add, [(ticket, None) for ticket in tickets]),
            lambda ticket, reason: on_loop(self._completions.add, [(ticket, reason)]),
            lambda: on_loop(self._completions.add, [WRITABLE]),
        )
        if self.multicast is not None:
            self.multicast.start(self)
        self.host.start()
        self.loop_lag.start()

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept connections; the address and the port, which is a free one for port 0."""
        listener = await self._listener(tls, host=host, port=port)
        self._listeners.append(listener)
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    async def _listener(self, tls: ssl.SSLContext | None, **where: Any) -> asyncio.Server:
        return await self._loop.create_server(
            self._new_connection,
            **where,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else self._greeting_s,
            backlog=1024,
        )

    async def renew(
        self,
        accepting: ssl.SSLContext | None,
        dialling: ssl.SSLContext | None,
        *,
        max_connections: int,
        greeting_s: float,
    ) -> None:
        """Take other certificates and limits for new connections. Sockets keep listening: one that
        waits to be accepted is not lost, and none that is open notices.
        """
        sockets = [duplicate(each) for listener in self._listeners for each in listener.sockets]
        self._greeting_s = greeting_s
        self.limiter.most = max_connections
        self._dialers.renew(dialling)
        old = self._listeners
        self._listeners = [await self._listener(accepting, sock=each) for each in sockets]
        for listener in old:
            listener.close()

    def dial(self, url: str) -> Dialer:
        """Connect to another broker, and again whenever the connection is lost."""
        return self._dialers.keep(url)

    def connect_local(
        self,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None = None,
    ) -> LocalLink:
        """Connect a front to the node, to which it presents itself by `Hello`; see `LocalLink`."""
        link = LocalLink(self, self.host.new_link(), on_message, on_close)
        if self._closing:
            link.end.close("the server is stopping")
        elif self.node.is_leaving:
            link.end.close("the broker is about to go; ask another one")
        else:
            self.host.accept(link.number, link.end)
        return link

    async def flush(self) -> None:
        """Return when the journal has answered all so far, and the node has the answers."""
        await asyncio.to_thread(self.journal.flush)
        await asyncio.sleep(0)  # what it answered reaches the node and its publishers
        while not self._completions.is_empty:  # noqa: ASYNC110  # emptied in other turns of this loop
            await asyncio.sleep(0)

    async def close(self, *, patience_s: float = GOODBYE_S) -> None:
        """Stop: accept no connection, let routes avoid this broker, flush, close the sessions, end.

        May be called once.
        """
        for listener in self._listeners:
            listener.close()
        await self._step_aside()
        self._closing = True
        self._dialers.stop()
        await self.flush()
        self.host.close("the server is stopping")
        if self.multicast is not None:
            self.multicast.close()
        self.scheduler.take()
        try:
            async with asyncio.timeout(patience_s):
                while self._open:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            logger.warning("connections_cut", extra={"details": {"count": len(self._open)}})
        await self.stop()

    async def _step_aside(self) -> None:
        if not self.links:
            return  # there is nobody to move
        self.host.leave()
        try:
            async with asyncio.timeout(LEAVE_S):
                while not self.host.machine.is_free_to_go:
                    self.scheduler.taken.clear()
                    await self.scheduler.taken.wait()
        except TimeoutError:
            logger.warning("handoff_timeout")

    async def stop(self) -> None:
        """Cut every connection and close the journal, which loses nothing that it answered for."""
        self._closing = True
        for listener in self._listeners:
            listener.close()
        self._dialers.stop()
        self.loop_lag.stop()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.abort()
        for link in self.links.values():
            if isinstance(link, FrontDelivery):
                link.close("the server is stopping")
        self.host.stop()
        if self.multicast is not None:
            self.multicast.close()
        await asyncio.to_thread(self.journal.close)

    def readiness(self) -> Readiness:
        """Return what keeps the broker from serving clients, and warnings."""
        return Readiness((DRAINING,)) if self._closing else self.node.readiness()

    @property
    def connections(self) -> int:
        """Sockets that are open, at all ports, greeted or not."""
        return self.limiter.taken

    @property
    def links(self) -> dict[int, LinkPort]:
        """The links that the node knows, by number."""
        return self.host.links

    # --- `Owner`: events of connections ---

    def opened(self, connection: Connection) -> None:
        """Admit a connection to the node, or turn it away (`transport.Owner`)."""
        self._open.add(connection)
        may_stay = connection.slot.hold(connection.make_room)
        if self._closing or not may_stay:
            self.traffic.refused += may_stay  # one that lost its slot was counted as it did
            reason = (
                "the server is stopping"
                if self._closing
                else f"{self.limiter.most} connections are the most (limits.max_connections)"
            )
            connection.close(last=Bye("LimitExceeded", reason))
            return
        if connection.dialled:
            self.traffic.dialled += 1
            self.host.dial(connection.number, connection, connection.peer, connection.url)
        else:
            self.traffic.accepted += 1
            self.host.accept(connection.number, connection, connection.principal)

    def welcomed(self, connection: Connection) -> bool:
        """Charge a socket to its principal (`transport.Owner`)."""
        principal = None if connection.is_broker else self.node.principal(connection.number)
        try:
            connection.slot.shown(principal)
        except LimitExceeded as error:
            connection.close(last=Bye("LimitExceeded", str(error)))
            return False
        return True

    def arrived(
        self, connection: Connection | LocalLink, message: Message, *, up_to: int | None = None
    ) -> None:
        """Hand a message to the node (`transport.Owner`)."""
        if isinstance(message, EventMessage) and up_to is None:
            self.traffic.events_in += len(message.parcel)
        started = time.perf_counter()
        self.host.receive(connection.number, message, up_to=up_to)
        self._took(type(message).__name__, started)

    def receive_datagram(self, datagram: Datagram) -> None:
        """Hand a datagram to the node (`multicast.sockets.Owner`)."""
        if datagram.parcel is not None:
            self.traffic.events_in += len(datagram.parcel)
        started = time.perf_counter()
        self.host.receive_datagram(datagram)
        self._took("Datagram", started)

    def _took(self, kind: str, started: float) -> None:
        took = time.perf_counter() - started
        self.traffic.node_s += took
        if took > self.loop_lag.longest_s:
            self.loop_lag.held_by(kind, took)
        self.scheduler.schedule()

    def illegal(self, connection: Connection, error: IllegalMessage) -> None:
        """Close a connection that broke the protocol (`transport.Owner`)."""
        self.host.illegal(connection.number, error)
        connection.close(last=Bye(type(error).__name__, error.reason))

    def gone(self, connection: Connection, reason: str) -> None:
        """Forget a connection that is down (`transport.Owner`)."""
        self._open.discard(connection)
        connection.slot.leave()
        if not self._open:
            self._empty.set()
        if connection.is_broker:
            self._dialers.try_now()
        if not self._closing and self.host.lost(connection.number):
            logger.debug("connection_lost", extra={"details": {"reason": reason}})

    # --- `ClockPort` ---

    def moment(self) -> Moment:
        """Now, by both clocks."""
        return Moment(self._loop.time(), time.time_ns() // 1000)

    def wake_at(self, at: float) -> None:
        """Set the node's one timer (`ClockPort`)."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._tick, at)

    def _tick(self, at: float) -> None:
        self.host.tick(at)
        self.scheduler.taken.set()

    # --- journal and log ---

    def _answer(self, ticket: int, reason: str | None) -> None:
        if (ticket, reason) == WRITABLE:
            self.host.writable()
        else:
            self.host.answered(ticket, reason)

    @staticmethod
    def _report(report: Report) -> None:
        level = logging.getLevelNamesMapping()[report.level.upper()]
        logging.getLogger("palio.node").log(level, report.event, extra={"details": report.details})

    # --- fronts and dialers ---

    def from_front(self, link: LocalLink, message: Message, *, up_to: int | None = None) -> None:
        """Hand a front's message to the node (`local_link.Owner`)."""
        self.traffic.messages_in += up_to is None
        self.arrived(link, message, up_to=up_to)

    def front_closed(self, number: int) -> None:
        """Drop the link of a front that closed it, or failed (`local_link.Owner`)."""
        if not self._closing:
            self.host.lost(number)

    def _dialled_connection(self, dialer: Dialer) -> Connection:
        connection = self._new_connection(dialled=True)
        connection.peer, connection.url = dialer.peer, dialer.url
        return connection

    def _unreachable(self, url: str, reason: str) -> None:
        if not self._closing:
            self.host.unreachable(url, reason)

    def _new_connection(self, *, dialled: bool = False) -> Connection:
        # A broker that this one dials may be busy; strangers are to be quick.
        greeting_s = max(self._greeting_s, ANSWER_S) if dialled else self._greeting_s
        slot = self.limiter.take(greeting_s)
        if dialled:
            slot.shown(None)
        return Connection(self, self.host.new_link(), slot, dialled=dialled, greeting_s=greeting_s)
