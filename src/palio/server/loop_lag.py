"""`LoopLagMonitor`: how late the loop is, and what held it.

A broker's loop serves everybody, so whatever holds it holds everybody up. A timer that should fire
every `LAG_CHECK_S`, or `IDLE_LAG_CHECK_S` while no message comes, measures by how much it is late.
That includes what no counter of messages sees: fronts, garbage collection, other threads of the
process, other processes of a busy machine. Beside it is noted how much of the time the loop's own
thread was computing, which distinguishes the last two from the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from palio.server.counters import Histogram
from palio.server.limits import HELD_EVERY_S, HELD_S, IDLE_LAG_CHECK_S, LAG_CHECK_S

logger: Final = logging.getLogger("palio.server")

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""What delays are counted by."""


class LoopLagMonitor:
    """The delays of the loop that is running.

    >>> monitor = LoopLagMonitor()
    >>> monitor.beat(0.07, 0.06), monitor.beat(0.001, 0.0)
    (None, None)
    >>> monitor.delays.counts[:6]
    [1, 0, 0, 0, 1, 0]
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        """What the longest message since the last beat took."""
        self._kind = ""
        self.delays = Histogram(BOUNDS_S)
        self._logged_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._pause_s = self._computed = 0.0

    def held_by(self, kind: str, seconds: float) -> None:
        """A message took longer than all since the last beat."""
        self._kind, self.longest_s = kind, seconds

    def start(self) -> None:
        """Begin, on the loop that is running."""
        self._computed = time.thread_time()
        self._wait(LAG_CHECK_S)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def beat(self, late_s: float, computed_s: float) -> None:
        """The loop was late by so much, and its thread computed for so long since the last beat."""
        self.delays.observe(late_s)
        if late_s > HELD_S:
            self._warn(late_s, min(computed_s, late_s))
        self._kind, self.longest_s = "", 0.0

    def _warn(self, late_s: float, computed_s: float) -> None:
        now = time.perf_counter()
        if now < self._logged_at + HELD_EVERY_S:
            return
        self._logged_at = now
        details: dict[str, object] = {
            "seconds": round(late_s, 3),
            "computing_s": round(computed_s, 3),
        }
        if self._kind:
            details |= {"longest_message": self._kind, "its_s": round(self.longest_s, 3)}
        logger.warning("loop_blocked", extra={"details": details})

    def _fire(self) -> None:
        computed, longest_s = time.thread_time(), self.longest_s
        late_s = max(0.0, time.perf_counter() - self._due)
        if self._pause_s > LAG_CHECK_S:  # a message that woke the loop ended before this was due
            late_s = max(late_s, longest_s)
        self.beat(late_s, computed - self._computed)
        self._computed = computed
        self._wait(LAG_CHECK_S if longest_s else IDLE_LAG_CHECK_S)

    def _wait(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._due = time.perf_counter() + pause_s
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._fire)
