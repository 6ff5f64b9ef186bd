"""A standing subscription: what it hears, the current values of its parameters, and its queue."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from palio.client.events import Event, Gap, Late
from palio.client.inbox import Chunk, Inbox
from palio.client.sequences import Sequences
from palio.client.waiting import DONE, in_background
from palio.errors import (
    Closed,
    HandlerFailed,
    InvalidBinding,
    InvalidFilter,
    InvalidInput,
    PalioError,
)
from palio.model.events import SEQ, TIME
from palio.model.filters import Filter
from palio.model.parameters import check_kept
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.messages import Parcel
from palio.protocol.receipts import NO_RECEIPTS

if TYPE_CHECKING:
    from palio.client.audience import Audience

__all__ = [
    "SETTLE_PATIENCE_S",
    "Subscription",
    "check_durable",
    "check_on_gap",
    "frozen",
    "given_values",
]

_log: Final = logging.getLogger("palio")

SETTLE_PATIENCE_S: Final = 5.0
"""How long `settled` waits for brokers that cannot be told: a network that forms is whole soon."""

KEPT_GAPS: Final = 1_000
"""Gaps that a subscription remembers; `lost` counts all events of all gaps."""


class Subscription:
    """What `subscribe` returns: iterate over it to receive.

        async for event in subscription: ...
        async for batch in subscription.batches(): ...

    One consumer at a time. `update` changes parameters, `replace` the filter; both keep the
    identity and what waits, less what no longer matches.

    Events of a durable subscription are to be acknowledged. Automatically that happens when the
    consumer asks for the next event or batch, for all that it was given before, and when it leaves
    `async with subscription` without an error. With `acknowledge="explicit"` it is the consumer's
    to say: `await event.ack()`, or `await subscription.ack()` for all that was taken.
    """

    def __init__(
        self,
        audience: Audience,
        what: Filter | Pattern,
        values: Bindings,
        inbox: Inbox,
        on_gap: Callable[[Gap], None] | None,
        durable: str = "",
        *,
        reorder_s: float = 0.0,
    ) -> None:
        self._audience = audience
        self._what = what
        self._values = frozen(values)
        self._inbox = inbox
        self._on_gap = on_gap
        self._on_end: Callable[[Subscription, PalioError], None] | None = None
        """Who is told when it ends with an error and shares its queue with others."""
        self._receipts = NO_RECEIPTS
        self._is_automatic = True
        self.durable = durable
        """The name under which it outlives its session; empty for one that does not."""
        self.reorder_s = reorder_s
        """How long a pattern waits for events that were overtaken on their way."""
        self._sequences = self._begun(what)
        self._timer: asyncio.TimerHandle | None = None
        self.version = 0
        """Counts changes of filter and parameters."""
        self.spurious = 0
        """Events left out because they no longer matched when they were taken."""
        self.lost = 0
        """Events of all gaps told: it fell behind, or they came too late for its pattern."""
        self.late = 0
        """Events that came too late for the pattern and took no part, counted as they come."""
        self._has_warned = False
        """Whether a warning says already that events come too late."""
        self.gaps: deque[Gap] = deque(maxlen=KEPT_GAPS)
        """The gaps reported so far, newest last."""
        self.closed = False

    @property
    def filter(self) -> Filter | Pattern:
        """What it hears."""
        return self._what

    @property
    def values(self) -> Mapping[str, Any]:
        """The current values of its parameters."""
        return MappingProxyType(self._values)

    @property
    def waiting(self) -> int:
        """Events in its queue."""
        return self._inbox.waiting

    async def update(self, values: Bindings | None = None, /, **named: Any) -> None:
        """Change parameters, all of them at once: `await sub.update(limit=20.0)`.

        A value that the filter cannot use, or of another kind than before, is refused, and then
        none is changed.
        """
        self._check_open()
        values = given_values(values, named)
        before = {name: self._values[name] for name in values if name in self._values}
        in_force = self._put_in_force(self._changed(values))
        try:
            await in_force
        except InvalidInput:
            self._take_back(values, before)
            raise

    def _take_back(self, refused: Bindings, before: Bindings) -> None:
        """The broker refused values that were in force here: those of before count again."""
        if self.closed:
            return
        now = frozen(refused)
        restored = {
            name: value for name, value in before.items() if self._values[name] == now[name]
        }
        in_background(self._put_in_force({**self._values, **restored}))

    def assign(self, values: Bindings) -> None:
        """`update` for callers that are not coroutines; it takes effect at once."""
        self._check_open()
        in_background(self._put_in_force(self._changed(values)))

    def _changed(self, values: Bindings) -> dict[str, Any]:
        """All values with some of them changed, refused if the filter cannot use them."""
        changed = {**self._values, **frozen(values)}
        self._audience._check(self._what, changed)
        check_kept(self._values, changed)
        return changed

    def _put_in_force(self, values: Bindings) -> Awaitable[None]:
        """Hear by values that were checked, of those that wait too.

        Here that is at once; what is returned is done when it is so at the broker.
        """
        in_force: Awaitable[None] = DONE
        if not self.closed:
            in_force = self._audience._rebind(self, values)
        self._values.update(values)
        if self._sequences is not None:
            self._sequences.rebind(self._values)
        self.version += 1
        return in_force

    async def replace(
        self, filter: str | Filter | Pattern, values: Bindings | None = None, /, **named: Any
    ) -> None:
        """Hear something else from now on, under the same identity.

        Parameters that the new filter has too keep their values unless they are given. A pattern
        starts over.
        """
        self._check_open()
        audience = self._audience
        what = audience._understood(filter)
        kept = {name: value for name, value in self._values.items() if name in what.variables}
        changed = {**kept, **frozen(given_values(values, named))}
        audience._check(what, changed)
        if self.durable:
            check_durable(what)
        before, before_values = self._what, self._values
        in_force = audience._exchange(self, what, changed)
        self._now_hears(what, changed)
        try:
            await in_force
        except InvalidInput:
            if self._what is what and not self.closed:  # refused by the broker: as it was before
                in_background(audience._exchange(self, before, before_values))
                self._now_hears(before, before_values)
            raise

    def _now_hears(self, what: Filter | Pattern, values: dict[str, Any]) -> None:
        self._what = what
        self._values = values
        self._sequences = self._begun(what)
        self.version += 1

    # --- sequences of a pattern ---

    def _begun(self, what: Filter | Pattern) -> Sequences | None:
        """The sequences of a pattern that nothing has come for yet."""
        if not isinstance(what, Pattern):
            return None
        return Sequences(what, self._values, self.reorder_s)

    def _assemble(self, events: Iterable[dict[str, Any]], publisher: str) -> list[Event]:
        """Take in events for the steps of the pattern: the sequences that are complete at once.

        Those that had to wait are queued by themselves.
        """
        sequences = self._sequences
        assert sequences is not None
        now = asyncio.get_running_loop().time() if self.reorder_s else 0.0
        found, late = sequences.push(events, publisher, now)
        if late is not None:
            self.late += late.count
            self._inbox.note(self, late)
        if not self.reorder_s:
            return found
        self._queue(found)
        self._plan()
        return []

    def _queue(self, composites: Iterable[Event]) -> None:
        for publisher, some in groupby(composites, lambda each: each.publisher):
            self._inbox.offer(Chunk.made(self, publisher, list(some)))

    def _plan(self) -> None:
        """See to it that what is held back is let go in time; one timer does for all of it."""
        wake = None if self._sequences is None else self._sequences.wake
        if wake is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(wake, self._let_go, wake)

    def _let_go(self, due: float) -> None:
        """Events have waited long enough, unless what goes before cannot come just now."""
        self._timer = None
        if self._sequences is not None and self._audience._is_listening():
            # A timer may come a little early by the clock that it goes by.
            now = max(due, asyncio.get_running_loop().time())
            self._queue(self._sequences.advance(now))
            self._plan()

    def _wait_anew(self) -> None:
        """What could not come may come now, and before it nothing is let go."""
        if self._sequences is not None:
            self._sequences.wait_anew(asyncio.get_running_loop().time())
            self._plan()

    def _stop_waiting(self) -> None:
        """Nothing will come any more: queue what is complete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sequences is not None:
            self._queue(self._sequences.flush())

    async def settled(self, patience: float = SETTLE_PATIENCE_S) -> None:
        """Return when the subscription is in force wherever events are published.

        In one process that is at once. On a network `Unsettled` names brokers that could not be
        told, not even after `patience` seconds; it will be in force there once they are back.
        """
        self._check_open()
        await self._audience._settled(patience)

    async def receive(self, timeout: float | None = None) -> Event:  # noqa: ASYNC109  # as SyncSubscription has it
        """The next event; `Closed` when there will be none, `TimeoutError` after so many seconds.

        An event that comes just then waits for the next call.
        """
        self._next_asked()
        if timeout is None:
            _, event = await self._inbox.take_event()
        else:
            async with asyncio.timeout(timeout):
                _, event = await self._inbox.take_event()
        return event

    def _next_asked(self) -> None:
        if not self._inbox.waiting:  # it will wait, and is to be woken
            self._audience._check_home()
        if self._is_automatic:
            self._receipts.finish()

    async def ack(self, event: Event | None = None) -> None:
        """Say that an event, or all that were taken, have been dealt with."""
        if event is not None:
            await event.ack()
        else:
            self._receipts.finish()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            try:
                event = await self.receive()
            except Closed:
                return
            yield event

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Events as record batches, with `$seq` and `$time` beside their attributes."""
        while True:
            try:
                batch = await self.receive_batch()
            except Closed:
                return
            yield batch

    async def parcels(self) -> AsyncIterator[Parcel]:
        """The same with their publishers, each of whom numbers its events for itself."""
        while True:
            self._next_asked()
            try:
                publisher, batch = await self._inbox.take_batch()
            except Closed:
                return
            yield Parcel(publisher, batch)

    async def receive_batch(self) -> pa.RecordBatch:
        """The next batch; `Closed` when there will be none."""
        self._next_asked()
        _, batch = await self._inbox.take_batch()
        return batch

    async def unsubscribe(self, *, forget: bool = False) -> None:
        """Hear nothing more; what waits is discarded.

        A durable subscription stays at its broker, which keeps its events for when its name is
        subscribed to again; `forget` ends it for good.
        """
        withdrawn: Awaitable[None] = DONE
        if not self.closed:
            withdrawn = self._audience._withdraw(self, forget=forget)
        self._finish()
        self._inbox.discard(self)
        await withdrawn

    def _finish(self, error: PalioError | None = None) -> None:
        """Hear nothing more; what waits is still delivered, and then an error if there is one."""
        self._audience._forget(self)
        self.closed = True
        self._stop_waiting()
        if error is not None and self._on_end is not None:
            self._on_end(self, error)
        else:
            self._inbox.close(error)

    def _leave(self) -> None:
        """Hear nothing more, and tell the broker without waiting for it."""
        if not self.closed:
            in_background(self._audience._withdraw(self, forget=False))
        self._finish()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the subscription is closed; subscribe again")

    def concerns(self, event: Mapping[str, Any]) -> bool:
        """Whether an event, system columns and all, matches its filter or a step of its pattern."""
        what = self._what
        steps = (what,) if isinstance(what, Filter) else what.steps
        return any(step.matches(event, self._values) for step in steps)

    def still_wants(self, event: Event) -> bool:
        """Whether an event that waited matches under the parameters of now; counted if not."""
        what = self._what
        if isinstance(what, Filter):
            wanted = not event.parts and what.matches(_seen(event), self._values)
        else:
            wanted = len(event.parts) == len(what.steps) and all(
                step.matches(_seen(part), self._values)
                for step, part in zip(what.steps, event.parts, strict=True)
            )
        if not wanted:
            self.spurious += 1
        return wanted

    def report(self, gap: Gap) -> None:
        """Tell the consumer what it lost."""
        self.lost += gap.count
        self.gaps.append(gap)
        if self._on_gap is None:
            self._warn(gap)
            return
        try:
            answer: object = self._on_gap(gap)
        except Exception as error:
            raise HandlerFailed(f"on_gap raised {type(error).__name__}: {error}") from error
        if inspect.iscoroutine(answer):
            answer.close()
            raise HandlerFailed("on_gap gave a coroutine, which nobody awaits; call create_task")

    def _warn(self, gap: Gap) -> None:
        """Log a gap that nobody asked to be told of; of late events the first, as many may come."""
        if not isinstance(gap, Late):
            _log.warning("subscription %s: %s", self._what, gap)
        elif not self._has_warned:
            self._has_warned = True
            _log.warning(
                "subscription %s: %s; `late` counts further ones, on_gap= tells each",
                self._what,
                gap,
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._next_asked()
        await self.unsubscribe()

    def __repr__(self) -> str:
        return f"<Subscription to {self._what}, {self.waiting} waiting>"


def check_on_gap(on_gap: object) -> None:
    """Refuse what cannot be called with a gap, or would never run."""
    if on_gap is None:
        return
    if not callable(on_gap):
        raise InvalidInput(f"on_gap is called with a Gap; {on_gap!r:.40} cannot be called")
    if inspect.iscoroutinefunction(on_gap):
        raise InvalidInput("on_gap is an ordinary function; an `async def` would never run")


def check_durable(what: Filter | Pattern) -> None:
    """Refuse a pattern where its beginning would be forgotten with this program."""
    if isinstance(what, Pattern):
        raise InvalidFilter(
            "a durable subscription takes a filter; a pattern's partial match lives in the client, "
            "so subscribe to its steps and keep what you need"
        )


def _seen(event: Event) -> dict[str, Any]:
    """An event's attributes with the system columns, as filters see them."""
    return {**event, SEQ: event.seq, TIME: event.time}


def frozen(values: Bindings) -> dict[str, Any]:
    """Values that nobody can change behind a subscription's back: collections are copied."""
    return {
        name: tuple(value) if isinstance(value, list | set) else value
        for name, value in values.items()
    }


def given_values(values: Bindings | None, named: Bindings) -> Bindings:
    """The values of parameters that were given in a mapping, by name, or both; each of them once.

    >>> given_values({"values": 1}, {"limit": 10})
    {'values': 1, 'limit': 10}
    """
    if values is None:
        return named
    if not isinstance(values, Mapping):
        raise InvalidInput(
            f"values of parameters are a mapping, such as {{'values': {values!r:.40}}}, "
            f"not {type(values).__name__}"
        )
    twice = sorted(values.keys() & named.keys())
    if twice:
        raise InvalidBinding(
            f"parameter :{twice[0]} is given by name and in the mapping; give it once",
            name=twice[0],
        )
    return {**values, **named}
