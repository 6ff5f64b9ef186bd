"""`FairScheduler`: how long connections may keep the loop before others, and timers, run.

One read of a socket may hold thousands of messages, and a thousand sockets may be readable at once.
The work of one turn of the loop is therefore bounded by time:

1. A connection hands over messages until its slice is used up, then goes to the end of a queue. It
   is not read from until it has handed over what it has, so that at most one read is pending.
2. What was sent is written, and the queue served, once a turn, for half of the time that a turn
   has. The other half is for connections that were not waiting: who asks little is answered at once
   beside others that flood.
3. When a turn's time is used up, a connection that is read from goes to the end of the queue too.
4. The next turn comes behind timers, and reads, that were due when one used up its time.

A turn may be longer by one message, or by as many events of one as are matched in one step
(`Engines.rows_at_once`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from palio.server.limits import SLICE_S, TURN_S


class Waiting(Protocol):
    """Has messages to hand over."""

    def proceed(self) -> None:
        """Hand over more; to wait again, if that was not all."""


class FairScheduler:
    """The time of one loop, shared by its connections."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        turn_s: float = TURN_S,
        slice_s: float = SLICE_S,
    ) -> None:
        self.clock = clock
        self._turn_s = turn_s
        self._slice_s = slice_s
        self._left = turn_s
        self._queue: deque[Waiting] = deque()

    def slice(self) -> float:
        """Return the end of a slice that begins now; 0.0 if this turn has no time left."""
        return 0.0 if self.is_over else self.clock() + self._slice_s

    def spend(self, until: float) -> None:
        """Account for a slice that would have ended then, and has ended now."""
        self._left -= self.clock() - until + self._slice_s

    @property
    def is_over(self) -> bool:
        """Return whether this turn has no time left."""
        return self._left <= 0.0

    @property
    def is_idle(self) -> bool:
        """Return whether the queue is empty."""
        return not self._queue

    def wait(self, waiting: Waiting) -> None:
        """Stand in the queue."""
        self._queue.append(waiting)

    def begin(self) -> float:
        """A turn begins; until when what was sent in the one before may be written."""
        self._left = self._turn_s
        return self.clock() + self._turn_s / 2

    def serve(self, until: float) -> None:
        """Serve the queue, each at most once, in what writing has left of its half of the turn."""
        half = self._turn_s / 2
        self._left = until - self.clock()
        for _ in range(len(self._queue)):
            if self.is_over:
                break
            self._queue.popleft().proceed()
        self._left += half  # for connections that did not wait (rule 2)


class Pace:
    """For a task with much to do: `await pace()` at every step, and others get their turn of the
    loop whenever this one has had it for a slice.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, *, slice_s: float = SLICE_S
    ) -> None:
        self._clock = clock
        self._slice_s = slice_s
        self._until = clock() + slice_s

    async def __call__(self) -> None:
        """Let others have their turn, if this one was long."""
        if self._clock() > self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + self._slice_s


class Unwritten(Protocol):
    """Has messages to write."""

    def flush(self) -> None:
        """Write all of them."""


class LoopScheduler(FairScheduler):
    """The turns of the loop that is running: each begins when there is something to do."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, **seconds: float) -> None:
        super().__init__(clock, **seconds)
        self.taken = asyncio.Event()
        """Set by every turn."""
        self._loop = asyncio.get_running_loop()
        self._unwritten: deque[Unwritten] = deque()
        self._is_scheduled = False

    def wait(self, waiting: Waiting) -> None:
        """Stand in the queue."""
        super().wait(waiting)
        self.schedule()

    def write(self, end: Unwritten) -> None:
        """Flush it in this turn."""
        self._unwritten.append(end)
        self.schedule()

    def schedule(self) -> None:
        """Take a turn soon."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.take)

    def take(self, *, serves: bool | None = None) -> None:
        """Write what was sent, and serve the queue, now or later. What that leads to is
        written before anything is read: a peer that has sent all may hang up next.
        """
        self.taken.set()
        if serves is None:  # those who wait have a turn of their own if reads used this one up
            serves = not self.is_over
        until = self.begin()
        try:
            for _ in range(len(self._unwritten)):
                self._unwritten.popleft().flush()
                if self.clock() > until:
                    break
            if serves:
                self.serve(until)
        finally:  # one that fails does not keep the others waiting
            self._is_scheduled = bool(self._unwritten) or not self.is_idle
            if self._unwritten:
                self._loop.call_soon(partial(self.take, serves=False))
            elif self._is_scheduled:
                # Behind all that is due by now: what others have sent, and timers.
                self._loop.call_at(self._loop.time(), partial(self.take, serves=True))


# --- answers of the journal ---
#
# One transaction may answer for thousands of appends, each of which the node follows up.


Completion = tuple[int, str | None]
"""A ticket, and why it could not be written, if so."""

WRITABLE: Final[Completion] = (0, None)
"""No ticket has this number: the journal takes writes again."""


class CompletionQueue:
    """CompletionQueue that wait for their turn of the loop."""

    def __init__(
        self,
        scheduler: FairScheduler,
        hand_over: Callable[[int, str | None], None],
    ) -> None:
        self._scheduler = scheduler
        self._hand_over = hand_over
        self._queue: deque[Completion] = deque()

    @property
    def is_empty(self) -> bool:
        """Return whether every answer was handed over."""
        return not self._queue

    def add(self, answers: Iterable[Completion]) -> None:
        """More of them."""
        is_first = self.is_empty
        self._queue.extend(answers)
        if is_first:
            self.proceed()

    def proceed(self) -> None:
        """Hand over answers for as long as this turn allows (`Waiting`)."""
        queue, scheduler = self._queue, self._scheduler
        until = scheduler.slice()
        try:
            while until and queue:
                self._hand_over(*queue.popleft())
                if scheduler.clock() > until:
                    break
        finally:  # a fault of one does not keep the others waiting
            if until:
                scheduler.spend(until)
            if queue:
                scheduler.wait(self)
