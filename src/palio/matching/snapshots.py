"""What the readers of an index see: parts, and the changes to them since.

A writer only notes a change. The next reader takes in what was noted since the last one looked:
comparisons with numbers go into the overlay (`overlay.py`), other filters are compiled into a small
part. Small parts are joined by size. Where another thread joins them too, `SLICE_ROWS` bounds what
is joined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

import numpy as np

from palio.matching.change_log import Tape, is_fresh
from palio.matching.compile.terms import Guard, draft_singles
from palio.matching.kernels.registry import Kernels
from palio.matching.layers import Part, joined, part_of
from palio.matching.recent import Overlay
from palio.matching.subscriptions import Subscription
from palio.model.constraints import Constraint

__all__ = [
    "SLICE_JOINED",
    "Change",
    "MergeJob",
    "Seen",
    "State",
    "merged_parts",
    "size_of",
    "work_of",
]


Change: TypeAlias = tuple[int, Subscription | None]
"""A key, and what it has from now on; None if nothing."""

FAN_OUT: Final = 4
"""So many parts of about one size are joined: each change is compiled again a few times, and there
are a few parts of each size."""


MAX_FRESH_ROWS: Final = 32_768
"""An overlay with more rows becomes a part: each of them is tried, one by one, on single events."""

FEW_CHANGES: Final = 512
"""So many changes at a time go into an overlay, however few the filters are..."""

FRESH_SHARE: Final = 4
"""...and a quarter of the rows: what is added in bulk is worth compiling at once."""

CHASES: Final = 32
"""So often a merge takes in what changed meanwhile: each time it is less..."""

CHASE_WORK: Final = 256
"""...until no more is left than the writer compiles at once, in these units..."""

CHASE_CHANGES: Final = 512
"""...and no more changes, of any sort, than it notes again in a millisecond."""

LISTS: Final = (tuple, list, set, frozenset)

SLICE_JOINED: Final = 4_096
"""What a reader or writer joins into one small part if there is a thread for more, 20 ms of work:
rows, the predicates that they name, and the intervals of those."""


@dataclass(frozen=True)
class Seen:
    """What a reader made of a state and the first so many changes."""

    count: int
    parts: tuple[Part, ...]
    overlay: Overlay | None = None
    work: int = 0
    """The work of those changes (see `State.work`)."""

    def all_parts(self) -> tuple[Part, ...]:
        """Everything as parts."""
        fresh = None if self.overlay is None else self.overlay.part()
        return self.parts if fresh is None else (*self.parts, fresh)


class State:
    """What readers see: parts, and the changes to them since, in order.

    Only the writer notes changes: on a tape for kernels, and in a list for those that compile
    parts. The list comes last; a reader sees the changes that are in it when it looks, and may keep
    what it made of them for the next one.
    """

    __slots__ = ("changes", "largest", "most_joined", "parts", "rows", "seen", "tape", "work")

    def __init__(
        self,
        parts: tuple[Part, ...],
        changes: Iterable[Change] = (),
        *,
        most_joined: float = inf,
    ) -> None:
        self.parts = parts
        self.most_joined = most_joined
        """How much readers join into one part (`SLICE_JOINED`)."""
        self.changes: list[Change] = []
        self.tape = Tape()
        self.work = 0
        """What there is to compile in all changes: their constraints and constants."""
        self.seen = Seen(0, parts)
        sizes = [part.segment.compiled.rows for part in parts]
        self.rows, self.largest = sum(sizes), max(sizes, default=0)
        for key, subscription in changes:
            self.note(key, subscription)

    def note(self, key: int, subscription: Subscription | None) -> None:
        """A key has another subscription, or none.

        What compiling needs of it is worked out here, by the writer, and not in the next match.
        """
        if not self.tape.note(key, subscription) and subscription is not None:
            self.work += work_of(subscription)
        self.changes.append((key, subscription))

    def seen_by(self, kernels: Kernels | None) -> Seen:
        """The parts with all changes made. Two readers may both do it; either result will do."""
        count, work, seen = len(self.changes), self.work, self.seen
        if seen.count < count:
            parts, overlay = self._caught_up(seen, count, kernels)
            seen = self.seen = Seen(count, parts, overlay, work)
        return seen

    def _caught_up(
        self, seen: Seen, count: int, kernels: Kernels | None
    ) -> tuple[tuple[Part, ...], Overlay | None]:
        """What was seen, with the changes since."""
        more = count - seen.count
        known = len(seen.overlay) if seen.overlay is not None else 0
        few = more <= max(FEW_CHANGES, self.rows // FRESH_SHARE) and known + more <= MAX_FRESH_ROWS
        if kernels is None or not few:
            changes = dict(self.changes[seen.count : count])
            parts = _changed(seen.all_parts(), changes, kernels)
            return self._tiered(parts, kernels), None
        overlay = seen.overlay or Overlay.empty(kernels)
        overlay, keys = overlay.advanced(self.tape, seen.count, count)
        parts = tuple(part.without(keys) for part in seen.parts)
        if self.work:
            changes = dict(self.changes[seen.count : count])
            rest = {key: each for key, each in changes.items() if each and not is_fresh(each)}
            parts = self._tiered((*parts, *_compile_fresh(rest, kernels)), kernels)
        return parts, overlay

    def _tiered(self, parts: tuple[Part, ...], kernels: Kernels | None) -> tuple[Part, ...]:
        """Parts made since the state began joined, where several are of about one size."""
        return _tiered(parts, len(self.parts), self.most_joined, kernels)

    def rest(self, seen: Seen, kernels: Kernels | None) -> None:
        """Join what was seen into one part, unless somebody has seen more by then."""
        whole = Seen(seen.count, merged_parts(seen.all_parts(), kernels), work=seen.work)
        if self.seen is seen:
            self.seen = whole

    @property
    def small_parts(self) -> int:
        """How many parts readers have made since the state began."""
        return len(self.seen.parts) - len(self.parts)

    def until(self, count: int) -> State:
        """The state after so many changes, for another thread."""
        state = State.__new__(State)
        state.parts, state.rows, state.largest = self.parts, self.rows, self.largest
        state.changes, state.tape, state.work = self.changes[:count], self.tape, self.work
        state.most_joined = inf
        state.seen = self.seen if self.seen.count <= count else Seen(0, self.parts)
        return state


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


def work_of(subscription: Subscription) -> int:
    """What there is to compile in a subscription: its constraints and constants, about 10 us each.

    >>> import palio
    >>> work_of(Subscription(palio.parse("x IN (1, 2, 5) OR s LIKE '%a'"), {}, 0))
    6
    """
    parts = [part for each in subscription.filter.conjunctions for part in each.parts]
    operands = [part.operand for part in parts if isinstance(part, Constraint)]
    lists = [each for each in (*operands, *subscription.values.values()) if isinstance(each, LISTS)]
    return 1 + len(parts) + sum(map(len, lists))


def _tiered(
    parts: tuple[Part, ...], first_free: int, most: float, kernels: Kernels | None
) -> tuple[Part, ...]:
    """The last parts joined, behind the first so many, where several are of about one size and all
    together are no larger than `most`.
    """
    listed = list(parts)
    for guarded in (False, True):
        while True:
            tail = [part for part in listed[first_free:] if (part.guards is not None) is guarded]
            sizes = [part.segment.compiled.rows for part in tail]
            alike = next(
                (at for at, size in enumerate(reversed(sizes)) if size >= FAN_OUT * sizes[-1]),
                len(sizes),
            )
            small = tail[len(tail) - alike :]
            if alike < FAN_OUT or sum(map(size_of, small)) > most:
                break
            listed = [part for part in listed if all(part is not each for each in small)]
            whole = joined(small, kernels)
            if whole is not None:
                listed.append(whole)
    return tuple(listed)


def size_of(part: Part) -> int:
    """What it costs to join a part to others: rows, predicates, and intervals."""
    rows = part.segment.compiled
    return rows.rows + len(rows.row_predicates) + len(rows.lows)


class MergeJob:
    """Joins the parts of a state and the changes so far; the result appears when it is done.

    While it works, changes go on. It takes in those too, until only few are left for the writer.
    """

    def __init__(self, state: State, kernels: Kernels | None) -> None:
        self.count = len(state.changes)
        """So many of the changes are in the result."""
        self.result: State | None = None
        self._whole = state
        self._state = state.until(self.count)
        self._kernels = kernels

    def __call__(self) -> None:
        """Do it."""
        seen = self._state.seen_by(self._kernels)
        state = State(merged_parts(seen.all_parts(), self._kernels))
        for _ in range(CHASES):
            more = self._whole.changes[self.count :]
            if len(more) <= CHASE_CHANGES and _work_left(more) <= CHASE_WORK:
                break
            for key, subscription in more:
                state.note(key, subscription)
            state.seen_by(self._kernels)
            self.count += len(more)
        state.most_joined = self._whole.most_joined
        self.result = state


def _work_left(changes: Iterable[Change]) -> int:
    """What there is to compile in some changes."""
    return sum(work_of(each) for _, each in changes if each and not is_fresh(each))


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
