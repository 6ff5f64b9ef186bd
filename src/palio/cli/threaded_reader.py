"""`ThreadedReader`: an async buffer between a blocking reader thread and a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

READ_AHEAD: Final = 10_000
"""At most so many items are buffered; then the thread waits for the coroutine."""


class ThreadedReader(Generic[Item]):
    """Reads an iterable that blocks, such as the lines of a terminal, in a thread of its own.

    The thread is a daemon, so that a program can end while the thread waits for a line.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._buffer: deque[Item] = deque()
        self._has_changed = asyncio.Event()
        self._free_slots = threading.Semaphore(READ_AHEAD)
        self._is_over = False
        self._error: BaseException | None = None
        threading.Thread(target=self._read, name="palio-reader", daemon=True).start()

    async def take(self, limit: int) -> list[Item]:
        """Wait for an item, then return up to `limit` buffered items; an empty list at the end.

        Raises an error of the iterable once all items before it were taken.
        """
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return []
            self._has_changed.clear()
            await self._has_changed.wait()
        items = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        self._free_slots.release(len(items))
        return items

    # --- in the thread; the loop changes the buffer, which is not thread-safe ---

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._free_slots.acquire()
                self._add(item)
        except Exception as raised:  # noqa: BLE001  # `take` raises it
            error = raised
        self._end(error)

    def _add(self, item: Item) -> None:
        def add() -> None:
            self._buffer.append(item)
            self._has_changed.set()

        self._loop.call_soon_threadsafe(add)

    def _end(self, error: BaseException | None) -> None:
        def end() -> None:
            self._is_over, self._error = True, error
            self._has_changed.set()

        with suppress(RuntimeError):  # the loop is closed, so no coroutine waits
            self._loop.call_soon_threadsafe(end)
