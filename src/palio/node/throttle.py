"""`Throttle`: what brokers tell of the network is told the less often, the less time they have.

When a network changes, each broker says so to all others, over each link, and each message is
answered. Where brokers have no time for that, more of it comes than they can take, questions of
neighbours wait behind it, links are given up, and that is one more change: nothing settles for
minutes. But what has been told is worth little once there is something newer, and ten facts in a
message are hardly more work than one. So a broker that is behind with its work waits longer, and
tells more at a time.
"""

from __future__ import annotations

from typing import Final

from palio.node.limits import BEHIND_S

__all__ = ["Lag", "Throttle"]

HALF_S: Final = 1.0
"""After so long without another, a delay counts half."""


class Lag:
    """How far a broker is behind with its work: how late it was, lately, for what it had to do.

    >>> lag = Lag()
    >>> lag.note(0.05, now=7.0)
    >>> lag.note(0.0, now=8.0)
    >>> lag.share
    0.25
    """

    __slots__ = ("_at", "share")

    def __init__(self) -> None:
        self.share = 0.0
        """From 0, if it is never late, to 1, if it is by `BEHIND_S` or more: who was asleep for a
        minute is soon as quick as before.
        """
        self._at = 0.0

    def note(self, late_s: float, now: float) -> None:
        """So late it was for what was to be done now."""
        faded = self.share * 0.5 ** ((now - self._at) / HALF_S)
        self.share = max(min(late_s / BEHIND_S, 1.0), faded)
        self._at = now


class Throttle:
    """How often something is told: a few times at once, and then once in `every_s`, or, the farther
    a broker is behind, in up to `longest_s`.

    >>> throttle = Throttle(0.1, 3.0, at_once=2, lag=Lag())
    >>> for _ in range(2):
    ...     assert throttle.due_at <= 5.0
    ...     throttle.tell(now=5.0)
    >>> throttle.due_at
    5.1
    """

    __slots__ = ("_at", "_at_once", "_every_s", "_lag", "_left", "_longest_s", "due_at")

    def __init__(self, every_s: float, longest_s: float, at_once: int, lag: Lag) -> None:
        self._every_s = every_s
        self._longest_s = longest_s
        self._at_once = at_once
        self._lag = lag
        self._left = float(at_once)
        """How often it could be told at once, when it was told last."""
        self._at = 0.0
        self.due_at = 0.0
        """When it may be told next; perhaps that is over."""

    @property
    def pause_s(self) -> float:
        """Seconds between two times, by now."""
        return self._every_s + (self._longest_s - self._every_s) * self._lag.share

    def tell(self, now: float) -> None:
        """It is told."""
        pause_s = self.pause_s
        self._left = min(self._left + (now - self._at) / pause_s, self._at_once) - 1.0
        self._at = now
        self.due_at = now + (1.0 - self._left) * pause_s
