"""`LocalLink`: a connection to the node without a socket, for fronts such as HTTP."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from palio.protocol.messages import Deliver, Message
from palio.server.counters import Traffic
from palio.server.scheduler import LoopScheduler
from palio.server.transport import Parts, is_large

logger: Final = logging.getLogger("palio.server")


class Owner(Protocol):
    """The server, as its fronts' links see it."""

    scheduler: LoopScheduler
    traffic: Traffic

    def from_front(self, link: LocalLink, message: Message, *, up_to: int | None = None) -> None:
        """Take a front's message; of a large one, what is to be taken now (`Host.receive`)."""

    def rows_at_once(self) -> int:
        """Return the number of events that may be taken in one step."""

    def front_left(self, number: int) -> None:
        """A front ended its connection, or failed."""


class LocalLink:
    """A connection to the node without a socket: messages go in and out as they are.

    To the node it is a connection like any other: first `send(Hello(...))`, then wait for
    `Welcome`; count messages with a `palio.protocol.streams.Stream` and send `StreamAck`, or the
    window closes. All of it on the loop of the server; from another thread, through
    `loop.call_soon_threadsafe`.

    `on_message` is called once for each message, never while `send` or another `on_message` runs,
    so it may itself `send`. `on_close(reason)` is called once, when the node closed the link, the
    server stopped, or `on_message` raised; not after `close`.

    The node takes a message of many events part by part, with others served in between. What is
    sent after it waits until it is through; so does the end of the link, if the front closes it.
    """

    __slots__ = ("_has_left", "_is_behind", "_owner", "_parts", "_waiting", "end", "number")

    def __init__(
        self,
        owner: Owner,
        number: int,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None,
    ) -> None:
        self.number = number
        self.end = NodeEnd(owner, number, on_message, on_close)
        self._owner = owner
        self._parts = Parts()
        self._waiting: deque[Message] = deque()
        self._is_behind = False
        """Whether it is in the queue of its owner."""
        self._has_left = False

    @property
    def closed(self) -> bool:
        """Return whether nothing can be sent any more."""
        return self.end.is_closed

    def send(self, message: Message) -> None:
        """Hand a message to the node. After the link was closed, nothing."""
        if self.end.is_closed:
            return
        if self._has_more or is_large(message):
            self._waiting.append(message)
            if not self._is_behind:
                self.proceed()
        else:
            self._owner.from_front(self, message)

    @property
    def _has_more(self) -> bool:
        is_open = self._has_left or not self.end.is_closed
        return is_open and (self._parts.is_begun or bool(self._waiting))

    def proceed(self) -> None:
        """Hand over pending messages, for as long as this turn allows."""
        owner, scheduler = self._owner, self._owner.scheduler
        until = scheduler.slice()
        try:
            while until and self._has_more:
                self._hand_over()
                if scheduler.clock() > until:
                    break
        finally:
            if until:
                scheduler.spend(until)
            self._is_behind = self._has_more
            if self._is_behind:
                scheduler.wait(self)
            elif self._has_left:
                owner.front_left(self.number)

    def _hand_over(self) -> None:
        """The next message that waits, or the next part of one."""
        parts = self._parts
        if not parts.is_begun:
            message = self._waiting.popleft()
            if not is_large(message):
                self._owner.from_front(self, message)
                return
            parts.begin(message)
        part, up_to = parts.next(self._owner.rows_at_once())
        self._owner.from_front(self, part, up_to=up_to)

    def close(self) -> None:
        """End the connection; to the node it broke. May be called twice."""
        if not self.end.is_closed:
            self._has_left = True
            self.end.leave()
            if not self._is_behind:
                self._owner.front_left(self.number)


class NodeEnd:
    """The node's end of a local link (see `node.host.LinkPort`)."""

    __slots__ = ("_has_left", "_number", "_on_close", "_on_message", "_out", "_owner", "_reason")

    def __init__(
        self,
        owner: Owner,
        number: int,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None,
    ) -> None:
        self._owner = owner
        self._number = number
        self._on_message = on_message
        self._on_close = on_close
        self._out: list[Message] = []
        self._reason: str | None = None
        """Why it is closed, if it is."""
        self._has_left = False

    @property
    def is_closed(self) -> bool:
        """Return whether either end has closed it."""
        return self._reason is not None

    def send(self, message: Message) -> None:
        """Queue a message for the front (`LinkPort`)."""
        if not self._out:
            self._owner.scheduler.write(self)
        self._out.append(message)

    def close(self, reason: str, /) -> None:
        """Close behind what was sent before, which still reaches the front (`LinkPort`)."""
        if self._reason is None:
            self._reason = reason
            self._owner.scheduler.write(self)

    def leave(self) -> None:
        """Deliver no more messages to the front, which has closed the link itself."""
        self._reason = "closed"
        self._has_left = True
        self._on_close = None
        self._out.clear()

    def flush(self) -> None:
        """Hand over what the node has sent. Called by the server at the end of a turn."""
        messages, self._out = self._out, []
        if messages and type(messages[0]) is Deliver:
            self._owner.traffic.latency.sample(messages[0])
        try:
            for message in messages:
                if self._has_left:
                    return
                self._on_message(message)
        except Exception:
            logger.exception("front_failed")
            if self._reason is None:
                self._reason = "the front failed"
                self._owner.front_left(self._number)
        if self._reason is not None and self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            on_close(self._reason)
