"""`Bridge`: events from Palio to another message system and back, each at least once.

```
  out   durable subscription -> send, confirmed by the other system -> ack to the broker
  in    take from the other system -> publish durably, receipt of the broker -> ack there
```

1. *Acks.* An end gets its ack once the other end has confirmed. After a crash in between it
   delivers again.
2. *Duplicates.* A message that leaves bears the id `PUBLISHER/NUMBER` of its event. One that enters
   is published with its own id as `dedup_id`, so that the broker drops it the second time.
3. *Loops.* The attribute `MARK` names the bridges that an event has passed, each at most once.
4. *Refusals.* An event that the other system refuses is delivered again later, and becomes a dead
   letter after `MAX_ATTEMPTS`. A message that Palio refuses becomes one at once; if that is
   refused, too, the bridge ends, and the message stays where it is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from palio.bridge.links import BATCH, ForeignLink, Message
from palio.client.connection import Client
from palio.client.events import Event
from palio.client.subscription import Subscription
from palio.errors import InvalidEvent, InvalidInput, NotAdvertised, NotPermitted, Unreachable
from palio.language.documents import read_json
from palio.language.http_events import data_of_program, from_json, json_value, to_json
from palio.language.webhooks import Delay
from palio.model.events import PAYLOAD, SEQ, TIME, is_system_name

MARK: Final = "paliobridge"
"""The attribute with the bridges that an event has passed, such as `north/south`: no name has a /,
and CloudEvents allow such names of attributes."""

DURABLE: Final = "bridge"
"""The name of the durable subscription; its owner distinguishes bridges."""

MAX_ATTEMPTS: Final = 10
"""Attempts to send an event, over about five minutes: by then a stream or queue may be there."""

LONGEST_PAUSE_S: Final = 60.0
"""The longest pause between two of these attempts, and between two to connect."""

COUNTS: Final = ("sent", "received", "looped", "refused", "dead_letters")
"""The counters: events that were confirmed by the other system, and by the broker; what had passed
before; attempts that the other system refused; dead letters."""

DRAIN_S: Final = 10.0
"""How long what is under way may take once the bridge is stopped."""

LETTER_BYTES: Final = 64 << 10
"""The begin of a message that its dead letter contains: it may have been refused for its size."""

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_SEPARATORS: Final = re.compile(r"[^\w-]")


class BridgeSettings(NamedTuple):
    """The directions of a bridge: out to `to`, if that is given, and in from `source`."""

    name: str
    filter: str = ""
    params: Mapping[str, Any] = {}
    to: str = ""
    source: str = ""
    as_cloud_events: bool = False


def address_of(template: str, event: Mapping[str, Any]) -> str:
    """Fill attributes into a template; what could separate levels or be a wildcard becomes `_`.

    >>> address_of("quotes.{symbol}.{size.x}", {"symbol": "BRK.A", "size.x": 7})
    'quotes.BRK_A.7'
    """

    def value(field: re.Match[str]) -> str:
        text = str(event.get(field[1], ""))
        if not text:
            raise InvalidEvent(f"no {field[1]!r:.80} for the address; add EXISTS to the filter")
        return _SEPARATORS.sub("_", text)

    return _FIELD.sub(value, template)


class Bridge:
    """Carries events in one or both directions until it is stopped."""

    def __init__(
        self,
        client: Client,
        connect: Callable[[str], AbstractAsyncContextManager[ForeignLink]],
        settings: BridgeSettings,
        report: Callable[[str], None],
        show_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.counts = Counter(dict.fromkeys(COUNTS, 0))
        self._client = client
        self._connect = connect
        self._settings = settings
        self._report = report
        self._show_progress = show_progress
        self._last_problem = ""
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Let `run` return once what is under way is acknowledged."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def run(self) -> None:
        """Carry events until `stop`, or until an error that no new connection mends."""
        directions = [(self._settings.to, self._run_out), (self._settings.source, self._run_in)]
        legs = [asyncio.create_task(run()) for address, run in directions if address]
        first: list[asyncio.Future[None]] = [self._stopped, *legs]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            await asyncio.wait(legs, timeout=DRAIN_S)
        finally:
            for leg in legs:
                leg.cancel()
            results = await asyncio.gather(*legs, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _over_links(
        self, source: str, carry: Callable[[ForeignLink], Awaitable[None]]
    ) -> None:
        """Carry over one link after another; pauses grow until events get through."""
        delay, progress = Delay(), self.counts.total()
        while not self._stopped.done():
            try:
                async with self._connect(source) as link:
                    self._report(f"connected; reads {source}" if source else "connected; sends")
                    await carry(link)
            except Unreachable as error:
                if progress != self.counts.total():
                    delay, progress = Delay(), self.counts.total()
                pause_s = min(delay.next_s(), LONGEST_PAUSE_S)
                self._report(f"{error}; connects again in {pause_s:g} s")
                await asyncio.wait({self._stopped}, timeout=pause_s)

    async def _unless_stopped(self, taking: Awaitable[Sequence[Any]]) -> Sequence[Any]:
        """Wait for the result; nothing once the bridge is stopped."""
        task = asyncio.ensure_future(taking)
        try:
            first: list[asyncio.Future[Any]] = [self._stopped, task]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return [] if self._stopped.done() else task.result()

    def _say(self, problem: str) -> None:
        """Report a problem, unless it is the one reported last."""
        if problem != self._last_problem:
            self._last_problem = problem
            self._report(problem)

    def _mark(self, attributes: Mapping[str, Any]) -> str:
        """Return the mark of an event that passes now; an empty text if it has passed before."""
        names = str(attributes.get(MARK) or "").split("/")
        if self._settings.name not in names:
            return "/".join(filter(None, [*names, self._settings.name]))
        self.counts["looped"] += 1
        self._say(
            f"left out what has passed a bridge named {self._settings.name!r} before; if that is "
            "another bridge, give this one a --name of its own"
        )
        return ""

    # --- out ---

    async def _run_out(self) -> None:
        subscription = await self._client.subscribe(
            self._settings.filter,
            self._settings.params,
            durable_name=DURABLE,
            ack="manual",
            max_attempts=MAX_ATTEMPTS,
            on_gap=lambda gap: self._report(str(gap)),
        )
        waiting: list[tuple[Event, Message]] = []
        """Those that the next link sends again if this one is lost."""

        async def carry(link: ForeignLink) -> None:
            while True:
                reasons = await link.send([message for _, message in waiting])
                for (event, _), reason in zip(waiting, reasons, strict=True):
                    if reason:
                        self._reject(event, reason)
                    else:
                        self.counts["sent"] += 1
                        event.ack()
                self._show_progress(self.counts.total())
                waiting.clear()
                if not (events := await self._unless_stopped(_events(subscription))):
                    return
                waiting.extend(self._messages_of(events))

        await self._over_links("", carry)

    def _reject(self, event: Event, reason: str) -> None:
        """Have an event delivered again later, or made a dead letter after the last attempt."""
        self._say(f"an event was not sent: {reason}")
        self.counts["refused"] += 1
        if event.receipt is not None:  # else nothing keeps it
            self.counts["dead_letters"] += event.attempt >= MAX_ATTEMPTS
            event.nack(min(2.0**event.attempt, LONGEST_PAUSE_S), reason)

    def _messages_of(self, events: Sequence[Event]) -> Iterator[tuple[Event, Message]]:
        """The messages of events, but of those that have passed before or have no address."""
        for event in events:
            try:
                if mark := self._mark(event):
                    yield event, self._message_of(event, mark)
                else:
                    event.ack()
            except InvalidInput as error:
                self._reject(event, str(error))

    def _message_of(self, event: Event, mark: str) -> Message:
        if self._settings.as_cloud_events:
            row = {**event, SEQ: event.seq, TIME: event.time, PAYLOAD: event.packed}
            document = to_json(row, event.publisher)
        else:
            document = json_value(data_of_program(event, event.packed))
        body = json.dumps(document | {MARK: mark}, ensure_ascii=False, separators=(",", ":"))
        address = address_of(self._settings.to, event)
        return Message(address, body.encode(), f"{event.publisher}/{event.seq}")

    # --- in ---

    async def _run_in(self) -> None:
        async def carry(link: ForeignLink) -> None:
            while messages := await self._unless_stopped(link.take()):
                await self._publish(messages)
                await link.ack(messages)
                self._show_progress(self.counts.total())

        await self._over_links(self._settings.source, carry)

    async def _publish(self, messages: Sequence[Message]) -> None:
        """Return once the broker has all events on its disk, or the dead letters of messages."""
        receipts = await asyncio.gather(*map(self._publish_one, messages), return_exceptions=True)
        for message, receipt in zip(messages, receipts, strict=True):
            if isinstance(receipt, InvalidInput | NotPermitted | NotAdvertised):
                await self._set_aside(message, receipt)
            elif isinstance(receipt, BaseException):
                raise receipt
            else:
                self.counts["received"] += receipt

    async def _publish_one(self, message: Message) -> bool:
        """Publish the event of a message, unless it has passed before."""
        try:
            document = read_json(message.body)
        except InvalidInput:
            raise
        except (ValueError, RecursionError) as error:
            raise InvalidEvent(f"not JSON: {error}; publish JSON objects") from None
        if not isinstance(document, dict):
            raise InvalidEvent(f"not an event: {document!r:.60}; publish JSON objects")
        if not (mark := self._mark(document)):
            return False
        event = document | {MARK: mark}
        if self._settings.as_cloud_events:
            event = from_json(event) | {MARK: mark}
        elif reserved := [name for name in event if is_system_name(name)]:
            raise InvalidEvent(f"attribute {reserved[0]!r:.80} belongs to Palio; rename it")
        await self._client.publish_nowait(event, durable=True, dedup_id=message.id or None)
        return True

    async def _set_aside(self, message: Message, error: Exception) -> None:
        """Publish a message as a dead letter."""
        self._say(f"a message of {message.address} becomes a dead letter: {error}")
        letter = {
            "dead_letter": f"{self._settings.name}/{DURABLE}",
            "dead_letter_reason": str(error),
            MARK: self._settings.name,
            "address": message.address,
            "bytes": len(message.body),
            "data": message.body[:LETTER_BYTES].decode(errors="backslashreplace"),
        }
        id = f"{message.id}/dead" if message.id else None
        await self._client.publish(letter, durable=True, dedup_id=id, timeout=None)
        self.counts["dead_letters"] += 1


async def _events(subscription: Subscription[Event]) -> list[Event]:
    """Wait for an event, and return it with those that have come, `BATCH` at most."""
    events = [await subscription.receive()]
    while subscription.pending and len(events) < BATCH:
        events.append(await subscription.receive())
    return events
