"""An upstream that keeps what it is told."""

from __future__ import annotations

import asyncio
from typing import Any

from palio.client.upstream import Change, PendingReply, Upstream
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.protocol.messages import Acknowledge, Nack, Replace, Subscribe, Update


class Recording(Upstream):
    """Each change is answered when the test says so."""

    has_broker = True

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.answer: asyncio.Future[Any] | None = None

    def send_change(self, change: Change, /) -> PendingReply:
        match change:
            case Subscribe() | Replace():
                sent: tuple[Any, ...] = change.filter, dict(change.values)
            case Update():
                sent = (dict(change.values),)
            case _:
                sent = (change.forget,)
        self.sent.append((type(change).__name__.lower(), change.key, *sent))
        return self.answer

    async def cancel(self, what: Filter | Pattern, /, *, delete: bool) -> int:
        self.sent.append(("cancel", str(what), delete))
        return 0

    def report(self, outcome: Acknowledge | Nack, /) -> None:
        if isinstance(outcome, Nack):
            self.sent.append(("nack", outcome.key, outcome.entry, outcome.seqs))
            return
        more = tuple(
            each for each in (outcome.held, outcome.bookmark, outcome.others, outcome.seqs) if each
        )
        self.sent.append(("acknowledge", outcome.key, outcome.entry, *more))

    async def settled(self, patience: float, /) -> None:
        self.sent.append(("settled", patience))
