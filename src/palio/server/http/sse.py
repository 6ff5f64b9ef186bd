"""Server-sent events: what a browser's `EventSource` reads, with `Last-Event-ID` to resume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Final, TypeVar

from palio.errors import PalioError, SubscriptionEnded
from palio.server.http.cursors import CursorFeed, Item
from palio.server.http.errors import described

_Any = TypeVar("_Any")

EVENT_STREAM_TYPE: Final = "text/event-stream"

PING_S: Final = 15.0
"""The interval of pings on an idle stream, so that proxies do not end it."""

ENDED_RETRY_MS: Final = 3_600_000
"""When an `EventSource` that does not read `ended` returns: two of them, each of which takes over
from the other, must not do so every three seconds."""


def frame(item: Item) -> str:
    """An event as an event stream writes it; gaps are events of the type `gap`.

    >>> frame(Item("d.1.0", {"id": "7"}))
    'id: d.1.0\\ndata: {"id":"7"}\\n\\n'
    """
    id = f"id: {item.cursor}\n" if item.cursor else ""
    kind = "event: gap\n" if item.is_gap else ""
    data = json.dumps(item.document, separators=(",", ":"))  # ASCII: no line ends of any kind
    return f"{id}{kind}data: {data}\n\n"


async def frames(feed: CursorFeed, ping_s: float = PING_S) -> AsyncIterator[str]:
    """A feed as the text of an event stream, until either end has had enough."""
    try:
        # Headers go out at once. With an id, a consumer that loses the connection before the first
        # event comes back with it.
        yield f":\nid: {feed.opened}\n\n" if feed.opened else ":\n\n"
        async with aclosing(with_pings(feed.chunks(), ping_s)) as chunks:
            async for items in chunks:
                yield ":\n\n" if items is None else "".join(map(frame, items))
        if isinstance(feed.failure, SubscriptionEnded):
            problem = json.dumps(described(feed.failure))
            yield f"event: ended\nretry: {ENDED_RETRY_MS}\ndata: {problem}\n\n"
    finally:
        feed.leave()


async def with_pings(
    parts: AsyncIterator[_Any], ping_s: float
) -> AsyncGenerator[_Any | None, None]:
    """Parts as they come, and None when none has come for a while.

    It ends with the parts, whatever ended those: the consumer comes back with a cursor.
    """
    pending: asyncio.Task[_Any | None] | None = None
    try:
        while True:
            if pending is None:
                pending = asyncio.create_task(_next(parts))
            done, _ = await asyncio.wait((pending,), timeout=ping_s)
            if not done:
                yield None
                continue
            part, pending = pending.result(), None
            if part is None:
                return
            yield part
    finally:
        if pending is not None:
            pending.cancel()


async def _next(parts: AsyncIterator[_Any]) -> _Any | None:
    with suppress(StopAsyncIteration, PalioError):
        return await anext(parts)
    return None
