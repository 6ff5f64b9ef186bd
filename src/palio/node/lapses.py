"""`Lapses`: live events may have been lost somewhere, and those who wanted them are told.

Nobody knows which events went where no way led, so what is told is only that some may be missing:

1. A broker *notes* a lapse when the session with a neighbour ends, when it drops events that wait
   for a neighbour, and when its ways have changed: a session with a neighbour begins, or a link
   comes into the tree of a graph or leaves it. A neighbour that nobody here had heard of changes
   nothing: what it brings was never to be had here. Who had lost it knows it, and notes that.
2. After its ways have changed it sends waves through the routing tables, one after the other. Once
   they are answered, what its side wants is in force beyond, and it notes a lapse again: whatever
   was lost until then was lost before that.
3. With its next look round a broker tells its own clients, and all others by a fact (`LAPSE`): one
   fact and one gap, whatever has happened since the last look. A broker that hears of a lapse tells
   its own clients with its next look round. Where it has much to do it tells the others less often
   (`throttle`): each has to take that fact, and all brokers have lapses when a network changes.

Every link that breaks and comes back is noted by both its ends, and each end is heard by all on its
side. So whoever lost something on that link is told when it is lost and when the way is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["WAVES", "Lapses"]

WAVES: Final = 2
"""With advertisements a subscription goes where an advertisement has come from: the first wave is
answered when those on the other side are known here, the second when what they call for is there.
"""

Sound: TypeAlias = Callable[[Callable[[], None]], None]
"""Send a wave, and call back once it is answered."""


class Lapses:
    """What one broker has yet to tell of lost events.

    >>> answers = []
    >>> lapses = Lapses(answers.append)
    >>> lapses.ways_changed()
    >>> lapses.take(), lapses.take()
    ((True, True), (False, False))
    >>> answers.pop()(), answers.pop()()
    (None, None)
    >>> lapses.take()
    (True, True)
    """

    def __init__(self, sound: Sound) -> None:
        self._sound = sound
        self._is_noted = False
        """Whether other brokers are to be told."""
        self._is_heard = False
        """Whether clients here are."""
        self._is_open = False
        """Whether a wave is on its way."""
        self._waves = 0
        """Waves yet to be sent after that."""

    def note(self) -> None:
        """Something may have been lost here."""
        self._is_noted = self._is_heard = True

    def hear(self) -> None:
        """Another broker says that something may have been lost there."""
        self._is_heard = True

    def ways_changed(self) -> None:
        """Events take other ways from now on, and routing tables are on theirs."""
        self.note()
        self._waves = WAVES
        if not self._is_open:
            self._send()

    def take(self, *, may_tell: bool = True) -> tuple[bool, bool]:
        """Whether other brokers are to be told now, if that may be, and whether clients are."""
        due = self._is_noted and may_tell, self._is_heard
        self._is_noted = self._is_noted and not may_tell
        self._is_heard = False
        return due

    def _send(self) -> None:
        self._waves -= 1
        self._is_open = True
        self._sound(self._answered)

    def _answered(self) -> None:
        self._is_open = False
        if self._waves:
            self._send()
        else:
            self.note()
