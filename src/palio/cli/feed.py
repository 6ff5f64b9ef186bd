"""`LineFeed`: what a thread reads, for a coroutine to take as it comes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

READ_AHEAD: Final = 10_000
"""Items that are read and not yet taken."""


class LineFeed(Generic[Item]):
    """Items of an iterable that blocks, such as lines of a terminal.

    The thread is a daemon: a program may end while it waits for a line that nobody types.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Item] = deque()
        self._news = asyncio.Event()
        self._room = threading.Semaphore(READ_AHEAD)
        self._is_over = False
        self._error: BaseException | None = None
        threading.Thread(target=self._read, name="palio-reader", daemon=True).start()

    async def take(self, most: int) -> list[Item]:
        """Take between one and `most` items that have come; an empty list at the end.

        An error of the iterable is raised when all before it was taken.
        """
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return []
            self._news.clear()
            await self._news.wait()
        taken = [self._ready.popleft() for _ in range(min(most, len(self._ready)))]
        self._room.release(len(taken))
        return taken

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._room.acquire()
                self._hand_over(item)
        except Exception as raised:  # noqa: BLE001  # raised again where it is waited for
            error = raised
        self._end(error)

    def _hand_over(self, item: Item) -> None:
        def arrive() -> None:
            self._ready.append(item)
            self._news.set()

        self._loop.call_soon_threadsafe(arrive)

    def _end(self, error: BaseException | None) -> None:
        def end() -> None:
            self._is_over, self._error = True, error
            self._news.set()

        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(end)
