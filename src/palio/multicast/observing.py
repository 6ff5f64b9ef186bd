"""`Observed`: the traffic that subscriptions make of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching.index import Index
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings
from palio.multicast.broker_sets import numbered, words_of
from palio.multicast.tally import SetTally
from palio.multicast.traffic import GroupTraffic

__all__ = ["Observed"]


class Observed:
    """Subscriptions at brokers, and where the events so far went.

    >>> import palio
    >>> observed = Observed(["b1", "b2"])
    >>> observed.subscribe(palio.parse("price < 10"), "b2")
    >>> observed.take_rows([{"price": 9.5}, {"price": 11}])
    >>> observed.traffic().sets.tolist(), observed.tally.unwanted
    ([[2]], 1)
    """

    def __init__(self, brokers: Iterable[str]) -> None:
        self.brokers = tuple(brokers)
        self._places = numbered(self.brokers)
        self._index = Index()
        self.tally = SetTally(len(self.brokers))

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
        self.tally.add(words_of(masks))

    def take_rows(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Events one by one, each with attributes of its own."""
        found = [self._index.route_event(each) for each in events]
        masks = np.zeros((len(found), len(self.brokers)), np.bool_)
        for row, places in enumerate(found):
            masks[row, places] = True
        self.tally.add(words_of(masks))

    def traffic(self) -> GroupTraffic:
        """What it is so far."""
        return GroupTraffic.counted(self.brokers, *self.tally.counted())
