"""`explore`: every state that a model can reach, and the shortest way to one that must not be.

A model is a plain value that names its first state and, for any state, the actions that are open
there. The search is breadth first, so a counterexample is as short as there is one. It looks for
two things: a state in which an invariant does not hold (safety), and a state from which no quiet
one can be reached any more (liveness: something waits there for ever).
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=tuple[Hashable, ...])

MOST_STATES: Final = 4_000_000
"""With some 300 bytes a state, what a machine of 2 GiB holds."""


class Model(Protocol[S]):
    """A specification: states are named tuples, hashable and never changed."""

    def initial(self) -> S:
        """The state in which everything begins."""

    def actions(self, state: S) -> Iterable[tuple[tuple[object, ...], S]]:
        """What may happen in a state: words that a story joins, and the state after it."""

    def broken(self, state: S) -> str:
        """The name of an invariant that does not hold in a state; "" if all do."""

    def is_quiet(self, state: S) -> bool:
        """Whether nothing is left to do, and all that was promised has been done."""

    def describe(self, state: S) -> str:
        """The state in words, for the end of a story."""


class Outcome(NamedTuple):
    """What a search found."""

    states: int
    steps: int
    broken: str
    """The property that does not hold, or ""."""
    story: str
    """A line for each step up to the state that breaks it, and that state."""


def explore(model: Model[S], most: int = MOST_STATES) -> Outcome:
    """Search all states of a model; stop at the first that breaks an invariant."""
    first = model.initial()
    numbers = {first: 0}
    states = [first]
    parents = array("I", [0])
    nexts = array("I")  # the states that follow each one, one after the other...
    ends = array("Q")  # ...and where those of each state end
    parts: dict[Any, Any] = {}  # equal parts of states are one object
    for number, state in enumerate(states):  # which grows meanwhile
        if name := model.broken(state):
            return Outcome(len(states), len(nexts), name, story(model, states, parents, number))
        for _, after in model.actions(state):
            index = numbers.get(after)
            if index is None:
                shared = after.__class__(*(parts.setdefault(part, part) for part in after))
                index = numbers[shared] = len(states)
                states.append(shared)
                parents.append(number)
            nexts.append(index)
        ends.append(len(nexts))
        if len(states) > most:
            raise MemoryError(f"more than {most} states; make the model smaller")
    stuck = first_stuck([model.is_quiet(state) for state in states], nexts, ends)
    if stuck is not None:
        return Outcome(len(states), len(nexts), "stuck", story(model, states, parents, stuck))
    return Outcome(len(states), len(nexts), "", "")


def first_stuck(leads: list[bool], nexts: array[int], ends: array[int]) -> int | None:
    """The first state from which no quiet one can be reached; `leads` are the quiet ones."""
    changed = True
    while changed:  # from the last states on, as quiet ones are late: a few rounds
        changed = False
        for number in range(len(leads) - 1, -1, -1):
            if not leads[number]:
                begin = ends[number - 1] if number else 0
                if any(leads[each] for each in nexts[begin : ends[number]]):
                    leads[number] = changed = True
    return next((number for number, well in enumerate(leads) if not well), None)


def story(model: Model[S], states: list[S], parents: array[int], number: int) -> str:
    """The steps from the first state to one, in words, and that state."""
    way = [number]
    while way[-1]:
        way.append(parents[way[-1]])
    lines = [f"   {model.describe(states[number])}"]
    for after, before in pairwise(way):
        told = model.actions(states[before])
        words = next(words for words, state in told if state == states[after])
        lines.append(" ".join(map(str, words)))
    lines.append("")
    return "\n".join(
        f"{index:3} {line}" if index else line for index, line in enumerate(reversed(lines))
    ).lstrip("\n")
