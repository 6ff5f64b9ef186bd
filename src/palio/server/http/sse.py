"""Server-sent events: what a browser's `EventSource` reads, with `Last-Event-ID` to resume."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Final

from palio.server.http.cursors import CursorFeed, Item, with_pings

__all__ = ["EVENT_STREAM_TYPE", "PING_S", "frame", "frames"]

EVENT_STREAM_TYPE: Final = "text/event-stream"

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
    try:
        yield ":\n\n"  # headers go out at once, and the consumer knows that it listens
        async with contextlib.aclosing(with_pings(feed.chunks(), ping_s)) as chunks:
            async for items in chunks:
                yield ":\n\n" if items is None else "".join(map(frame, items))
    finally:
        feed.leave()
