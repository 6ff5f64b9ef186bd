"""`Registration`: the state of a subscription; `Subscription` is the application's handle.

It owns the state of one subscription: filter and values, keys in the engine, the pattern in
progress, pending acks, and the queue of its events. A change is in force here first, and is then
sent upstream: each method returns the pending reply.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from palio.client.assembling import Assembling
from palio.client.delivery_queue import DeliveryQueue, QueuedEvents
from palio.client.events import Event, Gap, LateGap
from palio.client.sequences import composite
from palio.client.subscribing import NOT_DURABLE, DurablePolicy, check_values, freeze_params
from palio.client.typed import Reader
from palio.client.upstream import PendingReply, Upstream, log_refusal
from palio.errors import HandlerFailed, InvalidEvent, InvalidFilter, PalioError
from palio.matching.protocol import Matcher
from palio.model.events import SEQ, TIME
from palio.model.filters import Filter
from palio.model.limits import MAX_PATTERN_STEPS
from palio.model.parameters import check_kept
from palio.model.patterns import Occurrence, Pattern, Place, place_of
from palio.model.values import Bindings
from palio.protocol.messages import Replace, Subscribe, Unsubscribe, Update
from palio.protocol.receipts import NO_RECEIPTS, Receipts

logger: Final = logging.getLogger("palio")

KEPT_GAPS: Final = 1_000
"""Gaps that a subscription remembers; `lost` counts all events of all gaps."""


class SubscriptionOptions(msgspec.Struct, frozen=True, gc=False):
    """The options of a subscription, besides filter, values and queue. They are dropped at once, so
    the garbage collector need not visit them.
    """

    on_gap: Callable[[Gap], None] | None = None
    reorder_timeout: float | None = 0.0
    """How long a pattern waits for events that were overtaken; None adapts to the delays."""
    durable: DurablePolicy = NOT_DURABLE
    is_automatic: bool = True
    """Whether asking for the next event acknowledges those before it."""
    by_brokers: bool = False
    """Whether brokers assemble it, if it is a pattern."""
    max_events: int | None = None
    """After how many events it ends by itself."""
    read: Reader | None = None
    """What makes an object of an event's payload, if the consumer takes objects (`as_=`)."""


