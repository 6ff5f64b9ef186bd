"""An upstream that keeps what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from palio.client.upstream import Announced, Told
from palio.model.filters import Filter
from palio.model.patterns import Pattern


class Recording:
    """See `palio.client.upstream.Upstream`; each change is answered when the test says so."""

    is_ready = True
    is_listening = True

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.answer: asyncio.Future[Any] | None = None

    def check_ready(self) -> None: ...

    def check_usable(self) -> None: ...

    def subscribe(self, wanted: Announced, text: str) -> Told:
        text = text or str(wanted.what)
        self.told.append(("subscribe", wanted.number, text, dict(wanted.values)))
        return self.answer

    def update(self, wanted: Announced, changed: Mapping[str, Any]) -> Told:
        self.told.append(("update", wanted.number, dict(changed)))
        return self.answer

    def replace(self, wanted: Announced) -> Told:
        self.told.append(("replace", wanted.number, str(wanted.what), dict(wanted.values)))
        return self.answer

    def withdraw(self, wanted: Announced, *, forget: bool) -> Told:
        self.told.append(("withdraw", wanted.number, forget))
        return self.answer

    async def cancel(self, what: Filter | Pattern, *, forget: bool) -> int:
        self.told.append(("cancel", str(what), forget))
        return 0

    def acknowledge(self, number: int, entry: int, held: int = 0, bookmark: bytes = b"") -> None:
        more = (held, bookmark) if held or bookmark else ()
        self.told.append(("acknowledge", number, entry, *more))

    async def settled(self, patience: float) -> None:
        self.told.append(("settled", patience))
