"""`Server`: the shell round one node. It owns the loop's side of everything and decides nothing.

```
  Connection, LocalLink --message--> Server --(link, message, now)--> Node
        ^                              |  <---- effects, in order ----
        +------------- Send, Close ----+---- Append ----> journal --stored--> Node
```

1. The node is called on the loop's thread only, one call at a time: what a call answers is carried
   out before the next one. A front that answers a message at once does not get in between, since
   messages to fronts wait until the effects are done.
2. An `Append` goes to the journal's writer, which answers on its own thread; the answer is handed
   to the node on the loop's.
3. After each turn of the loop the connections that have something to write are flushed, those that
   had more to say than fits in a turn go on (`turns`), and the timer is set to `wake_at`.
4. How late the loop is, and what held it, is measured (`pulse`).

Fronts (HTTP, Flight) are clients that need no socket: see `Server.connect_local`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, Protocol

from palio.errors import IllegalMessage
from palio.node.effects import Append, Close, Effect, Moment, Report, Send
from palio.protocol.limits import GREETING_S
from palio.protocol.messages import Bye, EventMessage, Message
from palio.server.counters import Traffic
from palio.server.dialing import Dialer
from palio.server.journal.answers import Answer, Answers
from palio.server.limits import DRAIN_S, MAX_CONNECTIONS
from palio.server.places import Places
from palio.server.pulse import Pulse
from palio.server.transport import Connection
from palio.server.turns import Turns, Waiting

__all__ = ["Journaling", "LocalLink", "Machine", "Server"]

logger: Final = logging.getLogger("palio.server")

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Machine(Protocol):
    """A node, as its shell sees it (`palio.node.node.Node`; docs/concepts/node.md)."""

    @property
    def name(self) -> str:
        """The broker's name."""

    @property
    def wake_at(self) -> float | None:
        """When it next wants `tick`."""

    def start(self, at: Moment) -> Sequence[Effect]:
        """Once, before anything else."""

    def accept(self, link: int, at: Moment, principal: str = "") -> Sequence[Effect]:
        """Someone connected."""

    def dial(self, link: int, at: Moment, peer: str = "", principal: str = "") -> Sequence[Effect]:
        """We connected to a broker; `peer` is its name, if it answered there before."""

    def receive(self, link: int, message: Message, at: Moment) -> Sequence[Effect]:
        """A message came."""

    def illegal(self, link: int, error: IllegalMessage, at: Moment) -> Sequence[Effect]:
        """Bytes came that are no message."""

    def lost(self, link: int, at: Moment) -> Sequence[Effect]:
        """A connection broke."""

    def stored(self, ticket: int, at: Moment) -> Sequence[Effect]:
        """An `Append` is on the disk."""

    def failed(self, ticket: int, reason: str, at: Moment) -> Sequence[Effect]:
        """An `Append` could not be written; nothing of it was."""

    def tick(self, at: Moment) -> Sequence[Effect]:
        """It is `wake_at` or later."""

    def drain(self, at: Moment) -> Sequence[Effect]:
        """Say goodbye to everybody."""

    def status(self) -> dict[str, Any]:
        """What people and metrics want to know."""


class Journaling(Protocol):
    """What writes `Append`s (`palio.server.journal.journal.Journal`)."""

    def start(
        self, stored: Callable[[list[int]], None], failed: Callable[[int, str], None]
    ) -> None:
        """Begin; both are called from another thread."""

    def append(self, append: Append) -> None:
        """Write soon, in order."""

    def flush(self) -> None:
        """Return when all before is written and answered for. Blocks: call it in a thread."""

    def close(self) -> None:
        """Write what waits, and close the file. Blocks."""


class LocalLink:
    """A connection to the node without a socket: messages go in and out as they are.

    For fronts. To the node it is a connection like any other: first `send(Hello(...))`, then wait
    for `Welcome`; count messages with a `palio.protocol.streams.Stream` and say `Seen`, or the
    window closes. All of it on the loop of the server; from another thread, through
    `loop.call_soon_threadsafe`.

    `on_message` is called once for each message, never while `send` or another `on_message` runs,
    so it may itself `send`. `on_close(reason)` is called once, when the node closed the link, the
    server stopped, or `on_message` raised; not after `close`.
    """

    __slots__ = ("_closed", "_left", "_on_close", "_on_message", "_out", "_server", "number")

    def __init__(
        self,
        server: Server,
        number: int,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None,
    ) -> None:
        self.number = number
        self._server = server
        self._on_message = on_message
        self._on_close = on_close
        self._out: list[Message] = []
        self._closed: str | None = None
        self._left = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed is not None

    def send(self, message: Message) -> None:
        """Hand a message to the node. After the link was closed, nothing."""
        if self._closed is None:
            self._server._from_front(self, message)

    def close(self) -> None:
        """End the connection; the node is told that it broke. May be called twice."""
        if self._closed is None:
            self._closed = "closed"
            self._left = True
            self._on_close = None
            self._out.clear()
            self._server._front_left(self)

    def _deliver(self, message: Message) -> None:
        if not self._out:
            self._server._mark(self)
        self._out.append(message)

    def _shut(self, reason: str) -> None:
        """The server's side of closing: what was sent before still arrives."""
        if self._closed is None:
            self._closed = reason
            self._server._mark(self)

    def flush(self) -> None:
        """Hand over what the node has sent. Called by the server at the end of a turn."""
        messages, self._out = self._out, []
        try:
            for message in messages:
                if self._left:
                    return
                self._on_message(message)
        except Exception:
            logger.exception("a front failed on a message; its link is closed")
            if self._closed is None:
                self._closed = "the front failed"
                self._server._front_left(self)
        if self._closed is not None and self._on_close is not None:
            tell, self._on_close = self._on_close, None
            tell(self._closed)