class Registration:
    """One subscription. It is entered and left with its `Dispatcher`."""

    def __init__(
        self,
        number: int,
        filter: Filter | Pattern,
        values: Bindings,
        matcher: Matcher,
        upstream: Upstream,
        queue: DeliveryQueue,
        options: SubscriptionOptions,
        on_end: Callable[[Registration], None],
    ) -> None:
        self.number = number
        self.what = filter
        self.values = freeze_params(values)
        check_values(filter, self.values)
        self.matcher = matcher
        self.queue = queue
        self.durable = options.durable.name
        self._policy = options.durable
        self._reorder_s = options.reorder_timeout
        self._by_brokers = options.by_brokers
        self._ended_at: Place | None = None
        """Where the last occurrence ended that brokers assembled: the next one begins later."""
        self.is_automatic = options.is_automatic
        self.receipts = NO_RECEIPTS
        """The pending acks of delivered events."""
        if self.durable:
            self.receipts = Receipts(upstream.report, number)
        self.on_refused: Callable[[PalioError], None] | None = None
        """Called when it ends with an error while others share its queue."""
        self.version = 0
        """Counts changes of filter and parameters."""
        self.left = options.max_events
        """How many events more it receives; None for any number."""
        self.read = options.read
        self.is_blocked = False
        self.invalid = 0
        self.expired = 0
        self.spurious = 0
        self.lost = 0
        self.late = 0
        self.gaps: tuple[Gap, ...] = ()
        self.closed = False
        self._upstream = upstream
        self._on_gap = options.on_gap
        self._on_end = on_end
        self._has_logged_late = False
        self.assembling: Assembling | None = None
        """The pattern at work; None for a filter, and where brokers assemble it."""
        self._set_pattern()
        self.install()

    @property
    def by_brokers(self) -> bool:
        """True if brokers assemble it: then no event is matched here."""
        return self._by_brokers and isinstance(self.what, Pattern)

    # --- changes ---

    def announce(self, text: str = "") -> PendingReply:
        """Send a new subscription upstream, whose filter was read from a text, if any: then
        it need not be written.
        """
        if not self._upstream.has_broker:
            return None
        number, text = self.number, text or str(self.what)
        values = self.values and dict(self.values)
        durable, retention_s, ack_timeout_s, max_attempts, is_group, order_by, since_us = (
            self._policy
        )
        return self._upstream.send_change(
            Subscribe(
                *(0, number, text, values, durable, retention_s),
                assembled=self.by_brokers,
                ack_timeout_s=ack_timeout_s,
                max_attempts=max_attempts,
                group=is_group,
                order_by=order_by,
                since_us=since_us,
            )
        )

    @property
    def bound(self) -> Filter | Pattern:
        """The filter or pattern with the current values of its parameters."""
        return self.what.bind(self.values)

    def changed(self, values: Bindings) -> dict[str, Any]:
        """All values with some of them changed, refused if the filter cannot use them."""
        changed = {**self.values, **freeze_params(values)}
        check_values(self.what, changed)
        check_kept(self.values, changed)
        return changed

    def update(self, values: dict[str, Any]) -> PendingReply:
        """Bind parameters to values that were checked (`changed`), for waiting events too."""
        changed = {name: value for name, value in values.items() if value is not self.values[name]}
        if not self.closed:
            self._rebind(values)
        self.values = values
        if self.assembling is not None:
            self.assembling.rebind(values)
        self.version += 1
        if not changed or self.closed:
            return None
        return self._upstream.send_change(Update(0, self.number, changed))

    def replace(self, filter: Filter | Pattern, values: dict[str, Any]) -> PendingReply:
        """Change the filter under the same number. A pattern starts over."""
        if self.durable and isinstance(filter, Pattern) != isinstance(self.what, Pattern):
            raise InvalidFilter(_OF_ANOTHER_KIND)
        before = self.what, self.values
        self.uninstall()
        self.what, self.values = filter, values
        try:
            self.install()
        except BaseException:
            self.what, self.values = before
            self.install()
            raise
        self._set_pattern()
        self.version += 1
        if not self._upstream.has_broker:
            return None
        return self._upstream.send_change(
            Replace(0, self.number, str(filter), dict(values), assembled=self.by_brokers)
        )

    def leave(self, error: PalioError | None = None, *, delete: bool = False) -> PendingReply:
        """Unsubscribe upstream, and end."""
        reply = None
        if not self.closed:
            self.receipts.flush()
            reply = self._upstream.send_change(Unsubscribe(0, self.number, delete))
        self.end(error)
        return reply

    def abandon(self, error: PalioError | None = None) -> None:
        """Leave without waiting for the upstream's answer."""
        log_refusal(self.leave(error))

    def end(self, error: PalioError | None = None) -> None:
        """Take no more events; those that wait are delivered, then an error if there is one."""
        if not self.closed:
            self.receipts.flush()
            self.closed = True
            self._on_end(self)
        if self.assembling is not None:
            self.assembling.stop()
        if error is not None and self.on_refused is not None:
            self.on_refused(error)
        else:
            self.queue.close(error)

    def does_not_fit(self, event: Event, error: InvalidEvent) -> None:
        """An event cannot be read as the type that the consumer takes: it is dealt with, counted,
        and the first one logged.
        """
        event.ack()
        self.invalid += 1
        if self.invalid == 1:
            logger.warning(
                "event %d of %r does not fit as_= of the subscription to %s and is left out: %s; "
                "`invalid` of the subscription counts these",
                *(event.seq, event.publisher, self.what, error),
            )

    # --- the engine ---

    def _keyed(self, values: Bindings) -> Iterator[tuple[int, Filter, Bindings]]:
        """Its filters, each with the engine's key for it and its own values."""
        for key, step in enumerate(self._steps, start=self.number * MAX_PATTERN_STEPS):
            yield key, step, {name: values[name] for name in step.variables}

    def install(self) -> None:
        """Hand its filters to the engine, all or none."""
        added: list[int] = []
        try:
            for key, step, own in self._keyed(self.values):
                self.matcher.add(key, step, own)
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

    # --- a pattern, and what is durable ---

    def _set_pattern(self) -> None:
        """Start, replace or stop the local matching, whichever the new filter needs."""
        assembling = self.assembling
        if not isinstance(self.what, Pattern) or self.by_brokers:
            if assembling is not None:
                assembling.cancel()
            self.assembling = None
        elif assembling is not None:
            assembling.replace(self.what, self.values)
        else:
            self.assembling = new = Assembling(
                self, self._upstream, self.what, self.values, self._reorder_s
            )
            if new.receipts is not None:
                self.receipts = new.receipts.occurrences

    def bookmarked(self, packed: bytes) -> None:
        """Resume from a bookmark that another client left under this name, if it is further."""
        assembling = self.assembling
        if assembling is not None and assembling.resume(packed):
            assert assembling.receipts is not None
            self.receipts = assembling.receipts.occurrences
            self.queue.discard(self)

    def renew(self) -> None:
        """Expect the redelivery of unacked events, as the session is lost."""
        self.is_blocked = False
        receipts = None if self.assembling is None else self.assembling.receipts
        (receipts or self.receipts).renew()

    # --- events ---

    @property
    def _steps(self) -> tuple[Filter, ...]:
        """The filters that single events are matched with here."""
        if isinstance(self.what, Filter):
            return (self.what,)
        return () if self.by_brokers else self.what.steps

    def concerns(self, event: Mapping[str, Any]) -> bool:
        """True if an event with its system columns matches the filter or a step of the pattern."""
        return any(step.matches(event, self.values) for step in self._steps)

    def occurred(self, sequence: Sequence[Occurrence]) -> None:
        """Queue a match that brokers assembled, unless it overlaps the last one, as when two
        brokers send it, or belongs to the pattern before a change.
        """
        first = place_of(sequence[0])
        if not self.by_brokers or (self._ended_at is not None and first <= self._ended_at):
            return
        event = composite(sequence)
        if self.still_wants(event):
            self._ended_at = place_of(sequence[-1])
            self.queue.offer(QueuedEvents.made(self, event.publisher, [event]))

    def still_wants(self, event: Event) -> bool:
        """True if an event still matches; else it is counted as spurious."""
        pattern = self.what
        if isinstance(pattern, Filter):
            wanted = not event.parts and pattern.matches(_seen(event), self.values)
        else:
            wanted = len(event.parts) == len(pattern.steps) and all(
                step.matches(_seen(part), self.values)
                for step, part in zip(pattern.steps, event.parts, strict=True)
            )
        if not wanted:
            self.spurious += 1
        return wanted

    def took(self, count: int) -> None:
        """Count down to the end of a subscription to a number of events."""
        assert self.left is not None
        self.left -= count
        if not self.left and not self.closed:
            self.abandon()

    def lose(self, gap: Gap) -> None:
        """Events were lost: report it before the next one."""
        if isinstance(gap, LateGap):
            self.late += gap.count
        self.queue.note(self, gap)

    def report(self, gap: Gap) -> None:
        """Report a gap to `on_gap`, or log it."""
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
        """Log a gap where there is no `on_gap`; of late events the first, as many may come."""
        if not isinstance(gap, LateGap):
            logger.warning("subscription %s: %s", self.what, gap)
        elif not self._has_logged_late:
            self._has_logged_late = True
            logger.warning(
                "subscription %s: %s; `late` counts further ones, on_gap= receives each",
                self.what,
                gap,
            )


_OF_ANOTHER_KIND: Final = (
    "a durable subscription to a filter stays one, and one to a pattern, too: take another name"
)


def _seen(event: Event) -> dict[str, Any]:
    """An event's attributes with the system columns, as filters see them."""
    return {**event, SEQ: event.seq, TIME: event.time}
