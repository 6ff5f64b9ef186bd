"""`Requests`: what was asked of the broker and not yet answered."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias

import msgspec

from palio.errors import PalioError
from palio.protocol.messages import (
    Advertise,
    Answer,
    Ask,
    Done,
    Failed,
    Replace,
    Retire,
    Settle,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)

__all__ = ["Outcome", "Request", "Requests", "Waiter"]

Request: TypeAlias = (
    Subscribe | Replace | Update | Unsubscribe | Advertise | Unadvertise | Settle | Ask | Retire
)

Outcome: TypeAlias = Done | Answer | Failed | PalioError
"""What becomes of a request: the broker's answer, or why there will be none."""

Waiter: TypeAlias = Callable[[Outcome], None]
"""Whoever waits for an answer; it is called once."""

DONE: Final = Done(0)
"""The answer to a request that came true without one: what it was about is over."""


class Requests:
    """Open requests by their numbers.

    A request is sent once, but a session that is renewed asks anew for what several of them
    together led to: so one answer may be for several waiters.

    >>> requests, heard = Requests(), []
    >>> requests.enter(Settle(0), [heard.append])
    Settle(id=1)
    >>> requests.answered(Done(1))
    >>> requests.answered(Done(1))  # one to a session that is over
    >>> heard
    [Done(id=1, unreached=())]
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[int, tuple[Request, list[Waiter]]] = {}

    def enter(self, request: Request, waiters: list[Waiter]) -> Request:
        """The request with a number of its own, whose answer is for these waiters."""
        number = next(self._numbers)
        numbered = msgspec.structs.replace(request, id=number)
        self._open[number] = (numbered, waiters)
        return numbered

    def answered(self, message: Done | Failed | Answer) -> None:
        """Tell those who wait. An answer to nothing is one to a session that is over."""
        found = self._open.pop(message.id, None)
        if found is not None:
            tell(found[1], message)

    def take_all(self) -> list[tuple[Request, list[Waiter]]]:
        """All that is open, in order; nothing is, from now on."""
        taken = list(self._open.values())
        self._open.clear()
        return taken

    def end(self, error: PalioError) -> None:
        """There will be no more answers."""
        for _, waiters in self.take_all():
            tell(waiters, error)


def tell(waiters: list[Waiter], outcome: Outcome) -> None:
    """Tell all who wait what became of their request."""
    for waiter in waiters:
        waiter(outcome)
