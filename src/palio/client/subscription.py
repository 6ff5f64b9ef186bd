"""`Subscription`, the application's handle on a subscription: receive events and change the filter.

`SubscriptionView` shows the state of its `Registration`. A change applies here at once, and is
rolled back if the broker refuses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

from palio.client.events import Event, Gap
from palio.client.registration import Registration
from palio.client.subscribing import as_filter, check_values, freeze_params, merged_values
from palio.client.upstream import PendingReply, Upstream, is_refusal, log_refusal
from palio.engine import pa, require
from palio.errors import Closed, InvalidEvent, InvalidInput, PalioError
from palio.model import html
from palio.model.events import table_of
from palio.model.filters import Filter
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.messages import Parcel

Taken = TypeVar("Taken")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Received = TypeVarWithDefault("Received", default=Event)
else:
    Received = TypeVar("Received")
"""The type of the objects received: `Event`, unless `as_=` sets another."""

SETTLE_TIMEOUT_S: Final = 5.0
"""How long `settled` waits for unreachable brokers: a starting network is connected by then."""


class SubscriptionView:
    """The current state of a subscription."""

    def __init__(self, of: Registration | SubscriptionView) -> None:
        self._registration: Registration = (
            of._registration if isinstance(of, SubscriptionView) else of
        )

    @property
    def filter(self) -> Filter | Pattern:
        """The filter or pattern whose events it receives."""
        return self._registration.what

    @property
    def params(self) -> Mapping[str, Any]:
        """The current values of its parameters."""
        return MappingProxyType(self._registration.values)

    @property
    def revision(self) -> int:
        """The number of changes of filter and parameters so far."""
        return self._registration.version

    @property
    def durable_name(self) -> str:
        """The name of a durable subscription, which outlives its session; otherwise empty."""
        return self._registration.durable

    @property
    def reorder_timeout(self) -> float:
        """The time in seconds for which a pattern now waits for reordered events."""
        assembling = self._registration.assembling
        return 0.0 if assembling is None else assembling.sequences.reorder_s

    @property
    def is_closed(self) -> bool:
        """True if it receives no new events; pending ones can still be received."""
        return self._registration.closed

    @property
    def is_blocked(self) -> bool:
        """True if more events wait at the broker until some of those received are acknowledged: its
        window of a durable subscription has been full for ten seconds.
        """
        return self._registration.is_blocked

    @property
    def pending(self) -> int:
        """Events in its queue."""
        return self._registration.queue.waiting

    @property
    def queue_size(self) -> int:
        """The maximum of events in its queue; when it is full, the oldest are dropped."""
        return self._registration.queue.queue_size

    @property
    def stale(self) -> int:
        """Events left out because the filter or its parameters had changed since they arrived."""
        return self._registration.spurious

    @property
    def invalid(self) -> int:
        """Events left out because they do not fit the type given as `as_=`."""
        return self._registration.invalid

    @property
    def expired(self) -> int:
        """Events left out because they had expired (`ttl=` of their publisher)."""
        return self._registration.expired

    @property
    def dropped(self) -> int:
        """Events of all gaps reported: lost as the consumer was slow, or too late for a pattern."""
        return self._registration.lost

    @property
    def late(self) -> int:
        """Events that came too late for the pattern and were left out, counted on arrival."""
        return self._registration.late

    @property
    def gaps(self) -> list[Gap]:
        """The gaps reported so far, newest last; the last 1,000 of them."""
        return list(self._registration.gaps)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.filter}, {self.pending} pending>"

    def _repr_html_(self) -> str:
        shown: dict[str, object] = {"filter": html.code(self.filter)}
        shown |= {f":{name}": repr(value) for name, value in self.params.items()}
        if self.durable_name:
            shown["durable name"] = self.durable_name
        shown |= {"pending": self.pending, "dropped": self.dropped, "closed": self.is_closed}
        return html.table(shown)


class Subscription(SubscriptionView, Generic[Received]):
    """A subscription as `subscribe` returns it: iterate over it to receive.

        async for event in subscription: ...
        async for batch in subscription.batches(): ...

    It receives events, or objects of the type `as_=`. An event that does not fit the type is left
    out, acknowledged and counted (`invalid`), and the first one is logged.

    One consumer at a time. `update` changes parameters, `replace` the filter; both keep the
    identity and the backlog, less events that no longer match.

    The consumer has to acknowledge the events of a durable subscription. By default, asking for the
    next event or batch acknowledges all received before, and so does leaving
    `async with subscription` without an error. With `ack="manual"` the consumer itself calls
    `event.ack()`, or `subscription.ack()` for all received so far. `subscription.nack()` rejects
    the event received last, which `subscription.event` is, also where objects are received.
    """

    def __init__(
        self, registration: Registration, upstream: Upstream, affinity: LoopAffinity
    ) -> None:
        super().__init__(registration)
        self._queue = registration.queue
        self._upstream = upstream
        self._affinity = affinity
        self._event: Event | None = None

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("the subscription is closed; subscribe again")
        self._affinity.check()

    # --- changes ---

    async def update(self, values: Bindings | None = None, /, **named: Any) -> None:
        """Change parameters, all of them at once: `await sub.update(limit=20.0)`.

        If the filter cannot use a value, or its kind differs from the one before, the update is
        refused and no parameter changes.
        """
        self._check_open()
        registration, values = self._registration, merged_values(values, named)
        changed, before = registration.changed(values), registration.values
        reply = registration.update(changed)
        await _confirmed(reply, partial(self._roll_back, values, changed, before))

    def _roll_back(self, refused: Iterable[str], changed: Bindings, before: Bindings) -> None:
        """Restore each parameter that the broker refused, unless it was changed again meanwhile."""
        registration = self._registration
        current = registration.values
        restored = {name: before[name] for name in refused if current.get(name) == changed[name]}
        if not registration.closed:
            log_refusal(registration.update({**current, **restored}))

    def assign(self, values: Bindings) -> None:
        """Change parameters at once, as `update` does, but without waiting for the broker.

        It is for callers that are not coroutines. If the broker refuses, the values are restored
        and the refusal is logged, not raised.
        """
        self._check_open()
        registration = self._registration
        changed, before = registration.changed(values), registration.values
        reply = registration.update(changed)
        log_refusal(reply, partial(self._roll_back, values, changed, before))

    async def replace(
        self, filter: str | Filter | Pattern, values: Bindings | None = None, /, **named: Any
    ) -> None:
        """Change the filter of this subscription; its queue and durable name stay.

        Parameters that the new filter shares with the old keep their values, unless they are given.
        A pattern starts over.
        """
        self._check_open()
        registration, parsed = self._registration, as_filter(filter)
        shared = {name: value for name, value in self.params.items() if name in parsed.variables}
        changed = {**shared, **freeze_params(merged_values(values, named))}
        check_values(parsed, changed)
        before, before_values = registration.what, registration.values
        reply = registration.replace(parsed, changed)

        def roll_back() -> None:
            if registration.what is parsed and not self.is_closed:
                log_refusal(registration.replace(before, before_values))

        await _confirmed(reply, roll_back)

    async def settled(self, timeout: float = SETTLE_TIMEOUT_S) -> None:  # noqa: ASYNC109  # brokers are named at its end
        """Return when the subscription is in force wherever events are published.

        In one process that is at once. On a network, `Unsettled` names the brokers that could not
        be reached within `timeout` seconds; they apply it once they are back.
        """
        self._check_open()
        await self._upstream.settled(timeout)

    async def unsubscribe(self) -> None:
        """Receive nothing more; pending events are discarded.

        The broker keeps a durable subscription, and stores its events for the next `subscribe` with
        its name; `delete` ends it for good.
        """
        await self._leave(delete=False)

    async def delete(self) -> None:
        """Unsubscribe, and delete a durable subscription and its stored events from the broker."""
        await self._leave(delete=True)

    async def _leave(self, *, delete: bool) -> None:
        reply = self._registration.leave(delete=delete)
        self._queue.discard(self._registration)
        if reply is not None:
            await reply

    # --- receiving ---

    async def receive(self, timeout: float | None = None) -> Received:  # noqa: ASYNC109  # as SyncSubscription has it
        """Return the next event. Raise `Closed` at the end, `TimeoutError` after `timeout` seconds.

        An event that arrives at the timeout is not lost: the next call returns it.
        """
        self._before_receive()
        return await within(timeout, self._received())

    async def _received(self) -> Received:
        registration = self._registration
        while True:
            _, event = await self._queue.take_event()
            self._event = event
            if registration.read is None:
                return cast(Received, event)
            try:
                received: Received = registration.read(event.payload)
            except InvalidEvent as error:
                registration.does_not_fit(event, error)
            else:
                return received

    def _before_receive(self) -> None:
        if not self._queue.waiting:  # the caller will wait, and another loop could not wake it
            self._affinity.check()
        if self._registration.is_automatic:
            self._registration.receipts.finish()

    @property
    def event(self) -> Event:
        """The event received last. With `as_=`, the one that the last object was made from."""
        if self._event is None:
            raise InvalidInput("no event was received yet; call this after `receive`")
        return self._event

    def ack(self, event: Event | None = None) -> None:
        """Acknowledge an event, or all received so far."""
        if event is not None:
            event.ack()
        else:
            self._registration.receipts.finish()

    def nack(self, event: Event | None = None, *, delay: float = 0.0, reason: str = "") -> None:
        """Reject an event, or the one received last (see `Event.nack`)."""
        (self.event if event is None else event).nack(delay, reason)

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            try:
                received = await self.receive()
            except Closed:
                return
            yield received

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield events as record batches, with `$seq` and `$time` beside their attributes."""
        while True:
            try:
                batch = await self.receive_batch()
            except Closed:
                return
            yield batch

    async def parcels(self) -> AsyncIterator[Parcel]:
        """Yield batches with their publishers, as each publisher numbers its own events."""
        require("to receive batches")
        while True:
            self._before_receive()
            try:
                publisher, batch = await self._queue.take_batch()
            except Closed:
                return
            yield Parcel(publisher, batch)

    async def receive_batch(self, timeout: float | None = None) -> pa.RecordBatch:  # noqa: ASYNC109  # as `receive`
        """Return the next batch. Raise `Closed` at the end, `TimeoutError` after `timeout` seconds.

        A batch that arrives at the timeout is not lost: the next call returns it.
        """
        require("receive_batch")
        self._before_receive()
        _, batch = await within(timeout, self._queue.take_batch())
        return batch

    async def to_arrow(self, timeout: float = 0.0) -> pa.Table:  # noqa: ASYNC109  # as `receive`
        """Return all pending events, and those received within `timeout` seconds, as one table."""
        batches: list[pa.RecordBatch] = []
        with suppress(TimeoutError, Closed):
            async with asyncio.timeout(timeout):
                while True:
                    batches.append(await self.receive_batch())
        return table_of(batches)

    async def to_pandas(self, timeout: float = 0.0) -> Any:  # noqa: ASYNC109  # as `receive`
        """Return `to_arrow` as a DataFrame of pandas."""
        return (await self.to_arrow(timeout)).to_pandas()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._before_receive()
        await self.unsubscribe()


async def within(seconds: float | None, taking: Coroutine[Any, Any, Taken]) -> Taken:
    """Await an event or batch of a queue; `TimeoutError` at a time limit, if one is given.

    Without a limit no event loop is needed: `SyncSubscription` empties the queue of a closed bus
    without one.
    """
    if seconds is None:
        return await taking
    try:
        async with asyncio.timeout(seconds):
            return await taking
    except TimeoutError:
        raise TimeoutError(f"nothing came within {seconds:g} s") from None


async def _confirmed(reply: PendingReply, roll_back: Callable[[], None]) -> None:
    """Wait for the reply to a change already in force here; if it is refused, roll it back."""
    try:
        if reply is not None:
            await reply
    except PalioError as error:
        if is_refusal(error):
            roll_back()
        raise


class LoopAffinity:
    """Binds an object to the event loop of its first use, until that loop stops running."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Refuse use from another loop while the first one runs: events wake only the first."""
        try:
            current = asyncio.get_running_loop()
        except RuntimeError:
            return
        if current is self._loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise PalioError(
                f"this {self._owner} belongs to another event loop; use it there, or a "
                "SyncBus or SyncClient, which any thread may call"
            )
        self._loop = current
