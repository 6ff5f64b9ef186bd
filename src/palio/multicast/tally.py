"""`SetTally`: how many events went to each set of brokers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from palio.multicast.broker_sets import Words, distinct, words_in

__all__ = ["SetTally"]

JOINED_AT: Final = 262_144
"""Sets after which equal ones are put together, at the earliest."""


class SetTally:
    """Counts of sets, of which equal ones are put together now and then.

    >>> tally = SetTally(brokers=3)
    >>> tally.add(np.array([[5], [0], [5]], np.uint64))
    >>> [each.tolist() for each in tally.counted()]
    [[[5]], [2.0]]
    """

    def __init__(self, brokers: int) -> None:
        self.events = 0
        self.unwanted = 0
        """Events that nobody wants; they are not counted."""
        self._sets: Words = np.zeros((0, words_in(brokers)), np.uint64)
        self._counts: npt.NDArray[np.float64] = np.zeros(0)
        self._fresh: list[Words] = []
        self._waiting = 0

    def add(self, sets: Words) -> None:
        """An event went to each of these."""
        wanted = sets[sets.any(axis=1)]
        self.events += len(sets)
        self.unwanted += len(sets) - len(wanted)
        self._fresh.append(wanted)
        self._waiting += len(wanted)
        if self._waiting >= max(JOINED_AT, len(self._sets)):
            self._join()

    def counted(self) -> tuple[Words, npt.NDArray[np.float64]]:
        """Each set once, and its events."""
        self._join()
        return self._sets, self._counts

    def _join(self) -> None:
        sets = np.concatenate([self._sets, *self._fresh])
        counts = np.concatenate([self._counts, np.ones(self._waiting)])
        self._sets, self._counts = distinct(sets, counts)
        self._fresh, self._waiting = [], 0
