"""Futures that wait for what becomes of a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from palio.errors import Closed, PalioError, Unreachable
from palio.protocol.failures import error_of
from palio.protocol.messages import Failed
from palio.protocol.requests import Outcome, Waiter

__all__ = ["answers", "finish", "is_refusal", "log_refusal"]

logger: Final = logging.getLogger("palio")


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


def finish(future: asyncio.Future[None]) -> None:
    """Let whoever waits go on."""
    if not future.done():
        future.set_result(None)


def is_refusal(error: BaseException) -> bool:
    """Whether a broker has said no. One that could not be asked will be told of the change yet."""
    return isinstance(error, PalioError) and not isinstance(error, Closed | Unreachable)


def log_refusal(
    told: asyncio.Future[Any] | None, take_back: Callable[[], None] | None = None
) -> None:
    """Nobody waits for the answer: what goes wrong is logged, and what is refused taken back."""
    if told is not None:
        told.add_done_callback(partial(_log_failure, take_back))


def _log_failure(take_back: Callable[[], None] | None, done: asyncio.Future[Any]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        logger.warning("a change was not confirmed: %s", error)
        if take_back is not None and is_refusal(error):
            take_back()
