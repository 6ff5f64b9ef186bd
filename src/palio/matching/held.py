"""Hold the changes since a snapshot uncompiled, and try single events on them directly.

To compile one filter takes a millisecond, and to bring the recent layer up to date a tenth of one;
to try one filter on one event takes microseconds. So a change is not compiled for the next event,
but for the next batch, or when trying it on events has cost as much.

A filter is tried only on events that have its *anchor*, a value or an attribute without which it is
never true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from palio.matching.layers import Longs
from palio.matching.subscriptions import Comparisons, Subscription
from palio.model.binding import scalar_value
from palio.model.constraints import Constraint
from palio.model.expressions import Literal
from palio.model.filters import Conjunction
from palio.model.operators import Op
from palio.model.values import Bindings, Value, checked

Change: TypeAlias = tuple[int, Subscription | None]
"""A key and its new subscription; None removes it."""

Anchor: TypeAlias = tuple[str, Value] | str | None
"""A value that an event must have, an attribute that it must have, or neither."""

MAX_HELD: Final = 1_024
"""The most changes that are held: each new one copies the directory of those before, in 10 us."""

MOST_ANCHORS: Final = 8
"""A list of more values has the attribute as its anchor, not the values."""

COMPARING: Final = 1
"""Microseconds to try a filter of comparisons with numbers."""

TRYING: Final = 4
"""Microseconds to try any other filter, for each unit of its work."""

ADVANCING: Final = 100
"""Microseconds to bring the recent layer up to date."""

COMPILING: Final = 1_000
"""Microseconds to compile a layer, however small."""

COMPILING_WORK: Final = 15
"""Microseconds to compile each unit of work in it."""

LAYER: Final = 10
"""Microseconds that the first layer takes for an event, however few its filters are."""

LISTS: Final = (tuple, list, set, frozenset)


class _Entry(NamedTuple):
    """One filter: how it is tried, by which anchors it is found, and what trying it costs."""

    subscription: Subscription
    comparisons: Comparisons | None
    anchors: frozenset[Anchor]
    cost: int

    @classmethod
    def of(cls, subscription: Subscription) -> _Entry:
        filter, comparisons = subscription.filter, subscription.comparisons
        anchors: set[Anchor] = set()
        for conjunction in filter.conjunctions:
            anchors.update(_anchors(conjunction, subscription.values))
        if comparisons is None:
            cost = TRYING * work_of(subscription)
            return cls(subscription, None, frozenset(anchors), cost)
        return cls(subscription, comparisons, frozenset(anchors), COMPARING)

    def matches(self, event: Mapping[str, Value]) -> bool:
        """Check whether an event of canonical values satisfies the filter."""
        if self.comparisons is None:
            return self.subscription.filter.matches(event, self.subscription.values)
        for (name, op), number in zip(*self.comparisons, strict=True):
            value: Any = event.get(name)
            if type(value) not in _NUMBERS or not _passes(op, value, number):
                return False
        return True


_NUMBERS: Final = (int, float)


def _passes(op: Op, value: float, number: float) -> bool:
    if op is Op.EQ:
        return value == number
    if op is Op.LT:
        return value < number
    if op is Op.LE:
        return value <= number
    return value > number if op is Op.GT else value >= number


class Held:
    """Changes in order, the last one of each key; it never changes.

    >>> import palio
    >>> held = Held().after([(7, Subscription(palio.parse("s = 'a'"), {}, 1)), (8, None)])
    >>> held.match({"s": "a"}), held.left(np.array([7, 8, 9])).tolist()
    ([7], [9])

    `spared` are the microseconds that compiling all of it would cost each event: only what trying
    takes beyond that is counted, so a few filters without a layer are never compiled for single
    events.
    """

    __slots__ = ("_entries", "_keys", "_spared", "_spent")

    def __init__(self, previous: Held | None = None, *, spared: int = 0) -> None:
        self._spared: int = spared if previous is None else previous._spared
        self._entries: dict[int, _Entry | None] = (
            {} if previous is None else previous._entries.copy()
        )
        self._keys: dict[Anchor, tuple[int, ...]] = (
            {} if previous is None else previous._keys.copy()
        )
        # Microseconds spent on events so far; one list for all that `after` makes of another.
        self._spent: list[int] = [0] if previous is None else previous._spent

    def __len__(self) -> int:
        return len(self._entries)

    def after(self, changes: Iterable[Change]) -> Held:
        """The same after some more changes."""
        held = Held(self)
        for key, subscription in changes:
            held._put(key, None if subscription is None else _Entry.of(subscription))
        return held

    def _put(self, key: int, entry: _Entry | None) -> None:
        before = self._entries.get(key)
        old = frozenset() if before is None else before.anchors
        new = frozenset() if entry is None else entry.anchors
        for anchor in old - new:
            self._keys[anchor] = tuple([other for other in self._keys[anchor] if other != key])
        for anchor in new - old:
            self._keys[anchor] = (*self._keys.get(anchor, ()), key)
        self._entries[key] = entry

    def match(self, event: Mapping[str, Any]) -> list[int]:
        """The keys whose filters one event matches, in no order."""
        present: dict[str, Value] = {}
        for name, value in event.items():
            if type(value) is float or (type(value) is str and value.isascii()):
                present[name] = value  # as `checked` would have it
            elif value is not None:
                present[name] = checked(value)
        candidates = self._candidates(present)
        keys, spent = [], 0
        for key in candidates:
            entry = self._entries[key]
            if entry is not None:
                spent += entry.cost
                if entry.matches(present):
                    keys.append(key)
        self._spent[0] += max(0, spent - self._spared)
        return keys

    def _candidates(self, present: Mapping[str, Value]) -> set[int]:
        """Find the filters one of whose anchors an event has, by the shorter list of both."""
        keys_of = self._keys
        candidates: set[int] = set()
        if len(keys_of) <= len(present):
            for anchor, keys in keys_of.items():
                if isinstance(anchor, tuple):
                    is_there = anchor in present.items()
                else:
                    is_there = anchor is None or anchor in present
                if is_there:
                    candidates.update(keys)
        else:
            candidates.update(keys_of.get(None, ()))
            for pair in present.items():
                candidates.update(keys_of.get(pair[0], ()), keys_of.get(pair, ()))
        return candidates

    def destination(self, key: int) -> int:
        """The destination of a filter that is held."""
        entry = self._entries[key]
        assert entry is not None
        return entry.subscription.destination

    def left(self, keys: Longs) -> Longs:
        """Those of some keys, ascending, that did not change."""
        changed = self._entries.keys() & keys.tolist()
        return np.delete(keys, np.searchsorted(keys, sorted(changed))) if changed else keys

    @property
    def is_cheap(self) -> bool:
        """True if there is no layer, and no event has cost more than one would."""
        return self._spared > 0 and not self._spent[0]

    def is_spent(self, work: int) -> bool:
        """Check whether events cost as much by now as compiling this work would have."""
        return self._spent[0] >= ADVANCING + (COMPILING + COMPILING_WORK * work if work else 0)


def _anchors(conjunction: Conjunction, values: Bindings) -> Iterable[Anchor]:
    """Find the anchors of a conjunction: values of an equality, or else an attribute it needs."""
    needed: str | None = None
    for constraint in conjunction.constraints:
        if constraint.op in _EQUALITIES and not constraint.ignore_case:
            members = list(_values(constraint, values))
            if len(members) <= MOST_ANCHORS:
                return [(constraint.name, value) for value in members]
        if constraint.op is not Op.ABSENT:
            needed = constraint.name
    return [needed]


_EQUALITIES: Final = frozenset({Op.EQ, Op.IN})


def _values(constraint: Constraint, values: Bindings) -> Iterator[Value]:
    """The values that satisfy an equality or a list."""
    operand: Any = constraint.operand
    for item in operand if isinstance(operand, tuple) else (operand,):
        if isinstance(item, Literal):
            yield item.value
        elif isinstance(given := values[item.name], LISTS):
            yield from map(checked, given)
        else:
            yield scalar_value(item.name, values)


def work_of(subscription: Subscription) -> int:
    """Count what there is to compile in a subscription: constraints and constants, 10 us each.

    >>> import palio
    >>> work_of(Subscription(palio.parse("x IN (1, 2, 5) OR s LIKE '%a'"), {}, 0))
    6
    """
    parts = [part for conjunction in subscription.filter.conjunctions for part in conjunction.parts]
    operands = [part.operand for part in parts if isinstance(part, Constraint)]
    lists = [item for item in (*operands, *subscription.values.values()) if isinstance(item, LISTS)]
    return 1 + len(parts) + sum(map(len, lists))