class Server:
    """One broker: a node, its journal, its connections, its timer."""

    def __init__(
        self,
        node: Machine,
        journal: Journaling,
        *,
        max_connections: int = MAX_CONNECTIONS,
        greeting_s: float = GREETING_S,
    ) -> None:
        self.node = node
        self.journal = journal
        self.traffic = Traffic()
        self.turns = Turns()
        self.pulse = Pulse()
        self._answers = Answers(self.turns, self._answered, self.behind)
        self.links: dict[int, Connection | LocalLink] = {}
        """Those that the node knows, by number."""
        self.dialers: list[Dialer] = []
        self.places = Places(max_connections)
        """Of all sockets, those of the fronts among them."""
        self._greeting_s = greeting_s
        self._numbers = count(1)
        self._open: set[Connection] = set()
        self._empty = asyncio.Event()
        self._dirty: deque[Connection | LocalLink] = deque()
        self._turn_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._loop = asyncio.get_running_loop()
        self._listeners: list[asyncio.Server] = []
        self._draining = False

    # --- life ---

    def start(self) -> None:
        """Begin: from now on the node is called."""

        def on_loop(call: Callable[..., None], *arguments: object) -> None:
            try:
                self._loop.call_soon_threadsafe(call, *arguments)
            except RuntimeError:
                logger.debug("the journal answered after the loop had ended")

        self.journal.start(
            lambda tickets: on_loop(self._answers.add, [(each, None) for each in tickets]),
            lambda ticket, reason: on_loop(self._answers.add, [(ticket, reason)]),
        )
        self._perform(self.node.start(self.moment()))
        self.pulse.start()

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept connections; the address and the port, which is a free one for port 0."""
        listener = await self._loop.create_server(
            self._new_connection,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else self._greeting_s,
            backlog=1024,
        )
        self._listeners.append(listener)
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    def dial(self, url: str, tls: ssl.SSLContext | None = None) -> Dialer:
        """Connect to another broker, and again whenever the connection is lost."""
        dialer = Dialer(self._loop, url, self._dialled_connection, self.traffic, tls=tls)
        self.dialers.append(dialer)
        dialer.start()
        return dialer

    def connect_local(
        self,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None = None,
        *,
        principal: str = "",
    ) -> LocalLink:
        """A front's connection to the node; see `LocalLink`.

        `principal` is whom the front's transport has shown, such as a certificate's subject; a
        token goes into `Hello`, as with any client.
        """
        link = LocalLink(self, next(self._numbers), on_message, on_close)
        if self._draining:
            link._shut("the server is stopping")
            return link
        self.links[link.number] = link
        self._perform(self.node.accept(link.number, self.moment(), principal))
        return link

    async def drain(self, *, patience_s: float = DRAIN_S) -> None:
        """Stop: accept nobody, write what waits, say goodbye, close. May be called once."""
        self._draining = True
        for listener in self._listeners:
            listener.close()
        for dialer in self.dialers:
            dialer.stop()
        await asyncio.to_thread(self.journal.flush)
        await asyncio.sleep(0)  # what it answered reaches the node and its publishers
        while not self._answers.are_told:  # noqa: ASYNC110  # told in other turns of this loop
            await asyncio.sleep(0)
        self._perform(self.node.drain(self.moment()))
        for link in list(self.links.values()):
            self._close(link, None, "the server is stopping")
        self._turn()
        try:
            async with asyncio.timeout(patience_s):
                while self._open:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            logger.warning("connections cut", extra={"details": {"count": len(self._open)}})
        await self.stop()

    async def stop(self) -> None:
        """Cut every connection and close the journal, which loses nothing that it answered for."""
        self._draining = True
        for listener in self._listeners:
            listener.close()
        for dialer in self.dialers:
            dialer.stop()
        self.pulse.stop()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.abort()
        self.links.clear()
        await asyncio.to_thread(self.journal.close)

    def moment(self) -> Moment:
        """Now, by both clocks."""
        return Moment(self._loop.time(), time.time_ns() // 1000)

    @property
    def connections(self) -> int:
        """Sockets that are open, at all ports, greeted or not."""
        return self.places.taken

    # --- `Owner`: what connections say ---

    def opened(self, connection: Connection) -> None:
        """See `transport.Owner`."""
        self._open.add(connection)
        place = connection.place
        if place is not None:
            place.hold()
        if self._draining or (place is not None and place.is_beyond):
            self.traffic.refused += 1
            reason = (
                "the server is stopping"
                if self._draining
                else f"{self.places.most} connections are the most (limits.connections)"
            )
            connection.close(Bye("LimitExceeded", reason))
            return
        self.links[connection.number] = connection
        if connection.dialled:
            self.traffic.dialled += 1
            known, shown = connection.peer, connection.principal
            self._perform(self.node.dial(connection.number, self.moment(), known, shown))
        else:
            self.traffic.accepted += 1
            principal = connection.principal
            self._perform(self.node.accept(connection.number, self.moment(), principal))

    def arrived(self, connection: Connection | LocalLink, message: Message) -> None:
        """See `transport.Owner`."""
        if isinstance(message, EventMessage):
            self.traffic.events_in += len(message.parcel)
        started = time.perf_counter()
        effects = self.node.receive(connection.number, message, self.moment())
        took = time.perf_counter() - started
        self.traffic.node_s += took
        if took > self.pulse.longest_s:
            self.pulse.held_by(type(message).__name__, took)
        self._perform(effects)

    def illegal(self, connection: Connection, error: IllegalMessage) -> None:
        """See `transport.Owner`."""
        if connection.number in self.links:
            self._perform(self.node.illegal(connection.number, error, self.moment()))
        self._close(connection, Bye(type(error).__name__, error.reason), error.reason)

    def gone(self, connection: Connection, reason: str) -> None:
        """See `transport.Owner`."""
        self._open.discard(connection)
        if connection.place is not None:
            connection.place.leave()
        if not self._open:
            self._empty.set()
        if connection.is_broker:
            for dialer in self.dialers:
                dialer.try_now()
        if self.links.pop(connection.number, None) is not None and not self._draining:
            logger.debug("connection lost", extra={"details": {"reason": reason}})
            self._perform(self.node.lost(connection.number, self.moment()))

    def ready(self, connection: Connection) -> None:
        """See `transport.Owner`."""
        self._mark(connection)

    def behind(self, who: Waiting) -> None:
        """See `transport.Owner`."""
        self.turns.wait(who)
        self._schedule_turn()

    # --- carrying out ---

    def _perform(self, effects: Sequence[Effect]) -> None:
        links = self.links
        for effect in effects:
            if type(effect) is Send:
                link = links.get(effect.link)
                if isinstance(link, Connection):
                    link.send(effect.message)
                elif link is not None:
                    link._deliver(effect.message)
            elif type(effect) is Append:
                self.journal.append(effect)
            elif type(effect) is Close:
                closed = links.get(effect.link)
                if closed is not None:
                    self._close(closed, None, effect.reason)
            elif type(effect) is Report:
                self._report(effect)
        if not self._turn_scheduled:
            self._schedule_turn()

    def _close(self, link: Connection | LocalLink, last: Message | None, reason: str) -> None:
        """Close a link of which the node need not be told."""
        self.links.pop(link.number, None)
        if isinstance(link, Connection):
            link.close(last)
        else:
            link._shut(reason)

    @staticmethod
    def _report(report: Report) -> None:
        level = _LEVELS.get(report.level, logging.INFO)
        logging.getLogger("palio.node").log(
            level, "%s", report.event, extra={"details": report.details}
        )

    def _mark(self, link: Connection | LocalLink) -> None:
        self._dirty.append(link)
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """The end of a turn: write what was sent, go on with what waits, and set the timer."""
        self._turn_scheduled = False
        until = self.turns.begin()
        for _ in range(len(self._dirty)):
            self._dirty.popleft().flush()
            if self.turns.clock() > until:
                break
        self.turns.serve(until)
        if self._dirty or not self.turns.is_idle:
            self._schedule_turn()
        self._set_timer()

    def _set_timer(self) -> None:
        wake_at = self.node.wake_at
        if wake_at is None or self._draining:
            return
        if wake_at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = wake_at
            self._timer = self._loop.call_at(wake_at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        at = self.moment()
        wake_at = self.node.wake_at
        if wake_at is not None and wake_at <= at.now:
            self._perform(self.node.tick(at))
        else:
            self._set_timer()

    def _answered(self, answer: Answer) -> None:
        ticket, reason = answer
        if reason is None:
            self._perform(self.node.stored(ticket, self.moment()))
        else:
            self._perform(self.node.failed(ticket, reason, self.moment()))

    # --- fronts and dialers ---

    def _from_front(self, link: LocalLink, message: Message) -> None:
        self.traffic.messages_in += 1
        self.arrived(link, message)

    def _front_left(self, link: LocalLink) -> None:
        if self.links.pop(link.number, None) is not None and not self._draining:
            self._perform(self.node.lost(link.number, self.moment()))

    def _dialled_connection(self, dialer: Dialer) -> Connection:
        connection = self._new_connection(dialled=True)
        connection.peer = dialer.peer
        return connection

    def _new_connection(self, *, dialled: bool = False) -> Connection:
        greeting_s = self._greeting_s
        connection = Connection(self, next(self._numbers), dialled=dialled, greeting_s=greeting_s)
        connection.place = self.places.take(greeting_s)
        return connection
