"""`Registration`: a subscription as the house knows it; `Subscription` is the application's handle.

It owns all that belongs to one subscription: its filter and values, its keys in the engine, the
sequences of its pattern, what it owes its broker, and the queue that its events wait in. A change
is put in force here first, and told to the upstream then: each verb returns the upstream's answer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import msgspec

from palio.client.bookmarks import NO_NUMBERS, Bookmark, PatternReceipts
from palio.client.delivery_queue import DeliveryQueue, QueuedEvents
from palio.client.events import Event, Gap, Late
from palio.client.sequences import Sequences, composite
from palio.client.subscribing import check_values, frozen
from palio.client.upstream import Told, Upstream, log_refusal
from palio.errors import HandlerFailed, InvalidFilter, InvalidInput, PalioError
from palio.matching.protocol import Matcher
from palio.model.events import SEQ, TIME
from palio.model.filters import Filter
from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.parameters import check_kept
from palio.model.patterns import Occurrence, Pattern, Place, place_of
from palio.model.values import Bindings
from palio.protocol.messages import Replace, Subscribe, Unsubscribe, Update
from palio.protocol.receipts import NO_RECEIPTS, Receipts

__all__ = ["Registration", "SubscriptionOptions"]

logger: Final = logging.getLogger("palio")

KEPT_GAPS: Final = 1_000
"""Gaps that a subscription remembers; `lost` counts all events of all gaps."""


class SubscriptionOptions(msgspec.Struct, frozen=True, gc=False):
    """What a subscription was made with, besides filter, values and queue. It is let go at once, so
    the garbage collector need not visit it.
    """

    on_gap: Callable[[Gap], None] | None = None
    reorder_s: float | None = 0.0
    """How long a pattern waits for events that were overtaken; None: as it turns out."""
    durable: str = ""
    lease_s: float = 0.0
    is_automatic: bool = True
    """Whether asking for the next event acknowledges those before it."""
    by_brokers: bool = False
    """Whether brokers assemble it, if it is a pattern."""
    count: int | None = None
    """After how many events it ends by itself."""


class Registration:
    """One subscription. It is entered and left with its `Dispatcher`."""

    def __init__(
        self,
        number: int,
        what: Filter | Pattern,
        values: Bindings,
        matcher: Matcher,
        upstream: Upstream,
        queue: DeliveryQueue,
        options: SubscriptionOptions,
        on_end: Callable[[Registration], None],
    ) -> None:
        self.number = number
        self.what = what
        self.values = frozen(values)
        check_values(what, self.values)
        self.matcher = matcher
        self.queue = queue
        self.durable = options.durable
        self.lease_s = options.lease_s
        self._given_reorder_s = options.reorder_s
        self._by_brokers = options.by_brokers
        self._ended_at: Place | None = None
        """Where the last occurrence ended that brokers assembled: the next one lies beyond."""
        self.is_automatic = options.is_automatic
        self.receipts = NO_RECEIPTS
        """What is owed to the broker for events that were delivered."""
        self.sequences = self._begun()
        """Those of a pattern, in progress; None for a filter."""
        self._pattern_receipts: PatternReceipts | None = None
        if self.durable and self.sequences is not None:
            self._pattern_receipts = PatternReceipts(
                self.sequences, queue.capacity, self._acknowledge
            )
            self.receipts = self._pattern_receipts.occurrences
        elif self.durable:
            self.receipts = Receipts(partial(upstream.acknowledge, number))
        self.on_refused: Callable[[PalioError], None] | None = None
        """Who is told when it ends with an error and shares its queue with others."""
        self.version = 0
        """Counts changes of filter and parameters."""
        self.left = options.count
        """How many events more it hears; None for any number."""
        self.spurious = 0
        self.lost = 0
        self.late = 0
        self.gaps: tuple[Gap, ...] = ()
        self.closed = False
        self._upstream = upstream
        self._on_gap = options.on_gap
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        self._has_warned = False
        """Whether a warning says already that events come too late."""
        self.install()

    @property
    def by_brokers(self) -> bool:
        """Whether brokers assemble it: then no event is matched here."""
        return self._by_brokers and isinstance(self.what, Pattern)

    # --- changes ---

    def announce(self, text: str = "") -> Told:
        """Tell the upstream of a new subscription, whose filter was read from a text, if any: then
        it need not be written.
        """
        if not self._upstream.has_broker:
            return None
        number, text = self.number, text or str(self.what)
        values = self.values and dict(self.values)
        return self._upstream.tell(
            Subscribe(
                0, number, text, values, self.durable, self.lease_s, assembled=self.by_brokers
            )
        )

    @property
    def bound(self) -> Filter | Pattern:
        """What it hears now, with the values of its parameters."""
        return self.what.bind(self.values)

    def changed(self, values: Bindings) -> dict[str, Any]:
        """All values with some of them changed, refused if the filter cannot use them."""
        changed = {**self.values, **frozen(values)}
        check_values(self.what, changed)
        check_kept(self.values, changed)
        return changed

    def update(self, values: dict[str, Any]) -> Told:
        """Hear by values that were checked (`changed`), of the events that wait too."""
        changed = {name: each for name, each in values.items() if each is not self.values[name]}
        if not self.closed:
            self._rebind(values)
        self.values = values
        if self.sequences is not None:
            self.sequences.rebind(values)
        self.version += 1
        if not changed or self.closed:
            return None
        return self._upstream.tell(Update(0, self.number, changed))

    def replace(self, what: Filter | Pattern, values: dict[str, Any]) -> Told:
        """Hear something else under the same number. A pattern starts over."""
        if self.durable and isinstance(what, Pattern) != isinstance(self.what, Pattern):
            raise InvalidFilter(_OF_ANOTHER_KIND)
        before = self.what, self.values
        self.uninstall()
        self.what, self.values = what, values
        try:
            self.install()
        except BaseException:
            self.what, self.values = before
            self.install()
            raise
        ended, self.sequences = self.sequences, self._begun()
        if self._pattern_receipts is not None and self.sequences is not None and ended is not None:
            self.sequences.resume(ended.after, (), ended.reorder_s)
            self._pattern_receipts.go_on(self.sequences)
        self.version += 1
        if not self._upstream.has_broker:
            return None
        return self._upstream.tell(
            Replace(0, self.number, str(what), dict(values), assembled=self.by_brokers)
        )

    def leave(self, error: PalioError | None = None, *, forget: bool = False) -> Told:
        """Hear nothing more, and tell the upstream. See `end`."""
        told = None
        if not self.closed:
            told = self._upstream.tell(Unsubscribe(0, self.number, forget))
        self.end(error)
        return told

    def abandon(self, error: PalioError | None = None) -> None:
        """Leave without waiting for the upstream's answer."""
        log_refusal(self.leave(error))

    def end(self, error: PalioError | None = None) -> None:
        """Hear nothing more; what waits is still delivered, and then an error if there is one."""
        if not self.closed:
            self.closed = True
            self._on_end(self)
        self._stop_waiting()
        if error is not None and self.on_refused is not None:
            self.on_refused(error)
        else:
            self.queue.close(error)

    # --- the engine ---

    def _keyed(self, values: Bindings) -> Iterator[tuple[int, Filter, Bindings]]:
        """Its filters, each with the engine's key for it and its own values."""
        for key, each in enumerate(self._steps, start=self.number * MAX_PATTERN_STEPS):
            yield key, each, {name: values[name] for name in each.variables}

    def install(self) -> None:
        """Hand its filters to the engine, all or none."""
        added: list[int] = []
        try:
            for key, each, own in self._keyed(self.values):
                self.matcher.add(key, each, own)
                added.append(key)
        except BaseException:
            for key in added:
                self.matcher.remove(key)
            raise

    def _rebind(self, values: Bindings) -> None:
        """Let its filters have other values, all or none."""
        try:
            for key, _, own in self._keyed(values):
                if own:
                    self.matcher.bind(key, own)
        except BaseException:
            self.uninstall()
            self.install()
            raise

    def uninstall(self) -> None:
        """Take its filters out of the engine."""
        for key, _, _ in self._keyed(self.values):
            self.matcher.remove(key)

    # --- sequences of a pattern ---

    def _begun(self) -> Sequences | None:
        """The sequences of a pattern that nothing has come for yet."""
        if not isinstance(self.what, Pattern) or self.by_brokers:
            return None
        return Sequences(
            self.what, self.values, self._given_reorder_s, is_durable=bool(self.durable)
        )

    def assemble(self, events: Iterable[dict[str, Any]], publisher: str) -> QueuedEvents | None:
        """Take in events for the steps of the pattern: the sequences that are complete at once.

        Those that had to wait are queued by themselves.
        """
        sequences = self.sequences
        assert sequences is not None
        waits = sequences.reorder_s > 0
        now = asyncio.get_running_loop().time() if waits else 0.0
        found, late = sequences.push(events, publisher, now)
        if late is not None:
            self.lose(late)
        if waits or self._pattern_receipts is not None:
            self._queue(found)
            self._plan()
            found = []
        return QueuedEvents.made(self, publisher, found) if found else None

    def _queue(self, composites: Iterable[Event]) -> None:
        receipts = self._pattern_receipts
        for publisher, some in groupby(composites, lambda each: each.publisher):
            events = list(some)
            entry = None if receipts is None else receipts.expect(events)
            self.queue.offer(QueuedEvents.made(self, publisher, events, entry))

    def _plan(self) -> None:
        """See to it that what is held back is let go in time; one timer does for all of it."""
        wake = None if self.sequences is None else self.sequences.wake
        if wake is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(wake, self._let_go, wake)

    def _let_go(self, due: float) -> None:
        """Events have waited long enough, unless what goes before cannot come just now."""
        self._timer = None
        receipts = self._pattern_receipts
        is_stopped = receipts is not None and receipts.is_full
        if self.sequences is not None and self._upstream.is_listening and not is_stopped:
            # A timer may come a little early by the clock that it goes by.
            now = max(due, asyncio.get_running_loop().time())
            self._queue(self.sequences.advance(now))
            self._plan()
            if receipts is not None:
                receipts.tell()

    def wait_anew(self) -> None:
        """What could not come may come now, and before it nothing is let go."""
        if self.sequences is not None:
            self.sequences.wait_anew(asyncio.get_running_loop().time())
            self._plan()

    def _stop_waiting(self) -> None:
        """Nothing will come any more: queue what is complete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # What a durable pattern holds back comes again, with what goes before it.
        if self.sequences is not None and self._pattern_receipts is None:
            self._queue(self.sequences.flush())

    # --- a durable pattern ---

    def take_in(
        self, events: Sequence[dict[str, Any]], publisher: str, entry: int, size: int
    ) -> None:
        """Take in events for the steps of a durable pattern: all that are wanted of an entry of
        its queue (0: of none), which has so many bytes.
        """
        receipts = self._pattern_receipts
        assert receipts is not None
        self.assemble(receipts.came(events, publisher, entry, size), publisher)
        receipts.tell()

    def lost_entry(self, entry: int, publisher: str) -> Callable[[], None]:
        """An entry of its queue came without events: what is to be called once the gap for it is
        told, which acknowledges it.
        """
        if self._pattern_receipts is not None:
            return self._pattern_receipts.lost(entry)
        return self.receipts.make(self.receipts.expect(entry, publisher, NO_NUMBERS, 1)).give

    def _acknowledge(self, entry: int, held: int, bookmark: bytes) -> None:
        """Tell the broker, which may have stopped; what it has kept back goes before what waits."""
        self._upstream.acknowledge(self.number, entry, held, bookmark)
        if held and self._timer is None:
            self.wait_anew()

    def bookmarked(self, packed: bytes) -> None:
        """Somebody has left a bookmark under this name: go on from there, unless this is further.

        One that cannot be read, or of another pattern, starts over.
        """
        receipts, sequences = self._pattern_receipts, self._begun()
        if receipts is None or sequences is None:
            return
        try:
            mark = Bookmark.read(packed)
        except InvalidInput as error:
            logger.warning("subscription %s: %s", self.what, error)
            return
        if receipts.resume(mark, sequences):
            self.sequences, self.receipts = sequences, receipts.occurrences
            self.queue.discard(self)

    def start_over(self) -> None:
        """Events of its queue are lost: nothing that was found may span them."""
        if self._pattern_receipts is not None and self.sequences is not None:
            self.sequences.start_over()

    def renew(self) -> None:
        """The session is lost: what was not acknowledged will come again."""
        if self._pattern_receipts is not None:
            self._pattern_receipts.renew()
        else:
            self.receipts.renew()

    # --- what comes ---

    @property
    def _steps(self) -> tuple[Filter, ...]:
        """What single events are matched with here."""
        if isinstance(self.what, Filter):
            return (self.what,)
        return () if self.by_brokers else self.what.steps

    def concerns(self, event: Mapping[str, Any]) -> bool:
        """Whether an event, system columns and all, matches its filter or a step of its pattern."""
        return any(step.matches(event, self.values) for step in self._steps)

    def occurred(self, sequence: Sequence[Occurrence]) -> None:
        """Brokers have assembled an occurrence: it is queued, unless it overlaps the one before,
        as when two brokers tell of it, or is one of what was subscribed before.
        """
        first = place_of(sequence[0])
        if not self.by_brokers or (self._ended_at is not None and first <= self._ended_at):
            return
        event = composite(sequence)
        if self.still_wants(event):
            self._ended_at = place_of(sequence[-1])
            self.queue.offer(QueuedEvents.made(self, event.publisher, [event]))

    def still_wants(self, event: Event) -> bool:
        """See `Consumer`."""
        what = self.what
        if isinstance(what, Filter):
            wanted = not event.parts and what.matches(_seen(event), self.values)
        else:
            wanted = len(event.parts) == len(what.steps) and all(
                step.matches(_seen(part), self.values)
                for step, part in zip(what.steps, event.parts, strict=True)
            )
        if not wanted:
            self.spurious += 1
        return wanted

    def took(self, count: int) -> None:
        """See `Consumer`."""
        assert self.left is not None
        self.left -= count
        if not self.left and not self.closed:
            self.abandon()

    def lose(self, gap: Gap) -> None:
        """Events were lost: it is told before the next one."""
        if isinstance(gap, Late):
            self.late += gap.count
        self.queue.note(self, gap)

    def report(self, gap: Gap) -> None:
        """See `Consumer`."""
        self.lost += gap.count
        self.gaps = (*self.gaps, gap)[-KEPT_GAPS:]
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
            logger.warning("subscription %s: %s", self.what, gap)
        elif not self._has_warned:
            self._has_warned = True
            logger.warning(
                "subscription %s: %s; `late` counts further ones, on_gap= tells each",
                self.what,
                gap,
            )


_OF_ANOTHER_KIND: Final = (
    "a durable subscription to a filter stays one, and one to a pattern, too: take another name"
)


def _seen(event: Event) -> dict[str, Any]:
    """An event's attributes with the system columns, as filters see them."""
    return {**event, SEQ: event.seq, TIME: event.time}
