"""`Audience`: those who listen at one place, an embedded bus or a client's end of a network.

It has the engine that finds out who wants an event, the subscriptions with their queues, the
monitors of patterns and the handlers of subscribers. What feeds it is its heirs' affair: `Bus`
hands it what is published there, `Client` what its broker delivers. An heir that has somebody to
tell of changes overrides `_announce`, `_rebind`, `_exchange`, `_withdraw` and `_settled`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.client.events import Gap
from palio.client.inbox import DEFAULT_CAPACITY, Chunk, Inbox
from palio.client.subscriber import Subscriber
from palio.client.subscription import Subscription, check_on_gap, frozen, given_values
from palio.client.waiting import DONE
from palio.errors import Closed, InvalidBinding, InvalidFilter, InvalidInput, PalioError
from palio.language.parsing import parse
from palio.matching.index import Index
from palio.matching.protocol import Matcher, Matches
from palio.model.events import rows
from palio.model.filters import Filter
from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.parameters import check_given
from palio.model.parcels import Parcel
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.receipts import Entry

__all__ = ["Audience", "new_matcher"]

AnySubscriber = TypeVar("AnySubscriber", bound=Subscriber)

COPY_SHARE: Final = 4
"""Rows are copied for a queue where no more than one in so many matches."""


def new_matcher() -> Matcher:
    """An engine that compiles and merges beside the loop; a program may end before it has."""
    return Index(submit=_in_background)


def _in_background(job: Callable[[], Any]) -> None:
    threading.Thread(target=job, name="palio-engine", daemon=True).start()


class Audience:
    """Subscriptions, the engine over them, and handlers."""

    def __init__(self, matcher: Matcher | None) -> None:
        self._matcher = new_matcher() if matcher is None else matcher
        self._subscriptions: dict[int, Subscription] = {}
        self._numbers: dict[Subscription, int] = {}
        self._next_number = 0
        self._attached: dict[Subscriber, asyncio.Task[None]] = {}
        self._closed = False
        self._reorder_s = 0.0
        """How long patterns wait for events that were overtaken, unless a subscription says."""
        self._home: asyncio.AbstractEventLoop | None = None
        """The loop that it is used on."""

    # --- subscriptions ---

    async def subscribe(
        self,
        filter: str | Filter | Pattern,
        values: Bindings | None = None,
        *,
        capacity: int = DEFAULT_CAPACITY,
        on_gap: Callable[[Gap], None] | None = None,
        **parameters: Any,
    ) -> Subscription:
        """Hear what matches from now on.

        Parameters are given by name (`limit=10.0`), in a mapping (`{"limit": 10.0}`), or both: the
        mapping takes those with the name of an option. `capacity` bounds the events that wait; what
        a slow consumer loses is told to `on_gap`.
        """
        inbox = Inbox(capacity)
        given = given_values(values, parameters)
        return await self._announced(self._subscribe(filter, given, inbox, on_gap))

    def _subscribe(
        self,
        filter: str | Filter | Pattern,
        values: Bindings,
        inbox: Inbox,
        on_gap: Callable[[Gap], None] | None,
        durable: str = "",
        *,
        reorder_s: float | None = None,
    ) -> Subscription:
        self._check_open()
        check_on_gap(on_gap)
        what = self._understood(filter)
        values = frozen(values)
        self._check(what, values)
        wait_s = self._reorder_s if reorder_s is None else reorder_s
        subscription = Subscription(self, what, values, inbox, on_gap, durable, reorder_s=wait_s)
        number = self._next_number
        self._numbers[subscription] = number
        try:
            self._install(subscription, what, values)
        except BaseException:
            del self._numbers[subscription]
            raise
        self._next_number += 1
        self._subscriptions[number] = subscription
        return subscription

    async def _announced(self, subscription: Subscription) -> Subscription:
        """A new subscription once it is in force; gone again if it is refused."""
        try:
            await self._announce(subscription)
        except BaseException:
            subscription._leave()
            raise
        return subscription

    def _understood(self, filter: str | Filter | Pattern) -> Filter | Pattern:
        """A filter from its text, or as it is."""
        if isinstance(filter, str):
            return parse(filter)
        if isinstance(filter, Filter | Pattern):
            return filter
        raise InvalidFilter(
            f"a subscription takes a text, a Filter or a Pattern, not {type(filter).__name__}"
        )

    def _check(self, what: Filter | Pattern, values: Bindings) -> None:
        """Refuse values that a filter has no parameter for, lacks or cannot use."""
        unknown = sorted(set(values) - what.variables)
        if unknown:
            listed = ", ".join(f":{each}" for each in sorted(what.variables)) or "none"
            raise InvalidBinding(
                f"the filter has no parameter :{unknown[0]}; it has {listed}", name=unknown[0]
            )
        check_given(what, values)

    # --- changes, and whom they are told ---

    def _announce(self, subscription: Subscription) -> Awaitable[None]:
        """Tell whoever must know of a new subscription; done once it is in force there."""
        del subscription
        return DONE

    def _rebind(self, subscription: Subscription, values: Bindings) -> Awaitable[None]:
        """Put changed values in force: here at once, elsewhere when it is done."""
        matcher = self._matcher_of(subscription)
        for key, _, own in _keyed(self._numbers[subscription], subscription.filter, values):
            if own:
                matcher.bind(key, own)
        return DONE

    def _exchange(
        self, subscription: Subscription, what: Filter | Pattern, values: Bindings
    ) -> Awaitable[None]:
        """Put another filter in the place of a subscription's own."""
        self._uninstall(subscription)
        self._install(subscription, what, values)
        return DONE

    def _withdraw(self, subscription: Subscription, *, forget: bool) -> Awaitable[None]:
        """Tell whoever was told of a subscription that it has ended."""
        del subscription, forget
        return DONE

    def _settled(self, patience: float) -> Awaitable[None]:
        """Done when all subscriptions are in force wherever events are published."""
        del patience
        return DONE

    def _is_listening(self) -> bool:
        """Whether events can come just now."""
        return True

    def _matcher_of(self, subscription: Subscription) -> Matcher:
        """The engine that has a subscription's filters."""
        del subscription
        return self._matcher

    def _install(
        self, subscription: Subscription, what: Filter | Pattern, values: Bindings
    ) -> None:
        """Hand a subscription's filters to the engine, with values that were checked."""
        matcher = self._matcher_of(subscription)
        for key, each, own in _keyed(self._numbers[subscription], what, values):
            matcher.add(key, each, own)

    def _uninstall(self, subscription: Subscription) -> None:
        matcher, number = self._matcher_of(subscription), self._numbers[subscription]
        for key, _, _ in _keyed(number, subscription.filter, subscription.values):
            matcher.remove(key)

    def _forget(self, subscription: Subscription) -> None:
        """Take a subscription out: it hears nothing more."""
        if subscription in self._numbers:
            self._uninstall(subscription)
            del self._subscriptions[self._numbers.pop(subscription)]

    # --- events ---

    def _hand_out(
        self,
        publisher: str,
        matched: Iterable[tuple[pa.RecordBatch, Matches]],
        entry: Entry | None = None,
    ) -> tuple[int, bool]:
        """Queue stamped batches for those who match: how many deliveries, and whether a queue
        fills up.
        """
        deliveries, crowded = 0, False
        for batch, matches in matched:
            for inbox, chunk in _in_order(self._chunks(batch, matches, publisher, entry)):
                deliveries += len(chunk)
                inbox.offer(chunk)
                crowded |= inbox.waiting * 2 > inbox.capacity
        return deliveries, crowded

    def _hand_out_lone(self, parcel: Parcel, numbers: Iterable[int]) -> None:
        """Queue an event that came by itself for subscriptions, by number."""
        chunks = [self._lone_chunk(self._subscriptions[each], parcel) for each in numbers]
        for inbox, chunk in _in_order(chunk for chunk in chunks if len(chunk)):
            inbox.offer(chunk)

    def _lone_chunk(self, subscription: Subscription, parcel: Parcel) -> Chunk:
        if subscription._sequences is None:
            return Chunk.lone(subscription, parcel)
        assert parcel.event is not None
        composites = subscription._assemble([parcel.event], parcel.publisher)
        return Chunk.made(subscription, parcel.publisher, composites)

    def _chunks(
        self, batch: pa.RecordBatch, matches: Matches, publisher: str, entry: Entry | None
    ) -> Iterator[Chunk]:
        """What a stamped batch brings to each subscription."""
        for number, selected in _by_subscription(matches):
            subscription = self._subscriptions[number]
            if subscription._sequences is None:
                kept, places = _kept(batch, selected)
                chunk = Chunk(subscription, publisher, kept, places, entry=entry)
            else:
                chosen = rows(batch, selected.tolist())
                composites = subscription._assemble(chosen, publisher)
                chunk = Chunk.made(subscription, publisher, composites)
            if len(chunk):
                yield chunk

    # --- handlers ---

    async def attach(self, subscriber: AnySubscriber) -> AnySubscriber:
        """Subscribe every `@on` handler of a subscriber, and run them as events come."""
        self._check_open()
        if not isinstance(subscriber, Subscriber):
            raise InvalidInput(_no_subscriber(subscriber))
        task = subscriber._start(self._subscribe)
        self._attached[subscriber] = task
        task.add_done_callback(lambda _: self._ended(subscriber, task))
        try:
            for announced in [self._announce(each) for each in subscriber._subscriptions]:
                await announced
        except BaseException:
            task.cancel()
            raise
        return subscriber

    def _ended(self, subscriber: Subscriber, task: asyncio.Task[None]) -> None:
        if self._attached.get(subscriber) is task:
            del self._attached[subscriber]

    async def detach(self, subscriber: Subscriber) -> None:
        """Let a subscriber's handlers deal with what waits for them, then hear nothing more.

        Called from a handler it does not wait, as the handlers go on only after it.
        """
        task = self._attached.get(subscriber)
        if task is not None:
            subscriber._stop()
            await self._wait_for([task])

    async def close(self) -> None:
        """Take no more events; consumers receive what waits for them, then end.

        It waits for the handlers of attached subscribers, unless one of them is the caller.
        """
        self._closed = True
        for subscription in list(self._numbers):
            subscription._finish()
        await self._wait_for(list(self._attached.values()))

    async def _wait_for(self, tasks: list[asyncio.Task[None]]) -> None:
        if tasks and asyncio.current_task() not in self._attached.values():
            await asyncio.wait(tasks)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the {type(self).__name__.lower()} is closed; make a new one")
        self._check_home()

    def _check_home(self) -> None:
        """Refuse to be used from another loop while its own runs: nobody there would be woken."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is self._home:
            return
        if self._home is not None and self._home.is_running():
            raise PalioError(
                f"this {type(self).__name__} belongs to another event loop; use it there, or a "
                "SyncBus or SyncClient, which any thread may call"
            )
        self._home = here

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {len(self._numbers)} subscriptions>"


def _no_subscriber(given: object) -> str:
    if isinstance(given, type) and issubclass(given, Subscriber):
        return f"attach takes an object, not its class; write attach({given.__name__}())"
    return f"attach takes a palio.Subscriber, not {type(given).__name__}"


def _keyed(
    number: int, what: Filter | Pattern, values: Bindings
) -> Iterator[tuple[int, Filter, Bindings]]:
    """The filters of a subscription, each with the matcher's key for it and its own values."""
    steps = what.steps if isinstance(what, Pattern) else (what,)
    for step, each in enumerate(steps):
        yield (
            number * MAX_PATTERN_STEPS + step,
            each,
            {name: values[name] for name in each.variables},
        )


