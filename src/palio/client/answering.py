"""Futures that wait for what becomes of a request."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from palio.errors import PalioError
from palio.protocol.failures import error_of
from palio.protocol.messages import Failed
from palio.protocol.requests import Outcome, Waiter

__all__ = ["answers", "finish", "log_refusal"]

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


def log_refusal(told: asyncio.Future[Any] | None) -> None:
    """Nobody waits for the answer: what goes wrong is logged."""
    if told is not None:
        told.add_done_callback(_log_failure)


def _log_failure(done: asyncio.Future[Any]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        logger.warning("a change was not confirmed: %s", error)
