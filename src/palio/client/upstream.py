"""`Upstream`: the source of a bus's or client's events, which changes are sent to; and the
futures that wait for what becomes of that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from palio.errors import Closed, PalioError, Unreachable
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.protocol.failures import error_of
from palio.protocol.messages import (
    Acknowledge,
    Failed,
    Nack,
    Replace,
    Subscribe,
    Unsubscribe,
    Update,
)
from palio.protocol.requests import Outcome, Waiter

logger: Final = logging.getLogger("palio")

Change: TypeAlias = Subscribe | Update | Replace | Unsubscribe
"""A change of one subscription that is sent upstream."""

PendingReply: TypeAlias = asyncio.Future[Any] | None
"""The reply to a change; None where none is awaited."""


class Upstream:
    """That of a bus, where whatever is in force here is so everywhere; a broker's overrides it."""

    has_broker = False
    """Whether changes are sent to a broker."""
    is_ready = True
    """Whether it takes requests; else `check_ready` raises the reason."""

    @property
    def is_listening(self) -> bool:
        """True if events can arrive now."""
        return True

    def check_ready(self) -> None:
        """Refuse what is not connected."""

    def check_usable(self) -> None:
        """Refuse what can never be connected again."""

    def send_change(self, change: Change, /) -> PendingReply:
        """A subscription is new, another one or over; that is in force here already."""
        del change
        return None

    async def cancel(self, filter: Filter | Pattern, /, *, delete: bool) -> int:
        """End subscriptions of others of the same identity that this covers; how many."""
        del filter, delete
        return 0

    def report(self, outcome: Acknowledge | Nack, /) -> None:
        """Entries of a durable subscription were handled or rejected."""

    async def settled(self, patience: float, /) -> None:
        """Return when all subscriptions are in force wherever events are published."""


# --- waiting for answers ---


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
    """Release the caller that waits."""
    if not future.done():
        future.set_result(None)


def is_refusal(error: BaseException) -> bool:
    """True if a broker has refused. One that could not be asked will get the change later."""
    return isinstance(error, PalioError) and not isinstance(error, Closed | Unreachable)


def log_refusal(
    reply: asyncio.Future[Any] | None, take_back: Callable[[], None] | None = None
) -> None:
    """Nobody waits for the answer: what goes wrong is logged, and what is refused taken back."""
    if reply is not None:
        reply.add_done_callback(partial(_log_failure, take_back))


def _log_failure(take_back: Callable[[], None] | None, done: asyncio.Future[Any]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        logger.warning("a change was not confirmed: %s", error)
        if take_back is not None and is_refusal(error):
            take_back()
