"""`Window`: how long a pattern waits for events that were overtaken on their way.

Longer is safer and later. So unless an application sets it, the window follows what comes: it
grows at once when events are overtaken for longer, and shrinks slowly while they are not.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from palio.errors import LimitExceeded
from palio.protocol.limits import check_seconds

REORDER_S: Final = 1.0
"""How long a pattern waits at first unless the application sets it: a few retransmissions around
the world, and what clocks of brokers differ by."""

MAX_REORDER_S: Final = 3_600.0
"""The most an application may ask for: what is awaited for longer belongs in an archive."""

LEAST_REORDER_S: Final = 0.25
"""The least that is found out: a retransmission, which calm minutes need not have shown."""

MAX_FOUND_S: Final = 10.0
"""The most that is found out: one broker with a wrong clock is not to keep everybody waiting."""

MARGIN: Final = 2.0
"""How many times as long as events were overtaken the window is."""

TRIAL_S: Final = 600.0
"""For so long events must be in time before the window shrinks: links have bad minutes."""

TRIAL_EVENTS: Final = 100
"""So many must have come, too: of a few nobody learns anything."""


def check_reorder(seconds: object) -> float:
    """A reorder window in seconds, if it may be one.

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
    """The reorder window of one pattern: as it was given, or (None) as it turns out.

    >>> window = Window(None)
    >>> window.saw(now=0.0, count=1, overtaken_s=0.75)
    >>> window.seconds
    1.5
    """

    __slots__ = ("_count", "_grew_at", "_longest_s", "_since", "is_given", "seconds")

    def __init__(self, given: float | None) -> None:
        self.is_given = given is not None
        self.seconds = REORDER_S if given is None else given
        self._grew_at = self._since = float("-inf")
        self._count, self._longest_s = 0, 0.0

    def saw(self, now: float, count: int, overtaken_s: float) -> None:
        """Events came in time; one was overtaken for so long, the others for less."""
        if not self._count:
            self._since = now
        self._count += count
        self._longest_s = max(self._longest_s, overtaken_s)
        self._grow(now, overtaken_s)
        if self._count >= TRIAL_EVENTS and now - self._since >= TRIAL_S:
            needed = max(LEAST_REORDER_S, MARGIN * self._longest_s)
            self.seconds = min(self.seconds, max(needed, self.seconds / 2))
            self._restart_trial()

    def missed(self, now: float, overtaken_s: float) -> None:
        """An event came too late, overtaken for so long at least.

        Later events may have been released before the window last grew, which then shows nothing
        of the window as it is now.
        """
        is_new = now >= self._grew_at + self.seconds
        self._grow(now, max(overtaken_s, self.seconds) if is_new else overtaken_s)
        self._restart_trial()

    def _grow(self, now: float, overtaken_s: float) -> None:
        wanted = min(MARGIN * overtaken_s, MAX_FOUND_S)
        if wanted > self.seconds:
            self.seconds, self._grew_at = wanted, now

    def _restart_trial(self) -> None:
        """Begin a trial: the window may shrink at its end."""
        self._count, self._longest_s = 0, 0.0
