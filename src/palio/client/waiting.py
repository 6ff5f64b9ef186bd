"""Things to wait for, and what becomes of those that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator
from functools import partial
from typing import Any, Final

from palio.errors import PalioError
from palio.protocol.failures import error_of
from palio.protocol.messages import Failed
from palio.protocol.requests import Outcome, Waiter

__all__ = ["DONE", "answers", "in_background"]

_log: Final = logging.getLogger("palio")


def answers(future: asyncio.Future[Any]) -> Waiter:
    """Lets a future wait for what becomes of a request."""
    return partial(_settle, future)


def _settle(future: asyncio.Future[Any], outcome: Outcome) -> None:
    if future.done():
        return
    if isinstance(outcome, Failed):
        future.set_exception(error_of(outcome.failure))
    elif isinstance(outcome, PalioError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


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
