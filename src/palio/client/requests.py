"""`Requests`: what was asked of the broker and not yet answered."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, TypeAlias

import msgspec

from palio.errors import PalioError
from palio.protocol.failures import error_of
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

__all__ = ["Request", "Requests"]

Request: TypeAlias = (
    Subscribe | Replace | Update | Unsubscribe | Advertise | Unadvertise | Settle | Ask | Retire
)


class Requests:
    """Open requests by their numbers.

    A request is sent once, but a session that is renewed asks anew for what several of them
    together led to: so one answer may be for several who wait.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[int, tuple[Request, list[asyncio.Future[Any]]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, request: Request, waiting: list[asyncio.Future[Any]]) -> Request:
        """The request with a number of its own, whose answer is for those who wait."""
        number = next(self._numbers)
        numbered = msgspec.structs.replace(request, id=number)
        self._open[number] = (numbered, waiting)
        return numbered

    def answered(self, message: Done | Failed | Answer) -> None:
        """Tell those who wait. An answer to nothing is one to a session that is over."""
        _, waiting = self._open.pop(message.id, (None, []))
        for future in waiting:
            if future.done():
                continue
            if isinstance(message, Failed):
                future.set_exception(error_of(message.failure))
            else:
                future.set_result(message)

    def take_all(self) -> list[tuple[Request, list[asyncio.Future[Any]]]]:
        """All that is open, in order; nothing is, from now on."""
        taken = list(self._open.values())
        self._open.clear()
        return taken

    def end(self, error: PalioError) -> None:
        """There will be no more answers."""
        for _, waiting in self.take_all():
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
