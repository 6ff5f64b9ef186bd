"""`Assembling`: the pattern of a subscription, assembled by the client.

It has the partial matches, the timer of events that are held back and, for a durable subscription,
the pattern's pending acks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final, Protocol

from palio.client.bookmarks import Bookmark, PatternReceipts
from palio.client.delivery_queue import Consumer, DeliveryQueue, QueuedEvents
from palio.client.events import Event, Gap
from palio.client.sequences import Sequences
from palio.client.upstream import Upstream
from palio.errors import InvalidInput
from palio.model.patterns import Pattern
from palio.model.values import Bindings
from palio.protocol.messages import Acknowledge

logger: Final = logging.getLogger("palio")


class Owner(Consumer, Protocol):
    """The subscription that a pattern is of."""

    number: int
    queue: DeliveryQueue
    durable: str

    def lose(self, gap: Gap) -> None:
        """Events came too late for the pattern."""


class Assembling:
    """From the events of a pattern's steps to its occurrences in the queue."""

    def __init__(
        self,
        owner: Owner,
        upstream: Upstream,
        pattern: Pattern,
        values: Bindings,
        reorder_s: float | None,
    ) -> None:
        self._owner = owner
        self._upstream = upstream
        self._pattern = pattern
        self._values = values
        self._given_reorder_s = reorder_s
        self._timer: asyncio.TimerHandle | None = None
        self.sequences = self._begun()
        self.receipts: PatternReceipts | None = None
        """The pending acks of a durable subscription."""
        if owner.durable:
            queue_size = owner.queue.queue_size
            self.receipts = PatternReceipts(self.sequences, queue_size, self._acknowledge)

    def _begun(self) -> Sequences:
        """The sequences of a pattern that nothing has come for yet."""
        is_durable = bool(self._owner.durable)
        return Sequences(self._pattern, self._values, self._given_reorder_s, is_durable=is_durable)

    def rebind(self, values: Bindings) -> None:
        """Bind the pattern's parameters to other values."""
        self._values = values
        self.sequences.rebind(values)

    def replace(self, pattern: Pattern, values: Bindings) -> None:
        """Look for another pattern, from now on."""
        self._pattern, self._values = pattern, values
        ended, self.sequences = self.sequences, self._begun()
        if self.receipts is not None:
            self.sequences.resume(ended.after, (), ended.reorder_s)
            self.receipts.follow(self.sequences)

    # --- events ---

    def push(self, events: Iterable[dict[str, Any]], publisher: str) -> QueuedEvents | None:
        """Take in events for the steps of the pattern: the sequences that are complete at once.

        Those that had to wait are queued by themselves.
        """
        sequences = self.sequences
        waits = sequences.reorder_s > 0
        now = asyncio.get_running_loop().time() if waits else 0.0
        composites, late = sequences.push(events, publisher, now)
        if late is not None:
            self._owner.lose(late)
        if waits or self.receipts is not None:
            self._offer(composites)
            self._plan()
            composites = []
        return QueuedEvents.made(self._owner, publisher, composites) if composites else None

    def _offer(self, composites: Iterable[Event]) -> None:
        receipts = self.receipts
        for publisher, some in groupby(composites, lambda composite: composite.publisher):
            events = list(some)
            entry = None if receipts is None else receipts.expect(events)
            self._owner.queue.offer(QueuedEvents.made(self._owner, publisher, events, entry))

    # --- what is held back ---

    def _plan(self) -> None:
        """Set the timer for the first of the events that are held back; one does for all."""
        wake = self.sequences.wake
        if wake is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(wake, self._let_go, wake)

    def _let_go(self, due: float) -> None:
        """Events have waited long enough, unless what goes before cannot come just now."""
        self._timer = None
        receipts = self.receipts
        is_stopped = receipts is not None and receipts.is_full
        if self._upstream.is_listening and not is_stopped:
            # A timer may come a little early by the clock that it goes by.
            now = max(due, asyncio.get_running_loop().time())
            self._offer(self.sequences.advance(now))
            self._plan()
            if receipts is not None:
                receipts.report()

    def restart_wait(self) -> None:
        """Restart the wait: events that were held up may arrive now, before those held here."""
        self.sequences.restart_wait(asyncio.get_running_loop().time())
        self._plan()

    def cancel(self) -> None:
        """Let nothing go any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Nothing will come any more: queue what is complete."""
        self.cancel()
        if self.receipts is None:  # else what is held back comes again, with what goes before it
            self._offer(self.sequences.flush())

    # --- a durable pattern ---

    def take_in(
        self, events: Sequence[dict[str, Any]], publisher: str, entry: int, size: int
    ) -> None:
        """Take in events for the steps of a durable pattern: all that are wanted of an entry of
        its queue (0: of none), which has so many bytes.
        """
        receipts = self.receipts
        assert receipts is not None
        self.push(receipts.receive(events, publisher, entry, size), publisher)
        receipts.report()

    def _acknowledge(self, entry: int, held: int, bookmark: bytes) -> None:
        """Acknowledge to the broker; events that it held back then go before those waiting here."""
        self._upstream.report(Acknowledge(self._owner.number, entry, held, bookmark))
        if held and self._timer is None:
            self.restart_wait()

    def start_over(self) -> None:
        """Events of the queue of a durable one are lost: nothing that was found may span them."""
        if self.receipts is not None:
            self.sequences.start_over()

    def resume(self, packed: bytes) -> bool:
        """Resume from a bookmark; return False if the pattern here is further. A bookmark that
        does not decode, or of another pattern, starts over.
        """
        receipts, sequences = self.receipts, self._begun()
        if receipts is None:
            return False
        try:
            mark = Bookmark.read(packed)
        except InvalidInput as error:
            logger.warning("subscription %s: %s", self._pattern, error)
            return False
        is_further = receipts.resume(mark, sequences)
        if is_further:
            self.sequences = sequences
        return is_further
