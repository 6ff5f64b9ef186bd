"""`Answers`: what a journal has written or could not, told to the node in slices, in its order.

One transaction may answer for thousands of appends, each of which the node follows up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from palio.server.turns import Turns

__all__ = ["Answer", "Answers"]

Answer: TypeAlias = tuple[int, str | None]
"""A ticket, and why it could not be written; None if it was."""


class Answers:
    """Answers that wait for their turn of the loop."""

    def __init__(
        self, turns: Turns, tell: Callable[[Answer], None], wait: Callable[[Answers], None]
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
        if until:
            while queue:
                self._tell(queue.popleft())
                if turns.clock() > until:
                    break
            turns.spend(until)
        if queue:
            self._wait(self)