def _by_subscription(matches: Matches) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Matches by the number of the subscription, with the rows that match, each once."""
    numbers = matches.keys // MAX_PATTERN_STEPS
    order = np.argsort(numbers, kind="stable")
    numbers, found = numbers[order], matches.rows[order]
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(bounds):
        if start < end:
            selected = found[start:end]
            if (np.diff(selected) <= 0).any():  # several steps of a pattern want the same event
                selected = np.unique(selected)
            yield int(numbers[start]), selected


def _kept(
    batch: pa.RecordBatch, selected: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows that a queue keeps: a copy where few match, so that it does not hold all others."""
    if len(selected) * COPY_SHARE > batch.num_rows:
        return batch, selected
    return batch.take(selected), np.arange(len(selected))


def _in_order(chunks: Iterable[Chunk]) -> Iterator[tuple[Inbox, Chunk]]:
    """Chunks with the queues they go to; where subscriptions share one, event by event."""
    queues: dict[Inbox, list[Chunk]] = {}
    for chunk in chunks:
        queues.setdefault(chunk.subscription._inbox, []).append(chunk)
    for inbox, own in queues.items():
        if len(own) == 1:
            yield inbox, own[0]
            continue
        singles = [single for chunk in own for single in chunk.singles()]
        for single in sorted(singles, key=lambda each: each.first_seq):
            yield inbox, single
