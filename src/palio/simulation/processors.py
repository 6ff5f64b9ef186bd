"""`Processors`: a few of them that do the work of all computers, in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from palio.simulation.agenda import MESSAGE
from palio.simulation.pipes import Planner

__all__ = ["Processors"]

Action: TypeAlias = Callable[[], object]

TURN: Final = 6
"""Actions of one computer, after which others have their turn."""


class Processors:
    """Whatever a computer does takes `action_us` of one processor, and waits until one has time.

    >>> from palio.simulation.agenda import Agenda
    >>> agenda, done = Agenda(), []
    >>> few = Processors(agenda, count=1, action_us=500)
    >>> for name in ("b1", "b2"):
    ...     few.do(name, lambda name=name: done.append((agenda.now_us, name)))
    >>> _ = agenda.run()
    >>> done
    [(500, 'b1'), (1000, 'b2')]
    """

    def __init__(self, planner: Planner, count: int, action_us: int) -> None:
        self._planner = planner
        self._action_us = action_us
        self._idle = count
        self._todo: dict[str, deque[Action]] = {}
        """By computer, those in front whose turn is next. One at work is not among them..."""
        self._at_work: dict[str, deque[Action]] = {}
        """...but here, with what has come for it meanwhile."""
        self.busy_us = 0
        """What all work has taken so far."""

    def do(self, name: str, action: Action) -> None:
        """A computer is to do something, after all it has to do already."""
        queue = self._at_work.get(name)
        if queue is None:
            queue = self._todo.setdefault(name, deque())
        queue.append(action)
        self._go_on()

    def forget(self, name: str) -> None:
        """A computer has stopped dead: only the turn that it has just now goes on."""
        self._todo.pop(name, None)
        if name in self._at_work:
            self._at_work[name].clear()

    def _go_on(self) -> None:
        while self._idle and self._todo:
            name = next(iter(self._todo))
            queue = self._at_work[name] = self._todo.pop(name)
            actions = [queue.popleft() for _ in range(min(TURN, len(queue)))]
            took_us = len(actions) * self._action_us
            self._idle -= 1
            self.busy_us += took_us
            done = partial(self._done, name, actions)
            self._planner.at(self._planner.now_us + took_us, MESSAGE, done)

    def _done(self, name: str, actions: list[Action]) -> None:
        """A turn is over, and what was done in it takes effect."""
        for action in actions:
            action()
        self._idle += 1
        queue = self._at_work.pop(name)
        if queue:
            self._todo[name] = queue
        self._go_on()
