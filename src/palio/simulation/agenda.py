"""`Agenda`: the scheduler of a simulation, with its virtual clock.

Actions run by time, then priority, then in the order in which they were scheduled. So each run of
a simulation repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil
from typing import Any, Final, TypeAlias

Action: TypeAlias = Callable[..., object]

US: Final = 1_000_000
"""Microseconds in a second."""

US_PER_MS: Final = 1_000

FAULT: Final = 0
"""Priority of faults. Of actions due at one time, faults run first, then messages, then timers."""
MESSAGE: Final = 1
TIMER: Final = 2


def to_us_rounded_up(seconds: float) -> int:
    """Convert a time to the first whole microsecond at or after it.

    >>> to_us_rounded_up(0.25), to_us_rounded_up(1e-7)
    (250000, 1)
    """
    at_us = ceil(seconds * US)
    return at_us if at_us / US >= seconds else at_us + 1  # the product was rounded down


class Agenda:
    """The scheduled actions and the virtual time, in whole microseconds, so that sums are exact.

    >>> agenda, seen = Agenda(), []
    >>> agenda.at(20, TIMER, lambda: seen.append("late"))
    >>> agenda.at(10, TIMER, lambda: seen.append("early"))
    >>> agenda.run(), seen, agenda.now_us
    (2, ['early', 'late'], 20)
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.limit: int | None = None
        """Total of actions after which `run` fails, so that an endless exchange does not hang."""
        self._count = 0
        self._heap: list[tuple[int, int, int, Action, tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time_us: int, priority: int, action: Action, *arguments: Any) -> None:
        """Schedule a call of an action; `ValueError` if the time is past."""
        if time_us < self.now_us:
            raise ValueError(f"{time_us} us is past; it is {self.now_us} us already")
        heappush(self._heap, (time_us, priority, self._sequence, action, arguments))
        self._sequence += 1

    def run(self, until_us: int | None = None) -> int:
        """Run actions until none is scheduled, or up to a time; return how many ran."""
        heap = self._heap
        count = 0
        while heap and (until_us is None or heap[0][0] <= until_us):
            self.now_us, _, _, action, arguments = heappop(heap)
            action(*arguments)
            count += 1
            if self.limit is not None and self._count + count > self.limit:
                raise RuntimeError(f"not at rest after {self.limit} actions; does something loop?")
        self._count += count
        if until_us is not None:
            self.now_us = max(self.now_us, until_us)
        return count

    def __len__(self) -> int:
        return len(self._heap)
