"""WebSocket: each message out is a CloudEvent in JSON (`cloudevents.json`), with its cursor.

What a client may say, as JSON objects: `{"update": {"limit": 20}}` gives parameters new values for
this connection, `{"acknowledge": CURSOR}` says that all up to there has been dealt with.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from palio.errors import InvalidInput, PalioError
from palio.language.documents import read_json
from palio.language.http_events import CURSOR
from palio.server.http.cursors import CursorFeed
from palio.server.http.errors import described

SUBPROTOCOL: Final = "cloudevents.json"

ENDED: Final = 1001
REFUSED: Final = 1008

MAX_REASON_BYTES: Final = 123
"""Bytes of the reason in a closing frame (RFC 6455, 5.5)."""


async def accept(socket: WebSocket) -> None:
    """Accept, in the subprotocol if it is offered: a browser that offered one and was given none
    breaks the connection off, and its page never learns why it was closed.
    """
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def refuse(socket: WebSocket, error: PalioError) -> None:
    """Close an accepted connection, and say why in as many words as there is room for."""
    reason = str(error).encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    await socket.close(REFUSED, reason)


async def deliver(socket: WebSocket, feed: CursorFeed) -> None:
    """Send what a feed gives and obey the client's commands, until either ends."""
    sending = asyncio.create_task(_send(socket, feed))
    listening = asyncio.create_task(_listen(socket, feed))
    try:
        await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, listening):
            task.cancel()
        await asyncio.gather(sending, listening, return_exceptions=True)
        feed.leave()


async def _send(socket: WebSocket, feed: CursorFeed) -> None:
    try:
        async for items in feed.chunks():
            for item in items:
                await socket.send_text(json.dumps({**item.document, CURSOR: item.cursor}))
    except PalioError as error:
        await refuse(socket, error)
    except WebSocketDisconnect:
        return
    else:
        await socket.close(ENDED)


async def _listen(socket: WebSocket, feed: CursorFeed) -> None:
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError):  # KeyError: it was binary
            return
        try:
            await _obey(feed, text)
        except PalioError as error:
            await socket.send_text(json.dumps({"error": described(error)}))


async def _obey(feed: CursorFeed, text: str) -> None:
    try:
        command: Any = read_json(text.encode())
    except (ValueError, RecursionError):
        command = None
    match command:
        case {"update": dict(values)} if len(command) == 1:
            await feed.update(values)
        case {"acknowledge": str(cursor)} if len(command) == 1:
            feed.acknowledge(cursor)
        case _:
            raise InvalidInput('a client may say {"update": {...}} or {"acknowledge": "..."}')
