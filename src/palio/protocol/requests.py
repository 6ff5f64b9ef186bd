"""`Requests`: what was asked of the broker and not yet answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, TypeAlias

import msgspec

from palio.errors import PalioError
from palio.protocol.messages import (
    AddPeer,
    Advertise,
    Answer,
    Apply,
    Ask,
    Cancel,
    Done,
    Drain,
    Failed,
    RemovePeer,
    Replace,
    Retire,
    Settle,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
)

__all__ = ["Outcome", "Request", "Requests", "Waiter"]

Request: TypeAlias = (
    Subscribe
    | Replace
    | Update
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Withdraw
    | Cancel
    | Settle
    | Ask
    | Retire
    | Apply
    | Drain
    | AddPeer
    | RemovePeer
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
    >>> requests.enter(Settle(0), heard.append)
    Settle(id=1)
    >>> request, waiter = requests.take(1)
    >>> requests.take(1) is None  # its answer in a session that is over
    True
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[int, Request] = {}
        self._waiters: dict[int, Waiter] = {}

    def enter(self, request: Request, waiter: Waiter) -> Request:
        """The request with a number of its own, whose answer is for this waiter."""
        number = next(self._numbers)
        numbered = self._open[number] = msgspec.structs.replace(request, id=number)
        self._waiters[number] = waiter
        return numbered

    def take(self, number: int) -> tuple[Request, Waiter] | None:
        """A request that is answered, and who waits for that; it is open no longer."""
        request = self._open.pop(number, None)
        return None if request is None else (request, self._waiters.pop(number))

    def take_all(self) -> list[tuple[Request, Waiter]]:
        """All that is open, in order; nothing is, from now on."""
        taken = list(zip(self._open.values(), self._waiters.values(), strict=True))
        self._open.clear()
        self._waiters.clear()
        return taken

    def end(self, error: PalioError) -> None:
        """There will be no more answers."""
        for _, waiter in self.take_all():
            waiter(error)


def tell(waiters: Iterable[Waiter], outcome: Outcome) -> None:
    """Tell all who wait what became of their request."""
    for waiter in waiters:
        waiter(outcome)
