"""`RoundTrips`: measures the round trip to a neighbour, and derives the cost of the link.

A busy broker answers late, and for a while. So the shortest of a few round trips counts, and a cost
rises only once all of them were longer. Costs are coarse, so that brokers of one site are all
equally near.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

from palio.routing.trees import MAX_USABLE_COST, UNMEASURED

SAMPLES: Final = 5
"""The number of round trips of which the shortest counts..."""

FIRST_SAMPLES: Final = 3
"""...and of these at the beginning, one right after the other."""

UNIT_S: Final = 0.01
"""The round trip of a link of cost 1."""


class RoundTrips:
    """The round trips to one peer, over any of its connections.

    >>> trips = RoundTrips()
    >>> for sent in (0.0, 1.0, 2.0):
    ...     assert trips.start(1, sent, every_s=5.0)
    ...     assert trips.finish(1, sent + 0.042)
    >>> trips.link_cost, trips.start(1, 2.1, every_s=5.0), trips.start(1, 8.0, every_s=5.0)
    (5, False, True)
    """

    __slots__ = ("_asked", "_counts", "_last", "_link", "_seconds")

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=SAMPLES)
        # When the last ping was sent whose round trip counts.
        self._last: float | None = None
        self._asked = 0.0
        self._counts = False
        # The connection on which a ping is unanswered; -1 if there is none.
        self._link = -1

    @property
    def link_cost(self) -> int:
        """The cost of the link."""
        if len(self._seconds) < FIRST_SAMPLES:
            return UNMEASURED
        return min(max(1, ceil(min(self._seconds) / UNIT_S)), MAX_USABLE_COST)

    def start(self, link: int, now: float, every_s: float, *, is_silent: bool = False) -> bool:
        """Return whether to ping on a connection now. On one that broke no answer comes.

        An idle peer is pinged sooner, but its round trip does not count sooner: a broker that is
        busy for a moment is no farther.
        """
        is_early = len(self._seconds) >= FIRST_SAMPLES and (
            self._last is not None and now - self._last < every_s
        )
        if link == self._link or (is_early and not is_silent):
            return False
        self._link, self._asked, self._counts = link, now, not is_early
        if self._counts:
            self._last = now
        return True

    def finish(self, link: int, now: float) -> bool:
        """Note the answer to a ping; return whether its round trip counts."""
        if link != self._link:
            return False
        self._link = -1
        if self._counts:
            self._seconds.append(now - self._asked)
        return self._counts
