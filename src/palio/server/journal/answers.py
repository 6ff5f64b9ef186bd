"""`Answers`: what a journal has written or could not, told to the node in slices, in its order.

One transaction may answer for thousands of appends, each of which the node follows up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from palio.server.turns import Turns

__all__ = ["WRITABLE", "Answer", "Answers"]

Answer = tuple[int, str | None]
"""A ticket, and why it could not be written, if so."""

WRITABLE: Final[Answer] = (0, None)
"""No ticket has this number: the journal takes writes again."""


class Answers:
    """Answers that wait for their turn of the loop."""

    def __init__(
        self,
        turns: Turns,
        tell: Callable[[int, str | None], None],
        wait: Callable[[Answers], None],
    ) -> None:
        self._turns = turns
        self._tell = tell
        self._wait = wait
        self._queue: deque[Answer] = deque()

    @property
    def are_told(self) -> bool:
        """Whether none waits."""
        return not self._queue

    def add(self, answers: Iterable[Answer]) -> None:
        """More of them."""
        is_first = self.are_told
        self._queue.extend(answers)
        if is_first:
            self.go_on()

    def go_on(self) -> None:
        """See `turns.Waiting`."""
        queue, turns = self._queue, self._turns
        until = turns.slice()
        try:
            while until and queue:
                self._tell(*queue.popleft())
                if turns.clock() > until:
                    break
        finally:  # whatever one of them has led to, the others are told
            if until:
                turns.spend(until)
            if queue:
                self._wait(self)
