"""What the readers of an index see: parts, and the changes to them since.

A writer only notes a change, which costs it no more than a list does. The next reader compiles
what was noted since the last one looked, into a small part; small parts are joined by size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from palio.matching.drafting import Guard, draft_singles
from palio.matching.kernels import Kernels
from palio.matching.parts import Part, joined, part_of
from palio.matching.subscriptions import Subscription

__all__ = ["MergeJob", "Seen", "State", "merged_parts"]


Change: TypeAlias = tuple[int, Subscription | None]
"""A key, and what it has from now on; None if nothing."""

FAN_OUT: Final = 4
"""So many parts of about one size are joined: each change is compiled again a few times, and there
are a few parts of each size."""


@dataclass(frozen=True)
class Seen:
    """The parts that a reader made of a state and the first so many changes."""

    count: int
    parts: tuple[Part, ...]


class State:
    """What readers see: parts, and the changes to them since, in order.

    Only the writer appends changes. A reader sees those that are there when it looks, and may keep
    what it compiled for the next one.
    """

    __slots__ = ("changes", "largest", "parts", "rows", "seen")

    def __init__(self, parts: tuple[Part, ...], changes: list[Change]) -> None:
        self.parts = parts
        self.changes = changes
        self.seen: Seen | None = None
        sizes = [part.segment.compiled.rows for part in parts]
        self.rows, self.largest = sum(sizes), max(sizes, default=0)

    def note(self, key: int, subscription: Subscription | None) -> None:
        """A key has another subscription, or none.

        What compiling needs of it is worked out here, by the writer, and not in the next match.
        """
        if subscription is not None:
            subscription.prepare()
        self.changes.append((key, subscription))

    def parts_seen(self, kernels: Kernels | None) -> tuple[Part, ...]:
        """The parts with all changes made. Two readers may both do it; either result will do."""
        count = len(self.changes)
        if not count:
            return self.parts
        seen = self.seen or Seen(0, self.parts)
        if seen.count < count:
            changes = dict(self.changes[seen.count : count])
            parts = _changed(seen.parts, changes, kernels)
            seen = self.seen = Seen(count, _tiered(parts, len(self.parts), kernels))
        return seen.parts


def _changed(
    parts: tuple[Part, ...],
    changes: Mapping[int, Subscription | None],
    kernels: Kernels | None,
) -> tuple[Part, ...]:
    """Parts without the keys that changed, and parts with what became of them."""
    keys = np.array(sorted(changes), np.int64)
    fresh = {key: each for key, each in changes.items() if each is not None}
    living = (part.without(keys) for part in parts)
    return (*living, *_compile_fresh(fresh, kernels))


def _compile_fresh(fresh: Mapping[int, Subscription], kernels: Kernels | None) -> tuple[Part, ...]:
    if not fresh:
        return ()
    guards: list[Guard] = []
    plain, guarded = draft_singles(fresh, guards)
    keys = np.array(sorted(fresh), np.int64)
    goals = np.array([fresh[key].destination for key in keys.tolist()], np.int64)
    found = (
        part_of(plain, (keys, goals), kernels) if plain else None,
        part_of(guarded, None, kernels, guards) if guarded else None,
    )
    return tuple(part for part in found if part is not None)


def _tiered(parts: tuple[Part, ...], first_free: int, kernels: Kernels | None) -> tuple[Part, ...]:
    """The last parts joined, behind the first so many, where several are of about one size."""
    listed = list(parts)
    for guarded in (False, True):
        while True:
            tail = [part for part in listed[first_free:] if (part.guards is not None) is guarded]
            sizes = [part.segment.compiled.rows for part in tail]
            alike = next(
                (at for at, size in enumerate(reversed(sizes)) if size >= FAN_OUT * sizes[-1]),
                len(sizes),
            )
            if alike < FAN_OUT:
                break
            small = tail[len(tail) - alike :]
            listed = [part for part in listed if all(part is not each for each in small)]
            whole = joined(small, kernels)
            if whole is not None:
                listed.append(whole)
    return tuple(listed)


class MergeJob:
    """Joins the parts of a state and the changes so far; the result appears when it is done."""

    def __init__(self, state: State, kernels: Kernels | None) -> None:
        self.count = len(state.changes)
        self.result: tuple[Part, ...] | None = None
        self._state = State(state.parts, state.changes[: self.count])
        if state.seen is not None and state.seen.count <= self.count:
            self._state.seen = state.seen
        self._kernels = kernels

    def __call__(self) -> None:
        """Do it."""
        parts = self._state.parts_seen(self._kernels)
        self.result = merged_parts(parts, self._kernels)


def merged_parts(parts: Iterable[Part], kernels: Kernels | None) -> tuple[Part, ...]:
    """One part without guards and one with them, where there are any."""
    listed = list(parts)
    found = []
    for sort in (
        [part for part in listed if part.guards is None],
        [part for part in listed if part.guards is not None],
    ):
        whole = joined(sort, kernels) if sort else None
        if whole is not None:
            found.append(whole)
    return tuple(found)
