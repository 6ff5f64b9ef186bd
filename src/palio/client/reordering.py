"""`Window`: the time for which a pattern waits for events that arrive out of order.

A longer window loses fewer events and adds latency. Unless an application sets the window, it
adapts: it grows at once when events arrive later than before, and shrinks slowly otherwise.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from palio.errors import LimitExceeded
from palio.protocol.limits import check_seconds

REORDER_S: Final = 1.0
"""The initial window unless the application sets it: a few retransmissions around the world, and
the clock skew of brokers."""

MAX_REORDER_S: Final = 3_600.0
"""The longest window to request: an application with later events needs an archive."""

MIN_ADAPTIVE_S: Final = 0.25
"""The shortest adaptive window: a retransmission, which a calm trial may not contain."""

MAX_ADAPTIVE_S: Final = 10.0
"""The longest adaptive window: one broker's wrong clock must not delay all patterns."""

MARGIN: Final = 2.0
"""The ratio of the window to the longest observed delay."""

TRIAL_S: Final = 600.0
"""Events must be in time for this long before the window shrinks: links have bad minutes."""

TRIAL_EVENTS: Final = 100
"""The events that a trial needs, too: a smaller sample shows nothing."""


def check_reorder(seconds: object) -> float:
    """Return a valid reorder window in seconds.

    >>> check_reorder(0.25)
    0.25
    """
    checked = check_seconds(seconds, "reorder_timeout")
    if checked > MAX_REORDER_S:
        raise LimitExceeded(
            "reorder_timeout",
            limit="MAX_REORDER_S",
            maximum=int(MAX_REORDER_S),
            actual=ceil(checked),
        )
    return checked


class Window:
    """The reorder window of one pattern: fixed if given, adaptive if None.

    >>> window = Window(None)
    >>> window.record_in_time(now=0.0, count=1, delay_s=0.75)
    >>> window.seconds
    1.5
    """

    __slots__ = ("_count", "_grew_at", "_longest_s", "_since", "is_given", "seconds")

    def __init__(self, given: float | None) -> None:
        self.is_given = given is not None
        self.seconds = REORDER_S if given is None else given
        self._grew_at = self._since = float("-inf")
        self._count, self._longest_s = 0, 0.0

    def record_in_time(self, now: float, count: int, delay_s: float) -> None:
        """Record events that came in time, the latest of them by `delay_s`."""
        if not self._count:
            self._since = now
        self._count += count
        self._longest_s = max(self._longest_s, delay_s)
        self._grow(now, delay_s)
        if self._count >= TRIAL_EVENTS and now - self._since >= TRIAL_S:
            needed = max(MIN_ADAPTIVE_S, MARGIN * self._longest_s)
            self.seconds = min(self.seconds, max(needed, self.seconds / 2))
            self._restart_trial()

    def record_late(self, now: float, delay_s: float) -> None:
        """Record an event that came too late, by at least `delay_s`.

        The events after it may have been released while the window was shorter. Then its delay does
        not show that the present window is too short.
        """
        is_new = now >= self._grew_at + self.seconds
        self._grow(now, max(delay_s, self.seconds) if is_new else delay_s)
        self._restart_trial()

    def _grow(self, now: float, delay_s: float) -> None:
        wanted = min(MARGIN * delay_s, MAX_ADAPTIVE_S)
        if wanted > self.seconds:
            self.seconds, self._grew_at = wanted, now

    def _restart_trial(self) -> None:
        """Begin a trial: the window may shrink at its end."""
        self._count, self._longest_s = 0, 0.0
