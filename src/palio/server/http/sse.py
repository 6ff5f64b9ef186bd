"""Server-sent events: what a browser's `EventSource` reads, with `Last-Event-ID` to resume."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Final

from palio.errors import PalioError
from palio.server.http.cursors import CursorFeed, Item

__all__ = ["PING_S", "frame", "frames"]

PING_S: Final = 15.0
"""A stream on which nothing happens says so this often, so that proxies do not end it."""


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
    chunks = feed.chunks()
    pending: asyncio.Task[list[Item]] | None = None
    try:
        yield ":\n\n"  # headers go out at once, and the consumer knows that it listens
        while True:
            if pending is None:
                pending = asyncio.create_task(_next(chunks))
            done, _ = await asyncio.wait((pending,), timeout=ping_s)
            if not done:
                yield ":\n\n"
                continue
            items = pending.result()
            pending = None
            if not items:
                return
            yield "".join(map(frame, items))
    finally:
        if pending is not None:
            pending.cancel()
        feed.leave()


async def _next(chunks: AsyncIterator[list[Item]]) -> list[Item]:
    """The next items; none at the end, whatever ended it: the consumer comes back with a cursor."""
    with contextlib.suppress(StopAsyncIteration, PalioError):
        return await anext(chunks)
    return []
