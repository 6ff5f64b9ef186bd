"""`GroupTraffic`: the sets of brokers that events went to, with counts, for planners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from palio.errors import InvalidInput
from palio.matching.index import Index
from palio.model.filters import Filter
from palio.model.values import NO_VALUES, Bindings
from palio.multicast.broker_sets import (
    Words,
    distinct,
    numbered,
    rows_of,
    sizes_of,
    words_in,
    words_of,
)


@dataclass(frozen=True, eq=False)
class GroupTraffic:
    """Each distinct set of destinations, with its number of events.

    Events that nobody wanted are left out: they are not sent.

    >>> traffic = GroupTraffic.of(["b1", "b2", "b3"], [(["b1", "b2"], 3), (["b3"], 1), ([], 9)])
    >>> sorted(traffic.shares.tolist())
    [0.25, 0.75]
    """

    brokers: tuple[str, ...]
    sets: Words
    counts: npt.NDArray[np.float64]

    @classmethod
    def of(cls, brokers: Iterable[str], counted: Iterable[tuple[Iterable[str], float]]) -> Self:
        """Make traffic from names of destinations, with numbers of events."""
        names = tuple(brokers)
        pairs = list(counted)
        sets = rows_of([list(each) for each, _ in pairs], numbered(names))
        return cls.counted(names, sets, np.array([count for _, count in pairs], np.float64))

    @classmethod
    def counted(
        cls, brokers: Iterable[str], sets: Words, counts: npt.NDArray[np.float64] | None = None
    ) -> Self:
        """Make traffic from sets as rows of bits, with numbers of events, 1 each by default."""
        names = tuple(brokers)
        numbered(names)
        if sets.ndim != 2 or sets.shape[1] != words_in(len(names)):
            raise InvalidInput(
                f"sets of {len(names)} brokers are rows of {words_in(len(names))} words"
            )
        counts = np.ones(len(sets)) if counts is None else np.asarray(counts, np.float64)
        if counts.shape != (len(sets),) or not (np.isfinite(counts) & (counts >= 0)).all():
            raise InvalidInput("each set has a count of events: a number, 0 or more")
        spare = 64 * sets.shape[1] - len(names)
        if spare and len(sets) and (sets[:, -1] >> np.uint64(64 - spare)).any():
            raise InvalidInput("a set names a broker that there is not")
        kept = (sizes_of(sets) > 0) & (counts > 0)
        rows, weights = distinct(sets[kept], counts[kept])
        return cls(names, rows, weights)

    def __len__(self) -> int:
        """Return the number of distinct sets."""
        return len(self.sets)

    @property
    def events(self) -> float:
        """Number of events."""
        return float(self.counts.sum())

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """The share of each set in the events; the sum is 1."""
        return self.counts / self.events if len(self) else self.counts

    @property
    def destinations(self) -> float:
        """Number of brokers that want an event, on average."""
        return float(self.shares @ sizes_of(self.sets))


# --- counting sets ---


JOINED_AT: Final = 262_144
"""Sets collected, at least, before equal ones are merged."""


class SetTally:
    """A count of sets, which merges equal ones from time to time.

    >>> tally = SetTally(brokers=3)
    >>> tally.add(np.array([[5], [0], [5]], np.uint64))
    >>> [each.tolist() for each in tally.counted()]
    [[[5]], [2.0]]
    """

    def __init__(self, brokers: int) -> None:
        self.events = 0
        self.unwanted = 0
        """Events without a subscriber; they are not counted as sets."""
        self._sets: Words = np.zeros((0, words_in(brokers)), np.uint64)
        self._counts: npt.NDArray[np.float64] = np.zeros(0)
        self._fresh: list[Words] = []
        self._waiting = 0

    def add(self, sets: Words) -> None:
        """Count an event for each of some sets."""
        wanted = sets[sets.any(axis=1)]
        self.events += len(sets)
        self.unwanted += len(sets) - len(wanted)
        self._fresh.append(wanted)
        self._waiting += len(wanted)
        if self._waiting >= max(JOINED_AT, len(self._sets)):
            self._join()

    def counted(self) -> tuple[Words, npt.NDArray[np.float64]]:
        """Return each distinct set, with its events."""
        self._join()
        return self._sets, self._counts

    def _join(self) -> None:
        sets = np.concatenate([self._sets, *self._fresh])
        counts = np.concatenate([self._counts, np.ones(self._waiting)])
        self._sets, self._counts = distinct(sets, counts)
        self._fresh, self._waiting = [], 0


# --- observing ---


class Observed:
    """Subscriptions at brokers, and the destinations of the events so far.

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
        """Add a subscription of a client at a broker."""
        place = self._places.get(broker)
        if place is None:
            raise InvalidInput(f"{broker!r:.80} is no broker of this plan")
        self._index.add(len(self._index), filter, values, destination=place)

    def take(self, events: pa.RecordBatch) -> None:
        """Count the destinations of a batch of events."""
        masks = np.zeros((events.num_rows, len(self.brokers)), np.bool_)
        for place, rows in self._index.route(events).items():
            masks[:, place] = rows
        self.tally.add(words_of(masks))

    def take_rows(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Count the destinations of events with different attributes."""
        found = [self._index.route_event(each) for each in events]
        masks = np.zeros((len(found), len(self.brokers)), np.bool_)
        for row, places in enumerate(found):
            masks[row, places] = True
        self.tally.add(words_of(masks))

    def traffic(self) -> GroupTraffic:
        """Return the traffic so far."""
        return GroupTraffic.counted(self.brokers, *self.tally.counted())
