"""`Throttle`: limits how often a broker reports changes of the network, the more so the more it is
overloaded.

When a network changes, each broker reports it to all others, over each link, and each message is
acknowledged. Where brokers are overloaded, more of that comes than they can handle: pings of peers
wait behind it, links time out, and that is one more change. Nothing settles for minutes. But an
older report is worth little once there is a newer one, and ten facts in a message are hardly more
work than one. So an overloaded broker waits longer, and sends more at a time.
"""

from __future__ import annotations

from typing import Final

from palio.node.limits import BEHIND_S, MANY_BROKERS, ON_TIME_S

HALF_S: Final = 4.0
"""The half-life of a delay: every broker is late now and then."""


class Lag:
    """The overload of a broker, measured by the delay of its timers.

    >>> lag = Lag()
    >>> lag.note(0.4, now=7.0)
    >>> lag.note(0.0, now=11.0)
    >>> lag.share
    0.5
    """

    __slots__ = ("_at", "share")

    def __init__(self) -> None:
        self.share = 0.0
        """From 0, if alarms ring in time, to 1, if they are late by `BEHIND_S` or more. Longer
        delays count no more: a broker that was suspended for a minute soon reports as fast as
        before."""
        self._at = 0.0

    def note(self, late_s: float, now: float, brokers: int = MANY_BROKERS) -> None:
        """Note an alarm that rings so many seconds late, in a network of so many brokers."""
        faded = self.share * 0.5 ** ((now - self._at) / HALF_S)
        late = (late_s - ON_TIME_S) / (BEHIND_S - ON_TIME_S)
        self.share = max(min(late, 1.0) * min(1.0, brokers / MANY_BROKERS), faded)
        self._at = now


class Throttle:
    """A token bucket: a burst of reports, then one in `every_s`. The more a broker is overloaded,
    the smaller the burst, down to one, and the longer the interval, up to `longest_s`.

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
        # Tokens left after the last report.
        self._left = float(at_once)
        self._at = 0.0

    @property
    def pause_s(self) -> float:
        """Seconds between two reports, at the present load."""
        return self._every_s + self._more_s * self._lag.share

    @property
    def due_at(self) -> float:
        """The time from which the next report may be sent, at the present load; it may be past."""
        return self._at + (1.0 - self._left) * self.pause_s

    def record(self, now: float) -> None:
        """Take a token for a report."""
        regained = (now - self._at) / self.pause_s
        at_once = 1.0 + (self._at_once - 1) * (1.0 - self._lag.share)
        # A report that was in time counts as early if the load grew since: it delays no other.
        self._left = max(1.0, min(self._left + regained, at_once)) - 1.0
        self._at = now
