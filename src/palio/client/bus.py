"""`Bus`: publish and subscribe inside one process, with the verbs of the network client.

The bus does its work within the call: when `publish` returns, every event is in the queue of every
subscription that it matches. It belongs to one event loop; other threads use `palio.SyncBus`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Unpack, overload

from palio.client.arrivals import Arrival
from palio.client.base_bus import BaseBus
from palio.client.delivery_queue import DEFAULT_QUEUE_SIZE
from palio.client.dispatcher import Dispatcher
from palio.client.events import Event, Gap, PublishReceipt
from palio.client.outgoing import Forms, Marks, Publishable, lone, marks_of, parcels
from palio.client.registration import SubscriptionOptions
from palio.client.subscribing import BusOptions, as_filter, given_params
from palio.client.subscription import Subscription
from palio.client.typed import Typed, check_as
from palio.client.upstream import Upstream
from palio.errors import InvalidInput
from palio.matching.protocol import Matcher
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.model.patterns import Pattern
from palio.protocol.names import check_name
from palio.protocol.published_ids import PublishedIds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
"""The least difference between two publication times."""


_NOTHING_KEPT: Final = "a bus keeps nothing beyond its process; use palio.connect"


def _now() -> datetime:
    return datetime.now(UTC)


class Bus(BaseBus[Upstream]):
    """An embedded bus.

    >>> import asyncio, palio
    >>> async def main():
    ...     async with palio.Bus() as bus:
    ...         sub = await bus.subscribe("symbol = 'IBM' AND price < :limit", {"limit": 10.0})
    ...         await bus.publish({"symbol": "IBM", "price": 9.5})
    ...         return dict(await sub.receive())
    >>> asyncio.run(main())
    {'symbol': 'IBM', 'price': 9.5}
    """

    def __init__(
        self, *, matcher: Matcher | None = None, clock: Callable[[], datetime] = _now
    ) -> None:
        upstream = Upstream()
        super().__init__(Dispatcher(upstream, matcher), upstream, reorder_timeout=0.0)
        self._clock = clock
        self._last_time: datetime | None = None
        self._seqs: dict[str, int] = {}
        self._forms = Forms()
        self._ids = PublishedIds()

    @overload
    async def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        as_: type[Typed],
        **options: Unpack[BusOptions],
    ) -> Subscription[Typed]: ...

    @overload
    async def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[BusOptions],
    ) -> Subscription[Event]: ...

    async def subscribe(
        self,
        filter: str | Filter | Pattern,
        params: Mapping[str, Any] | None = None,
        *,
        queue_size: int = DEFAULT_QUEUE_SIZE,
        max_events: int | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        replace_covered: bool = False,
        as_: type | None = None,
    ) -> Subscription[Any]:
        """Subscribe to the events that match from now on.

        `params` maps the filter's parameters to their values. `queue_size` bounds the events that
        wait for the consumer; a slow one loses the oldest, which `on_gap` reports. After
        `max_events` events the subscription ends by itself. `replace_covered` ends all others that
        this one covers, as `cancel` does.

        `as_` is a type whose objects are received instead of events: a dataclass, a struct of
        msgspec, a model of pydantic, a `TypedDict`. An event that does not fit is left out; it
        counts as `invalid`.
        """
        parsed = as_filter(filter)
        read = check_as(as_, is_pattern=isinstance(parsed, Pattern))
        options = SubscriptionOptions(on_gap, max_events=max_events, read=read)
        registration, reply = self._register(parsed, given_params(params), queue_size, options)
        return await self._in_force(registration, reply, replace_covered=replace_covered)

    def _check_unused(self, durable_name: str) -> None:
        raise InvalidInput(f"durable_name={durable_name!r} is for brokers: {_NOTHING_KEPT}")

    async def publish(
        self,
        events: Publishable,
        *,
        publisher: str = "bus",
        durable: bool = False,
        ttl: float | None = None,
        dedup_id: str | None = None,
    ) -> PublishReceipt:
        """Publish one event, several, or a record batch; return once they are in the queues.

        Numbers are given per publisher. Everything of one call has one publication time, later than
        that of the call before. If anything is wrong with one event, none is published. After `ttl`
        seconds the events are not delivered any more. An event whose `dedup_id` the publisher has
        given before, among the last 100,000, is not published again. `durable` is there to be
        refused: a bus keeps nothing.
        """
        self._check_open()
        if durable:
            raise InvalidInput(f"durable= is for brokers: {_NOTHING_KEPT}")
        if not isinstance(publisher, str) or publisher not in self._seqs:
            check_name(publisher, "a publisher")
        time = self._next_time()
        before = last = self._seqs.get(publisher, 0)
        matches, listed = [], self._parcels(events, marks_of(ttl, dedup_id, time))
        keys = self._ids.keys(publisher, [dedup_id])
        if dedup_id is not None and not all(self._ids.first_time(keys)):
            return PublishReceipt(last + 1, last, 0)
        for parcel in listed:
            whole = parcel.stamped(publisher, last + 1, (time - _EPOCH) // _TICK)
            last += len(parcel)
            matches.append(self._dispatcher.wanted(Arrival(whole), range(len(parcel))))
        self._seqs[publisher] = last
        self._last_time = time
        deliveries, is_crowded = 0, False
        for wanted in matches:
            count, crowded = self._dispatcher.queue(wanted)
            deliveries += count
            is_crowded |= crowded
        if is_crowded:
            await asyncio.sleep(0)  # let consumers run before more is published
        return PublishReceipt(before + 1, last, deliveries)

    def _parcels(self, events: Publishable, marks: Marks) -> list[Parcel]:
        """Events as parcels; a single event is not made a batch, which costs more than all else."""
        form = self._forms.of(events) if type(events) is dict and not marks else None
        single = None if form is None else lone(*form)
        if single is not None:
            return [single]
        return parcels(events, marks)

    def _next_time(self) -> datetime:
        """Now, or just after the last publication if the clock has not moved on since.

        Patterns go by this order, and it is the order of publication.
        """
        now = self._clock()
        return now if self._last_time is None else max(now, self._last_time + _TICK)
