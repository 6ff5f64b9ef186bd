"""`Subscription`: the application's handle on a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

import pyarrow as pa

from palio.client.events import Event, Gap
from palio.client.registration import Registration
from palio.client.subscribing import as_filter, check_values, frozen, merged_values
from palio.client.upstream import PendingReply, Upstream, is_refusal, log_refusal
from palio.errors import Closed, InvalidEvent, PalioError
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
"""What a subscription receives: events, unless `as_=` says otherwise."""

SETTLE_TIMEOUT_S: Final = 5.0
"""How long `settled` waits for brokers that are not reached: a network that forms is whole soon."""


class SubscriptionView:
    """The current state of a subscription."""

    def __init__(self, of: Registration | SubscriptionView) -> None:
        self._registration: Registration = (
            of._registration if isinstance(of, SubscriptionView) else of
        )

    @property
    def filter(self) -> Filter | Pattern:
        """The filter or pattern that it receives events of."""
        return self._registration.what

    @property
    def params(self) -> Mapping[str, Any]:
        """The current values of its parameters."""
        return MappingProxyType(self._registration.values)

    @property
    def revision(self) -> int:
        """Counts changes of filter and parameters."""
        return self._registration.version

    @property
    def durable_name(self) -> str:
        """The name under which it outlives its session; empty for one that does not."""
        return self._registration.durable

    @property
    def reorder_timeout(self) -> float:
        """The time in seconds for which a pattern now waits for reordered events."""
        assembling = self._registration.assembling
        return 0.0 if assembling is None else assembling.sequences.reorder_s

    @property
    def is_closed(self) -> bool:
        """True if it receives no new events; those that wait may still be taken."""
        return self._registration.closed

    @property
    def pending(self) -> int:
        """Events in its queue."""
        return self._registration.queue.waiting

    @property
    def queue_size(self) -> int:
        """Events that its queue holds; beyond, the oldest are lost."""
        return self._registration.queue.queue_size

    @property
    def stale(self) -> int:
        """Events left out because they no longer matched when they were taken."""
        return self._registration.spurious

    @property
    def invalid(self) -> int:
        """Events left out because they cannot be read as the type that was given as `as_=`."""
        return self._registration.invalid

    @property
    def expired(self) -> int:
        """Events left out because the time that their publisher gave them (`ttl=`) had run out."""
        return self._registration.expired

    @property
    def dropped(self) -> int:
        """Events of all gaps reported: it fell behind, or they came too late for its pattern."""
        return self._registration.lost

    @property
    def late(self) -> int:
        """Events that came too late for the pattern and took no part, counted as they come."""
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

    It receives events, or the objects that `as_=` makes of them. An event that does not fit is left
    out, acknowledged and counted (`invalid`), and the first one is logged.

    One consumer at a time. `update` changes parameters, `replace` the filter; both keep the
    identity and the backlog, less events that no longer match.

    Events of a durable subscription are to be acknowledged. Automatically that happens when the
    consumer asks for the next event or batch, for all that it was given before, and when it leaves
    `async with subscription` without an error. With `ack="manual"` the consumer does it:
    `event.ack()`, or `subscription.ack()` for all that was taken.
    """

    def __init__(self, registration: Registration, upstream: Upstream, home: LoopAffinity) -> None:
        super().__init__(registration)
        self._queue = registration.queue
        self._upstream = upstream
        self._affinity = home

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("the subscription is closed; subscribe again")
        self._affinity.check()

    # --- changes ---

    async def update(self, values: Bindings | None = None, /, **named: Any) -> None:
        """Change parameters, all of them at once: `await sub.update(limit=20.0)`.

        A value that the filter cannot use, or of another kind than before, is refused, and then
        none is changed.
        """
        self._check_open()
        registration, values = self._registration, merged_values(values, named)
        changed, before = registration.changed(values), registration.values
        reply = registration.update(changed)
        await _answered(reply, partial(self._take_back, values, changed, before))

    def _take_back(self, refused: Iterable[str], changed: Bindings, before: Bindings) -> None:
        """The broker refused values that were in force here: those of before count again, where
        nobody has changed them since.
        """
        registration = self._registration
        now = registration.values
        again = {name: before[name] for name in refused if now.get(name) == changed[name]}
        if not registration.closed:
            log_refusal(registration.update({**now, **again}))

    def assign(self, values: Bindings) -> None:
        """`update` for callers that are not coroutines; it takes effect at once."""
        self._check_open()
        registration = self._registration
        changed, before = registration.changed(values), registration.values
        reply = registration.update(changed)
        log_refusal(reply, partial(self._take_back, values, changed, before))

    async def replace(
        self, filter: str | Filter | Pattern, values: Bindings | None = None, /, **named: Any
    ) -> None:
        """Change the filter from now on, under the same identity.

        Parameters that the new filter has too keep their values unless they are given. A pattern
        starts over.
        """
        self._check_open()
        registration, parsed = self._registration, as_filter(filter)
        kept = {name: value for name, value in self.params.items() if name in parsed.variables}
        changed = {**kept, **frozen(merged_values(values, named))}
        check_values(parsed, changed)
        before, before_values = registration.what, registration.values
        reply = registration.replace(parsed, changed)

        def take_back() -> None:
            if registration.what is parsed and not self.is_closed:
                log_refusal(registration.replace(before, before_values))

        await _answered(reply, take_back)

    async def settled(self, timeout: float = SETTLE_TIMEOUT_S) -> None:  # noqa: ASYNC109  # brokers are named at its end
        """Return when the subscription is in force wherever events are published.

        In one process that is at once. On a network `Unsettled` names brokers that could not be
        reached within `timeout` seconds; it will be in force there once they are back.
        """
        self._check_open()
        await self._upstream.settled(timeout)

    async def unsubscribe(self) -> None:
        """Receive nothing more; pending events are discarded.

        A durable subscription stays at its broker, which keeps its events until its name is
        subscribed to again; `delete` ends it for good.
        """
        await self._leave(delete=False)

    async def delete(self) -> None:
        """Unsubscribe; a durable subscription is over, and its broker keeps nothing for it."""
        await self._leave(delete=True)

    async def _leave(self, *, delete: bool) -> None:
        reply = self._registration.leave(delete=delete)
        self._queue.discard(self._registration)
        if reply is not None:
            await reply

    # --- receiving ---

    async def receive(self, timeout: float | None = None) -> Received:  # noqa: ASYNC109  # as SyncSubscription has it
        """The next event; `Closed` when there will be none, `TimeoutError` after so many seconds.

        An event that comes just then waits for the next call.
        """
        self._next_asked()
        return await _within(timeout, self._received())

    async def _received(self) -> Received:
        registration = self._registration
        while True:
            _, event = await self._queue.take_event()
            if registration.read is None:
                return cast(Received, event)
            try:
                received: Received = registration.read(event.payload)
            except InvalidEvent as error:
                registration.does_not_fit(event, error)
            else:
                return received

    def _next_asked(self) -> None:
        if not self._queue.waiting:  # it will wait, and is to be woken
            self._affinity.check()
        if self._registration.is_automatic:
            self._registration.receipts.finish()

    def ack(self, event: Event | None = None) -> None:
        """Acknowledge an event, or all that were taken."""
        if event is not None:
            event.ack()
        else:
            self._registration.receipts.finish()

    async def __aiter__(self) -> AsyncIterator[Received]:
        while True:
            try:
                received = await self.receive()
            except Closed:
                return
            yield received

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Events as record batches, with `$seq` and `$time` beside their attributes."""
        while True:
            try:
                batch = await self.receive_batch()
            except Closed:
                return
            yield batch

    async def parcels(self) -> AsyncIterator[Parcel]:
        """Yield batches with their publishers, as each publisher numbers its own events."""
        while True:
            self._next_asked()
            try:
                publisher, batch = await self._queue.take_batch()
            except Closed:
                return
            yield Parcel(publisher, batch)

    async def receive_batch(self, timeout: float | None = None) -> pa.RecordBatch:  # noqa: ASYNC109  # as `receive`
        """The next batch; `Closed` when there will be none, `TimeoutError` after so many seconds.

        A batch that comes just then waits for the next call.
        """
        self._next_asked()
        _, batch = await _within(timeout, self._queue.take_batch())
        return batch

    async def to_arrow(self, timeout: float = 0.0) -> pa.Table:  # noqa: ASYNC109  # as `receive`
        """All pending events, and those that come within so many seconds, as one table."""
        taken: list[pa.RecordBatch] = []
        with suppress(TimeoutError, Closed):
            async with asyncio.timeout(timeout):
                while True:
                    taken.append(await self.receive_batch())
        return table_of(taken)

    async def to_pandas(self, timeout: float = 0.0) -> Any:  # noqa: ASYNC109  # as `receive`
        """The same as a DataFrame of pandas."""
        return (await self.to_arrow(timeout)).to_pandas()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._next_asked()
        await self.unsubscribe()


async def _within(seconds: float | None, taking: Coroutine[Any, Any, Taken]) -> Taken:
    """Await what is taken from a queue, so many seconds long. Without a limit no loop is needed:
    `SyncSubscription` takes the rest of a closed bus without one.
    """
    if seconds is None:
        return await taking
    async with asyncio.timeout(seconds):
        return await taking


async def _answered(reply: PendingReply, take_back: Callable[[], None]) -> None:
    """Wait for the answer to a change that is in force here; refused, it is as it was before."""
    try:
        if reply is not None:
            await reply
    except PalioError as error:
        if is_refusal(error):
            take_back()
        raise


class LoopAffinity:
    """The loop of the first use, or of a later one when that loop runs no longer."""

    def __init__(self, owner: str) -> None:
        self._whose = owner
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Refuse to be used from another loop while its own runs: nobody there would be woken."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is self._loop:
            return
        if self._loop is not None and self._loop.is_running():
            raise PalioError(
                f"this {self._whose} belongs to another event loop; use it there, or a "
                "SyncBus or SyncClient, which any thread may call"
            )
        self._loop = here
