"""An upstream that keeps what it is told."""

from __future__ import annotations

import asyncio
from typing import Any

from palio.client.upstream import Change, Told, Upstream
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.protocol.messages import Replace, Subscribe, Update


class Recording(Upstream):
    """Each change is answered when the test says so."""

    has_broker = True

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.answer: asyncio.Future[Any] | None = None

    def tell(self, change: Change, /) -> Told:
        match change:
            case Subscribe() | Replace():
                told: tuple[Any, ...] = change.filter, dict(change.values)
            case Update():
                told = (dict(change.values),)
            case _:
                told = (change.forget,)
        self.told.append((type(change).__name__.lower(), change.key, *told))
        return self.answer

    async def cancel(self, what: Filter | Pattern, /, *, forget: bool) -> int:
        self.told.append(("cancel", str(what), forget))
        return 0

    def acknowledge(self, number: int, entry: int, held: int = 0, bookmark: bytes = b"", /) -> None:
        more = (held, bookmark) if held or bookmark else ()
        self.told.append(("acknowledge", number, entry, *more))

    async def settled(self, patience: float, /) -> None:
        self.told.append(("settled", patience))
