"""Connections that nobody is at the other end of: a function answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

import httpcore
import httpx

Handler = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]


class Handled:
    """A pool whose requests are answered by a function."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        assert not isinstance(request.stream, list)
        body = b"".join([part async for part in request.stream])  # type: ignore[union-attr]  # it is async
        asked = httpx.Request(
            request.method.decode(),
            bytes(request.url).decode(),
            headers=request.headers,
            content=body,
        )
        answer = self._handler(asked)
        found = await answer if isawaitable(answer) else answer
        said = b"".join([part async for part in found.stream])  # type: ignore[union-attr]  # it is async
        return httpcore.Response(found.status_code, headers=found.headers.raw, content=said)

    async def aclose(self) -> None:
        pass
