"""`Times`: the times of publications, which patterns go by and which do not go back.

1. A publication is dated now by the wall, or a microsecond after the one before, whichever is
   later. So where a clock is put back, times go on a microsecond at a time until it has caught up.
2. The journal remembers the last time, so a broker that starts again goes on above it: with each
   durable publication, when the broker stops, and once in `TIME_KEPT_S` for live ones.
3. A time that is more than `TIME_AHEAD_US` ahead of the wall when a broker starts was a mistake:
   for so long, everything would seem to happen at once. Times then begin anew at the wall, and that
   is reported: to restart a broker after its clock was put right is the remedy.
"""

from __future__ import annotations

from palio.node.core import Core
from palio.node.limits import TIME_AHEAD_US, TIME_KEPT_S
from palio.node.operations import PutTime

__all__ = ["Times"]


class Times:
    """The clock of one broker's publications."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last_us = self._kept_us = core.durability.last_time_us
        self._kept_at = 0.0

    def begin(self) -> None:
        """The broker starts: look at the wall."""
        core = self._core
        self._kept_at = core.at.now
        ahead_us = self._last_us - core.at.wall_us
        if ahead_us > TIME_AHEAD_US:
            core.report("warning", "time_went_back", from_us=self._last_us, to_us=core.at.wall_us)
            self._last_us = self._kept_us = 0
        elif ahead_us > 0:
            core.report("warning", "time_waits", ahead_s=ahead_us / 1e6)

    def next_us(self) -> int:
        """Now, or just after the publication before."""
        self._last_us = max(self._core.at.wall_us, self._last_us + 1)
        return self._last_us

    def to_keep(self) -> list[PutTime]:
        """What the journal is to remember beside what is written to it anyway."""
        if self._last_us == self._kept_us:
            return []
        self._kept_us, self._kept_at = self._last_us, self._core.at.now
        return [PutTime(self._last_us)]

    def keep(self) -> None:
        """Have the journal remember the last time, if that is due."""
        if self._core.at.now - self._kept_at >= TIME_KEPT_S:
            to_keep = self.to_keep()
            if to_keep:
                self._core.append(to_keep)
