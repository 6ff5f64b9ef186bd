"""`Sinks`: calls addresses that subscribers gave, so that neither they nor what answers do harm.

1. At most `MAX_CALLS` are under way at once, and `MAX_CALLS_OF_ONE` of one owner. A call that
   has to wait for its turn has not failed.
2. A call takes at most `CALL_S` in all, whatever the other end does.
3. Of an answer only the status and the headers count. Nothing is unpacked; a short body is read
   off and thrown away, so that the connection can be used again, and of a long one nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

import httpx

from palio.errors import PalioError
from palio.server.hosts import PUBLIC, Hosts
from palio.server.limits import CALL_S, MAX_CALLS, MAX_CALLS_OF_ONE
from palio.server.webhooks.network import allowed_client

__all__ = ["SinkAnswer", "SinkFailed", "Sinks"]

READ_OFF_BYTES: Final = 4_096
"""A longer body than this costs the connection: a new one is cheaper than to read it."""

READ_OFF_S: Final = 1.0
"""As long as a short body may take."""

NO_PACKING: Final = {"accept-encoding": "identity", "user-agent": "palio"}


PUBLIC_ONLY: Final = partial(allowed_client, Hosts([PUBLIC]))


class SinkFailed(PalioError):
    """A sink was not reached, is not allowed, or did not answer as HTTP does. For the log only: its
    owner would learn from it what is in the broker's network.
    """


class SinkAnswer(NamedTuple):
    """The answer of a sink: its status and its headers."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_success(self) -> bool:
        """Whether it is one of 2xx."""
        return 200 <= self.status < 300


class Sinks:
    """All calls of the broker to sinks."""

    def __init__(
        self,
        new_client: Callable[[], httpx.AsyncClient] = PUBLIC_ONLY,
    ) -> None:
        self._new_client = new_client
        self._client: httpx.AsyncClient | None = None
        self._turns = asyncio.Semaphore(MAX_CALLS)
        self._own_turns: dict[str, asyncio.Semaphore] = {}
        self._waiting: dict[str, int] = {}

    async def call(
        self, owner: str, method: str, address: str, headers: Mapping[str, str], body: bytes = b""
    ) -> SinkAnswer:
        """Call an address on behalf of an owner; `SinkFailed` if nothing good comes of it."""
        sent = NO_PACKING | {name.lower(): value for name, value in headers.items()}
        async with self._turn(owner):
            try:
                async with (
                    asyncio.timeout(CALL_S),
                    self._http.stream(
                        method, address, content=body, headers=sent, timeout=CALL_S
                    ) as response,
                ):
                    await _read_off(response)
                    return SinkAnswer(response.status_code, response.headers)
            except TimeoutError:
                raise SinkFailed(f"no answer within {CALL_S:g} s") from None
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise SinkFailed(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close what is open."""
        if self._client is not None:
            await self._client.aclose()

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        own = self._own_turns.setdefault(owner, asyncio.Semaphore(MAX_CALLS_OF_ONE))
        self._waiting[owner] = self._waiting.get(owner, 0) + 1
        try:
            async with own, self._turns:
                yield
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner], self._own_turns[owner]

    @property
    def _http(self) -> httpx.AsyncClient:
        """The client, made when it is first needed: it reads the certificates of the system."""
        if self._client is None:
            self._client = self._new_client()
        return self._client


async def _read_off(response: httpx.Response) -> None:
    length = response.headers.get("content-length", "0" if response.status_code == 204 else "")
    if response.is_closed or not length.isdecimal() or int(length) > READ_OFF_BYTES:
        return
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(READ_OFF_S):
            async for _ in response.aiter_raw():
                pass
