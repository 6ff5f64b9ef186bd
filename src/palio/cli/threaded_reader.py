"""`ThreadedReader`: an async buffer between a blocking reader thread and a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

READ_AHEAD: Final = 10_000
"""At most so many items are buffered; then the thread waits for the coroutine."""


class _End(NamedTuple):
    """Follows the last item, with the error of the iterable if it has failed."""

    error: BaseException | None


class ThreadedReader(Generic[Item]):
    """Reads an iterable that blocks, such as the lines of a terminal, in a thread of its own.

    The thread is a daemon, so that a program can end while the thread waits for a line.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._buffer = asyncio.Queue[Item | _End]()
        self._free_slots = threading.Semaphore(READ_AHEAD)
        threading.Thread(target=self._read, name="palio-reader", daemon=True).start()

    async def take(self, limit: int) -> list[Item]:
        """Wait for an item, then return up to `limit` buffered items; an empty list at the end.

        Raises an error of the iterable once all items before it were taken.
        """
        items: list[Item] = []
        item = await self._buffer.get()
        while not isinstance(item, _End):
            items.append(item)
            if len(items) == limit or self._buffer.empty():
                self._free_slots.release(len(items))
                return items
            item = self._buffer.get_nowait()
        self._buffer.put_nowait(item)  # for the next call
        if not items and item.error is not None:
            raise item.error
        return items

    # --- in the thread; the loop changes the buffer, which is not thread-safe ---

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._free_slots.acquire()
                self._loop.call_soon_threadsafe(self._buffer.put_nowait, item)
        except Exception as raised:  # noqa: BLE001  # `take` raises it
            error = raised
        with suppress(RuntimeError):  # the loop is closed, so no coroutine waits
            self._loop.call_soon_threadsafe(self._buffer.put_nowait, _End(error))
