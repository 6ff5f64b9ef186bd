"""Webhooks: a subscription's events posted to its sink, retried, and at last put aside.

1. Nobody is sent anything who did not agree: the sink is asked by `OPTIONS` first (CloudEvents HTTP
   webhooks, 4.1). Whom the broker may call at all, and how, is the business of `Sinks`.
2. An answer means what language/webhooks.py says: taken, again, final, or gone, which ends the
   subscription.
3. What is not taken goes to the dead-letter address, or else to the log, and is counted.
4. Every call says which it is and which try (`webhook-id`, `idempotency-key`, `webhook-attempt`),
   so that a sink knows what it has had; with a secret it is signed.
5. The broker is told that an event was dealt with only then: a sink that is away keeps the events
   of a durable subscription at its home; of others the oldest go, and a gap is told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from palio.errors import NotPermitted, PalioError
from palio.language.webhooks import Delay, Verdict, signature, structured, verdict
from palio.server.http.cursors import CursorFeed, Item
from palio.server.http.subscriptions import HttpSubscription, sink_secret
from palio.server.webhooks.sinks import SinkAnswer, SinkFailed, Sinks

__all__ = ["Counts", "Gone", "NotTaken", "Webhook", "ask_leave"]

logger: Final = logging.getLogger("palio.server")


class NotTaken(NotPermitted):
    """A sink refuses to be sent events."""


class Gone(PalioError):
    """A sink says that it is there no longer."""


class Counts(msgspec.Struct):
    """The counts of a webhook's events by outcome."""

    taken: int = 0
    retried: int = 0
    dead: int = 0


async def ask_leave(sinks: Sinks, owner: str, sink: str, origin: str) -> None:
    """Ask a sink whether it agrees to be sent events from here; `NotTaken` if not.

    The owner is told the same whatever the reason; the log says which it was.
    """
    try:
        answer = await sinks.call(owner, "OPTIONS", sink, {"WebHook-Request-Origin": origin})
    except SinkFailed as error:
        reason = str(error)
    else:
        allowed = answer.headers.get("WebHook-Allowed-Origin", "")
        if answer.is_success and allowed in ("*", origin):
            return
        reason = f"status {answer.status}, WebHook-Allowed-Origin: {allowed:.80}"
    details = {"sink": f"{sink:.200}", "owner": owner, "reason": reason}
    logger.warning("a sink was refused", extra={"details": details})
    raise NotTaken(
        f"the sink {sink!r:.80} was refused or did not agree: webhooks.allow of the broker has to "
        f"allow its address, and it has to answer OPTIONS by 2xx with WebHook-Allowed-Origin: "
        f"{origin}; the broker's log says which it was"
    )


class Webhook:
    """Calls one sink with what a feed gives, until the sink is gone or the feed ends."""

    def __init__(
        self,
        sinks: Sinks,
        subscription: HttpSubscription,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.subscription = subscription
        self.counts = Counts()
        self._sinks = sinks
        self._sleep = sleep
        self._now = now
        self._secret = sink_secret(subscription.request)

    async def run(self, feed: CursorFeed) -> None:
        """Deliver; `Gone` if the sink wants no more."""
        async for items in feed.chunks(self.subscription.request.config.batch):
            await self._deliver(items)

    async def _deliver(self, items: Sequence[Item]) -> None:
        config = self.subscription.request.config
        delay = Delay()
        reason = retry_after = ""
        for attempt in range(config.attempts):
            if attempt:
                self.counts.retried += 1
                await self._sleep(delay.next_s(retry_after))
                retry_after = ""
            try:
                answer = await self._post(self.subscription.request.sink, items, attempt)
            except SinkFailed as error:
                reason = str(error)
                continue
            reason = f"status {answer.status}"
            match verdict(answer.status):
                case Verdict.TAKEN:
                    self.counts.taken += len(items)
                    return
                case Verdict.GONE:
                    raise Gone(f"the sink of subscription {self.subscription.id!r} is gone")
                case Verdict.FINAL:
                    break
                case Verdict.AGAIN:
                    retry_after = answer.headers.get("Retry-After", "")
        await self._put_aside(items, reason)

    async def _put_aside(self, items: Sequence[Item], reason: str) -> None:
        self.counts.dead += len(items)
        details = {"subscription": self.subscription.id, "events": len(items), "reason": reason}
        address = self.subscription.request.config.deadletter
        if address:
            try:
                answer = await self._post(address, items, 0)
                details["deadletter"] = f"status {answer.status}"
            except SinkFailed as error:
                details["deadletter"] = str(error)
        logger.warning("a sink did not take events", extra={"details": details})

    async def _post(self, address: str, items: Sequence[Item], attempt: int) -> SinkAnswer:
        request = self.subscription.request
        said, body = structured(
            [item.document for item in items], as_batch=request.config.batch > 1
        )
        id = _id(self.subscription.id, items)
        said |= {"webhook-id": id, "idempotency-key": id, "webhook-attempt": str(attempt + 1)}
        if self._secret:
            moment = int(self._now())
            said["webhook-timestamp"] = str(moment)
            said["webhook-signature"] = signature(self._secret, id, moment, body)
        headers = request.protocolsettings.get("headers", {}) | said
        return await self._sinks.call(self.subscription.owner, "POST", address, headers, body)


def _id(subscription: str, items: Sequence[Item]) -> str:
    """The same for the same events, and for no others: a sink may pass over what it has had."""
    first, last = items[0], items[-1]
    end = "" if first is last else f"..{last.cursor}"
    return f"{subscription}/{first.cursor}{end}{'/gap' * any(item.is_gap for item in items)}"
