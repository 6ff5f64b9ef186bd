"""`Home`: the event loop that a bus or a client is used on."""

from __future__ import annotations

import asyncio

from palio.errors import PalioError

__all__ = ["Home"]


class Home:
    """The loop of the first use, or of a later one when that loop runs no longer."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Refuse to be used from another loop while its own runs: nobody there would be woken."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is self._loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise PalioError(
                f"this {self._whose} belongs to another event loop; use it there, or a "
                "SyncBus or SyncClient, which any thread may call"
            )
        self._loop = here
