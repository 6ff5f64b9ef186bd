"""Webhooks: a subscription's events posted to its sink, retried, and at last put aside.

1. Nobody is sent anything who did not agree: the sink is asked by `OPTIONS` first (CloudEvents HTTP
   webhooks, 4.1). `Sinks` decides which sinks the broker may call, and how.
2. language/webhooks.py classifies answers: taken, again, final, or gone, which ends the
   subscription.
3. What is not taken goes to the dead-letter address, or else to the log.
4. Every call has its id (`webhook-id`, `idempotency-key`) and the number of the try
   (`webhook-attempt`), so that a sink can drop duplicates; with a secret it is signed.
5. A call continues the trace of its events, if OpenTelemetry is installed.
6. An event is acknowledged to the broker only then: a sink that is away keeps the events
   of a durable subscription at its home; of others the oldest go, and a gap is sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from palio.errors import NotPermitted, PalioError
from palio.language.webhooks import Delay, Verdict, signature, structured, verdict
from palio.server.http.cursors import CursorFeed, Feeds, Item
from palio.server.http.subscriptions import Directory, HttpSubscription, sink_secret
from palio.server.webhooks.sinks import SinkAnswer, SinkFailed, Sinks
from palio.tracing import Tracing

logger: Final = logging.getLogger("palio.server")

AGAIN_S: Final = 5.0
"""After so long a webhook whose session ended begins another one."""


class NotTaken(NotPermitted):
    """A sink refuses to be sent events."""


class Gone(PalioError):
    """A sink answers that it is there no longer."""


async def ask_leave(sinks: Sinks, owner: str, sink: str, origin: str) -> None:
    """Ask a sink whether it agrees to be sent events from here; `NotTaken` if not.

    The owner gets the same error whatever the reason; the log has it.
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
    logger.warning("sink_refused", extra={"details": details})
    raise NotTaken(
        f"the sink {sink!r:.80} was refused or did not agree: webhooks.allow of the broker has to "
        f"allow its address, and it has to answer OPTIONS by 2xx with WebHook-Allowed-Origin: "
        f"{origin}; the broker's log has the reason"
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
        tracing: Tracing | None = None,
    ) -> None:
        self.subscription = subscription
        self._sinks = sinks
        self._sleep = sleep
        self._now = now
        self._tracing = tracing
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
                    return
                case Verdict.GONE:
                    raise Gone(f"the sink of subscription {self.subscription.id!r} is gone")
                case Verdict.FINAL:
                    break
                case Verdict.AGAIN:
                    retry_after = answer.headers.get("Retry-After", "")
        await self._put_aside(items, reason)

    async def _put_aside(self, items: Sequence[Item], reason: str) -> None:
        details = {"subscription": self.subscription.id, "events": len(items), "reason": reason}
        address = self.subscription.request.config.deadletter
        if address:
            try:
                answer = await self._post(address, items, 0)
                details["deadletter"] = f"status {answer.status}"
            except SinkFailed as error:
                details["deadletter"] = str(error)
        logger.warning("sink_delivery_failed", extra={"details": details})

    async def _post(self, address: str, items: Sequence[Item], attempt: int) -> SinkAnswer:
        request = self.subscription.request
        documents = [item.document for item in items]
        headers, body = structured(documents, as_batch=request.config.batch > 1)
        id = _id(self.subscription.id, items)
        headers |= {"webhook-id": id, "idempotency-key": id, "webhook-attempt": str(attempt + 1)}
        if self._secret:
            moment = int(self._now())
            headers["webhook-timestamp"] = str(moment)
            headers["webhook-signature"] = signature(self._secret, id, moment, body)
        headers = request.protocolsettings.get("headers", {}) | headers

        def send(context: Mapping[str, str]) -> Awaitable[SinkAnswer]:
            sent = {**headers, **context}
            return self._sinks.call(self.subscription.owner, "POST", address, sent, body)

        if self._tracing is None:
            return await send({})
        return await self._tracing.post(urlsplit(address).hostname or "", documents, send)


class Callers:
    """The webhooks of a front, one for each subscription with a sink."""

    def __init__(
        self,
        sinks: Sinks,
        directory: Directory,
        feeds: Feeds,
        remove: Callable[[HttpSubscription], Awaitable[None]],
    ) -> None:
        self._sinks = sinks
        self._directory = directory
        self._feeds = feeds
        self._remove = remove
        self._tracing = Tracing.if_installed()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def call(self, subscription: HttpSubscription) -> None:
        """Deliver to a sink, if there is one and nobody does yet."""
        if subscription.request.sink and subscription.id not in self._tasks:
            self._tasks[subscription.id] = asyncio.create_task(
                self._run(subscription.id, subscription.owner), name="webhook"
            )

    def hang_up(self, id: str) -> None:
        """Deliver it no longer."""
        task = self._tasks.pop(id, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Deliver nothing any longer."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, id: str, owner: str) -> None:
        """One session after another, as long as the subscription is there."""
        while (subscription := self._directory.find(id, owner)) is not None:
            try:
                feed = await self._feeds.listen(subscription)
                try:
                    await self._post(subscription, feed)
                finally:
                    self._feeds.left(id, feed)
            except PalioError as error:
                logger.warning("webhook_waiting", extra={"details": {"reason": str(error)}})
            except Exception:
                logger.exception("webhook_failed")
            await asyncio.sleep(AGAIN_S)

    async def _post(self, subscription: HttpSubscription, feed: CursorFeed) -> None:
        """Post what a feed gives until it ends; who is gone has no subscription any longer."""
        try:
            await Webhook(self._sinks, subscription, tracing=self._tracing).run(feed)
        except Gone as error:
            logger.warning("webhook_removed", extra={"details": {"reason": str(error)}})
            await self._remove(subscription)


def _id(subscription: str, items: Sequence[Item]) -> str:
    """The same for the same events, and for no others: a sink may pass over what it has had."""
    first, last = items[0], items[-1]
    end = "" if first is last else f"..{last.cursor}"
    return f"{subscription}/{first.cursor}{end}{'/gap' * any(item.is_gap for item in items)}"
