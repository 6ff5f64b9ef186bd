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

from palio.node.limits import BEHIND_S, MANY_BROKERS, ON_TIME_S

HALF_S: Final = 4.0
"""After so long without another, a delay counts half: who is short of time is late now and then."""


class Lag:
    """How far a broker is behind with its work: how late alarms rang lately that it had set.

    >>> lag = Lag()
    >>> lag.note(0.4, now=7.0)
    >>> lag.note(0.0, now=11.0)
    >>> lag.share
    0.5
    """

    __slots__ = ("_at", "share")

    def __init__(self) -> None:
        self.share = 0.0
        """From 0, if alarms ring in time, to 1, if they are late by `BEHIND_S` or more: who was
        asleep for a minute is soon as quick as before.
        """
        self._at = 0.0

    def note(self, late_s: float, now: float, brokers: int = MANY_BROKERS) -> None:
        """An alarm rings, so late, in a network of so many brokers."""
        faded = self.share * 0.5 ** ((now - self._at) / HALF_S)
        late = (late_s - ON_TIME_S) / (BEHIND_S - ON_TIME_S)
        self.share = max(min(late, 1.0) * min(1.0, brokers / MANY_BROKERS), faded)
        self._at = now


class Throttle:
    """How often something is told: a few times at once, and then once in `every_s`. The farther a
    broker is behind, the fewer times at once, down to one, and the longer it waits, up to
    `longest_s`.

    >>> throttle = Throttle(0.1, 2.0, at_once=2, lag=Lag())
    >>> for _ in range(2):
    ...     assert throttle.due_at <= 5.0
    ...     throttle.record(now=5.0)
    >>> throttle.due_at
    5.1
    """

    __slots__ = ("_at", "_at_once", "_every_s", "_lag", "_left", "_more_s")

    def __init__(self, every_s: float, longest_s: float, at_once: int, lag: Lag) -> None:
        self._every_s = every_s
        self._more_s = max(0.0, longest_s - every_s)
        self._at_once = at_once
        self._lag = lag
        self._left = float(at_once)
        """How often it could be told at once, when it was told last."""
        self._at = 0.0

    @property
    def pause_s(self) -> float:
        """Seconds between two times, by now."""
        return self._every_s + self._more_s * self._lag.share

    @property
    def due_at(self) -> float:
        """When it may be told next, as far behind as the broker is now; perhaps that is over."""
        return self._at + (1.0 - self._left) * self.pause_s

    def record(self, now: float) -> None:
        """It is told."""
        regained = (now - self._at) / self.pause_s
        at_once = 1.0 + (self._at_once - 1) * (1.0 - self._lag.share)
        # What was told in time, and by now counts as early, makes the next time no later.
        self._left = max(1.0, min(self._left + regained, at_once)) - 1.0
        self._at = now
