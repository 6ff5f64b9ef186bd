"""`Deadlines`: timeouts of pending replies.

Calls with the client's default timeout expire in the order in which they began. So one timer, for
the oldest, serves all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import compress
from typing import Any, Final

from palio.errors import InvalidInput, NoAnswer

TIMEOUT_S: Final = 30.0
"""The default timeout of a request: longer than a client takes to detect a dead broker and
reconnect, and short enough for a caller to handle the failure."""

TIDY_AT: Final = 10_000
"""The number of pending futures at which those done out of order are removed."""


class Deadlines:
    """Futures that fail with `NoAnswer` unless they are done in time."""

    def __init__(self, seconds: float | None, state: Callable[[], str]) -> None:
        self.seconds = seconds
        """The default timeout; None waits forever."""
        self._state = state
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._terms: deque[tuple[float, str]] = deque()
        """The deadline and subject of each; the garbage collector untracks such plain tuples."""
        self._tidy_at = TIDY_AT
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, future: asyncio.Future[Any], subject: str, seconds: float | None) -> None:
        """Let a future fail after a timeout; `what` describes its request and the state without a
        reply, for the error.
        """
        if seconds is None or future.done():
            return
        loop = asyncio.get_running_loop()
        if seconds != self.seconds:
            timer = loop.call_later(seconds, self._expire, future, subject, seconds)
            future.add_done_callback(lambda _: timer.cancel())
            return
        waiting = self._waiting
        while waiting and waiting[0].done():
            _ = waiting.popleft()
            self._terms.popleft()
        if len(waiting) >= self._tidy_at:
            self._tidy()
        self._waiting.append(future)
        self._terms.append((loop.time() + seconds, subject))
        if self._timer is None:
            self._timer = loop.call_at(self._terms[0][0], self._sweep)

    def close(self) -> None:
        """Cancel all timeouts."""
        self._waiting.clear()
        self._terms.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tidy(self) -> None:
        is_left = [not future.done() for future in self._waiting]
        self._waiting = deque(compress(self._waiting, is_left))
        self._terms = deque(compress(self._terms, is_left))
        self._tidy_at = max(TIDY_AT, 2 * len(self._waiting))

    def _sweep(self) -> None:
        """Expire the futures whose deadline has passed."""
        self._timer = None
        loop, waiting = asyncio.get_running_loop(), self._waiting
        while waiting:
            (at, subject), future = self._terms[0], waiting[0]
            if not future.done():
                if at > loop.time():
                    self._timer = loop.call_at(at, self._sweep)
                    return
                assert self.seconds is not None
                self._expire(future, subject, self.seconds)
            _ = waiting.popleft()
            self._terms.popleft()

    def _expire(self, future: asyncio.Future[Any], subject: str, seconds: float) -> None:
        if not future.done():
            future.set_exception(
                NoAnswer(f"no answer for {seconds:g} s ({self._state()}): {subject}")
            )


def check_timeout(seconds: float | None) -> float | None:
    """Return a valid timeout in seconds; None waits forever.

    >>> check_timeout(1.5)
    1.5
    """
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is None or (is_number and seconds > 0):
        return seconds
    raise InvalidInput(f"a timeout is a number of seconds above 0, or None; not {seconds!r:.80}")
