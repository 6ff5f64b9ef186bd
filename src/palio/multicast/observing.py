"""`Observed`: the traffic that subscriptions make of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching.index import Index
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings
from palio.multicast.broker_sets import Words, distinct, numbered, words_in, words_of
from palio.multicast.traffic import GroupTraffic

__all__ = ["Observed"]

JOINED_AT: Final = 262_144
"""Sets after which equal ones are put together."""


class Observed:
    """Subscriptions at brokers, and where the events so far went.

    >>> import palio
    >>> observed = Observed(["b1", "b2"])
    >>> observed.subscribe(palio.parse("price < 10"), "b2")
    >>> observed.take_rows([{"price": 9.5}, {"price": 11}])
    >>> observed.traffic().sets.tolist(), observed.events, observed.unwanted
    ([[2]], 2, 1)
    """

    def __init__(self, brokers: Iterable[str]) -> None:
        self.brokers = tuple(brokers)
        self.events = 0
        self.unwanted = 0
        """Events that nobody wants."""
        self._places = numbered(self.brokers)
        self._index = Index()
        self._parts: list[tuple[Words, Any]] = []
        self._waiting = 0

    def subscribe(self, filter: Filter, broker: str, values: Bindings = NO_VALUES) -> None:
        """Somebody at a broker wants what a filter matches."""
        place = self._places.get(broker)
        if place is None:
            raise InvalidInput(f"{broker!r:.80} is no broker of this plan")
        self._index.add(len(self._index), filter, values, destination=place)

    def take(self, events: pa.RecordBatch) -> None:
        """Many events, as a batch."""
        masks = np.zeros((events.num_rows, len(self.brokers)), np.bool_)
        for place, rows in self._index.route(events).items():
            masks[:, place] = rows
        self._note(words_of(masks))

    def take_rows(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Events one by one, each with attributes of its own."""
        found = [self._index.route_event(each) for each in events]
        masks = np.zeros((len(found), len(self.brokers)), np.bool_)
        for row, places in enumerate(found):
            masks[row, places] = True
        self._note(words_of(masks))

    def traffic(self) -> GroupTraffic:
        """What it is so far."""
        self._join()
        if not self._parts:
            return GroupTraffic.counted(
                self.brokers, np.zeros((0, words_in(len(self.brokers))), np.uint64)
            )
        return GroupTraffic.counted(self.brokers, *self._parts[0])

    def _note(self, sets: Words) -> None:
        self.events += len(sets)
        wanted = sets[sets.any(axis=1)]
        self.unwanted += len(sets) - len(wanted)
        if len(wanted):
            self._parts.append((wanted, np.ones(len(wanted))))
            self._waiting += len(wanted)
        if self._waiting >= JOINED_AT:
            self._join()

    def _join(self) -> None:
        self._waiting = 0
        if len(self._parts) > 1:
            sets, counts = zip(*self._parts, strict=True)
            self._parts = [distinct(np.concatenate(sets), np.concatenate(counts))]
