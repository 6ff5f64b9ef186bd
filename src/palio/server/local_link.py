"""`LocalLink`: a connection to the node without a socket, for fronts such as HTTP.

`LocalLink` is the front's end, which sends to the node. `FrontDelivery` is the node's end, which
delivers to the front.
"""

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
    """The part of the server that local links use."""

    scheduler: LoopScheduler
    traffic: Traffic

    def from_front(self, link: LocalLink, message: Message, *, up_to: int | None = None) -> None:
        """Pass a front's message to the node; of a large one, the events before `up_to`."""

    def rows_at_once(self) -> int:
        """Return the number of events that the node processes in one step."""

    def front_closed(self, number: int) -> None:
        """Drop the link of a front that closed it, or failed."""


class LocalLink:
    """A connection to the node without a socket: messages go in and out as they are.

    The protocol is that of every connection: first `send(Hello(...))`, then wait for `Welcome`.
    Count messages with a `palio.protocol.streams.Stream` and send `StreamAck`, or the window
    closes. Call its methods on the loop of the server, from another thread through
    `loop.call_soon_threadsafe`.

    The link calls `on_message` once for each message, never while `send` or another `on_message`
    runs, so `on_message` may call `send`. It calls `on_close(reason)` once: when the node closed
    the link, the server stopped, or `on_message` raised. After `close` it does not.

    The node processes a large message in parts, and serves other connections between them. Messages
    sent later wait until the last part was processed, and so does the end of a closed link.
    """

    __slots__ = ("_is_closing", "_is_scheduled", "_owner", "_parts", "_pending", "end", "number")

    def __init__(
        self,
        owner: Owner,
        number: int,
        on_message: Callable[[Message], None],
        on_close: Callable[[str], None] | None,
    ) -> None:
        self.number = number
        self.end = FrontDelivery(owner, number, on_message, on_close)
        self._owner = owner
        self._parts = Parts()
        self._pending: deque[Message] = deque()
        self._is_scheduled = False
        """True while the scheduler holds it, and will call `proceed`."""
        self._is_closing = False
        """True once the front has closed it; pending messages still reach the node."""

    @property
    def closed(self) -> bool:
        """Return whether `send` has no effect."""
        return self.end.is_closed

    def send(self, message: Message) -> None:
        """Pass a message to the node; ignored after close."""
        if self.end.is_closed:
            return
        if self._has_more or is_large(message):
            self._pending.append(message)
            if not self._is_scheduled:
                self.proceed()
        else:
            self._owner.from_front(self, message)

    @property
    def _has_more(self) -> bool:
        # Pending messages are dropped if the node closed the link, not if the front did.
        is_open = self._is_closing or not self.end.is_closed
        return is_open and (self._parts.is_begun or bool(self._pending))

    def proceed(self) -> None:
        """Pass pending messages to the node until the scheduler's time slice ends."""
        owner, scheduler = self._owner, self._owner.scheduler
        until = scheduler.slice()
        try:
            while until and self._has_more:
                self._pass_next()
                if scheduler.clock() > until:
                    break
        finally:
            if until:
                scheduler.spend(until)
            self._is_scheduled = self._has_more
            if self._is_scheduled:
                scheduler.wait(self)
            elif self._is_closing:
                owner.front_closed(self.number)

    def _pass_next(self) -> None:
        """Pass on the next pending message, or the next part of a large one."""
        parts = self._parts
        if not parts.is_begun:
            message = self._pending.popleft()
            if not is_large(message):
                self._owner.from_front(self, message)
                return
            parts.begin(message)
        part, up_to = parts.next(self._owner.rows_at_once())
        self._owner.from_front(self, part, up_to=up_to)

    def close(self) -> None:
        """Close the link: the node sees a lost connection. Repeated calls have no effect."""
        if not self.end.is_closed:
            self._is_closing = True
            self.end.stop()
            if not self._is_scheduled:
                self._owner.front_closed(self.number)


class FrontDelivery:
    """Delivers the node's messages to a front: the node's end of a link (`node.host.LinkPort`)."""

    __slots__ = ("_is_stopped", "_number", "_on_close", "_on_message", "_out", "_owner", "_reason")

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
        """The reason of the close; None while the link is open."""
        self._is_stopped = False

    @property
    def is_closed(self) -> bool:
        """Return whether the front or the node has closed the link."""
        return self._reason is not None

    def send(self, message: Message) -> None:
        """Queue a message for the front (`LinkPort`)."""
        if not self._out:
            self._owner.scheduler.write(self)
        self._out.append(message)

    def close(self, reason: str, /) -> None:
        """Close the link; messages sent before still reach the front (`LinkPort`)."""
        if self._reason is None:
            self._reason = reason
            self._owner.scheduler.write(self)

    def stop(self) -> None:
        """Stop deliveries: the front has closed the link."""
        self._reason = "closed"
        self._is_stopped = True
        self._on_close = None
        self._out.clear()

    def flush(self) -> None:
        """Deliver queued messages to the front. The server calls it at the end of a turn."""
        messages, self._out = self._out, []
        if messages and type(messages[0]) is Deliver:
            self._owner.traffic.latency.sample(messages[0])
        try:
            for message in messages:
                if self._is_stopped:  # `on_message` may have closed the link
                    return
                self._on_message(message)
        except Exception:
            logger.exception("front_failed")
            if self._reason is None:
                self._reason = "the front failed"
                self._owner.front_closed(self._number)
        if self._reason is not None and self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            on_close(self._reason)
