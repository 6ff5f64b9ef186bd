"""`GroupTraffic`: what a plan is made for: which brokers events went to, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from palio.errors import InvalidInput
from palio.multicast.broker_sets import Words, distinct, numbered, rows_of, sizes_of, words_in

__all__ = ["GroupTraffic"]


@dataclass(frozen=True, eq=False)
class GroupTraffic:
    """Each distinct set of destinations, and how many events it had.

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
        """From names of destinations, and how many events went there."""
        names = tuple(brokers)
        pairs = list(counted)
        sets = rows_of([list(each) for each, _ in pairs], numbered(names))
        return cls.counted(names, sets, np.array([count for _, count in pairs], np.float64))

    @classmethod
    def counted(
        cls, brokers: Iterable[str], sets: Words, counts: npt.NDArray[np.float64] | None = None
    ) -> Self:
        """From sets as rows of bits, and how many events each had: 1 if it is not said."""
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
        """How many distinct sets there are."""
        return len(self.sets)

    @property
    def events(self) -> float:
        """How many events there were."""
        return float(self.counts.sum())

    @cached_property
    def shares(self) -> npt.NDArray[np.float64]:
        """By set its share of the events: they sum up to 1."""
        return self.counts / self.events if len(self) else self.counts

    @property
    def destinations(self) -> float:
        """How many brokers want an event, on average."""
        return float(self.shares @ sizes_of(self.sets))
