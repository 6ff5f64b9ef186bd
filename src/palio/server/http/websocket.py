"""WebSocket: each message out is a CloudEvent in JSON (`cloudevents.json`), with its cursor.

A client sends commands as JSON objects. `update` and `replace` hold for this connection:

    {"update": {"limit": 20}}
    {"replace": {"filter": "price < :limit", "parameters": {"limit": 20}}}
    {"acknowledge": CURSOR}

Each is answered by `{"done": "update"}` or `{"error": {...}}`, with the `id` of the command if it
has one. `opened` of an answer is the cursor from which the connection began: a client that has had
no event yet comes back with that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from starlette.websockets import WebSocket, WebSocketDisconnect

from palio.errors import InvalidInput, PalioError
from palio.language.documents import read_json
from palio.language.http_events import CURSOR
from palio.server.http.cursors import CursorFeed
from palio.server.http.errors import described, status_of_error

SUBPROTOCOL: Final = "cloudevents.json"

ENDED: Final = 1001
REFUSED: Final = 1008
TRY_LATER: Final = 1013
"""Closes a connection that the client may well open again soon."""

Replace: TypeAlias = Callable[[Any], Awaitable[None]]
"""Gives the subscription of a connection another filter (`{"replace": ...}`)."""

MAX_REASON_BYTES: Final = 123
"""Bytes of the reason in a closing frame (RFC 6455, 5.5)."""


async def accept(socket: WebSocket) -> None:
    """Accept, in the subprotocol if it is offered: a browser that offered one and was given none
    breaks the connection off, and its page never learns why it was closed.
    """
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def refuse(socket: WebSocket, error: PalioError) -> None:
    """Close an accepted connection with the reason, as far as it fits."""
    reason = str(error).encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    await socket.close(TRY_LATER if status_of_error(error) == 503 else REFUSED, reason)


async def deliver(socket: WebSocket, feed: CursorFeed, replace: Replace) -> None:
    """Send what a feed gives and obey the client's commands, until either ends."""
    sending = asyncio.create_task(_send(socket, feed))
    listening = asyncio.create_task(_listen(socket, feed, replace))
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


async def _listen(socket: WebSocket, feed: CursorFeed, replace: Replace) -> None:
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError):  # KeyError: it was binary
            return
        try:
            command: Any = read_json(text.encode())
        except (ValueError, RecursionError):
            command = None
        id = command.pop("id", None) if isinstance(command, dict) else None
        answer: dict[str, Any] = {} if id is None else {"id": id}
        try:
            answer["done"] = await _obey(feed, replace, command)
            if feed.opened:
                answer["opened"] = feed.opened
        except PalioError as error:
            answer["error"] = described(error)
        await socket.send_text(json.dumps(answer))


async def _obey(feed: CursorFeed, replace: Replace, command: Any) -> str:
    """Carry out a command, and return its name."""
    match command:
        case {"update": dict(values)} if len(command) == 1:
            await feed.update(values)
            return "update"
        case {"replace": body} if len(command) == 1:
            await replace(body)
            return "replace"
        case {"acknowledge": str(cursor)} if len(command) == 1:
            feed.acknowledge(cursor)
            return "acknowledge"
    raise InvalidInput(
        'unknown command; send {"update": {...}}, {"replace": {...}} or {"acknowledge": "..."}'
    )
