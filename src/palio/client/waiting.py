"""Things to wait for, and what becomes of those that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator
from typing import Any, Final

__all__ = ["DONE", "in_background"]

_log: Final = logging.getLogger("palio")


class _Done:
    """What is awaited where there is nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


DONE: Final = _Done()


def in_background(change: Awaitable[Any]) -> None:
    """Nobody waits for a change that was told to a broker: what goes wrong is logged."""
    if isinstance(change, asyncio.Future):
        change.add_done_callback(_log_failure)


def _log_failure(done: asyncio.Future[Any]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        _log.warning("a change was not confirmed: %s", error)
