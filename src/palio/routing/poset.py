"""`Poset`: filters partially ordered by a covering relation (siena 5.1).

Generic over the relation: `covers` orders subscriptions (P_s), `covers_advertisement`
advertisements (P_a). An index finds candidates that may cover a filter, or be covered by it, and
the relation confirms them. Immediate edges are not stored: they would cost a transitive reduction
for every new filter, and `forwarding` only asks for all coverers, or all covered filters.

All answers are in the order of insertion, so two runs agree whatever the hash seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.relations import covers, covers_advertisement, overlaps
from palio.routing.covering_index import CoveringIndex
from palio.routing.normalized import NormalizedFilter, Stated, form_of

_REMEMBERED: Final = 1 << 16
"""Cached verdicts of each relation: a broker compares the same summaries many times."""

Relation: TypeAlias = Callable[[Stated, Stated], bool]


_covers = lru_cache(_REMEMBERED)(covers)


def SUBSCRIPTIONS(general: Filter, specific: Filter) -> bool:  # noqa: N802 - a constant that is called
    """`covers_s` of filters without variables, by intervals where these decide it."""
    return _covers_form(form_of(general), form_of(specific))


def _covers_form(general: NormalizedFilter, specific: NormalizedFilter) -> bool:
    verdict = general.covers(specific)
    return _covers(general.filter, specific.filter) if verdict is None else verdict


@lru_cache(_REMEMBERED)
def ADVERTISEMENTS(general: Advertisement, specific: Advertisement) -> bool:  # noqa: N802 - a constant that is called
    """`covers_a`, cached."""
    return covers_advertisement(general, specific)


@lru_cache(_REMEMBERED)
def overlap(advertisement: Advertisement, subscription: Filter) -> bool:
    """`overlaps`, cached."""
    return overlaps(advertisement, subscription)


def _on_forms(relation: Relation) -> Callable[[NormalizedFilter, NormalizedFilter], bool]:
    if relation is SUBSCRIPTIONS:  # the members' forms are at hand: no look-up for each pair
        return _covers_form
    return lambda general, specific: relation(general.filter, specific.filter)


class Poset:
    """A set of filters without variables, or of advertisements, ordered by a covering relation.

    >>> import palio
    >>> poset = Poset()
    >>> for text in ("a > 1", "a > 5", "a > 3", "b = 1"):
    ...     _ = poset.add(palio.parse(text))
    >>> [str(each) for each in poset.coverers(palio.parse("a > 4"))]
    ['a > 1', 'a > 3']
    >>> [str(each) for each in poset.covered(palio.parse("a > 1"))]
    ['a > 5', 'a > 3']
    """

    def __init__(self, relation: Relation = SUBSCRIPTIONS) -> None:
        self.relation = relation
        self._holds = _on_forms(relation)
        self._numbers: dict[Stated, int] = {}
        self._forms: dict[int, NormalizedFilter] = {}
        self._next = 0
        self._index: CoveringIndex | None = None

    def add(self, filter: Stated) -> bool:
        """Add a filter; False if it was a member."""
        if filter in self._numbers:
            return False
        number = self._next
        self._next += 1
        self._numbers[filter] = number
        self._forms[number] = form = form_of(filter)
        if self._index is not None:
            self._index.add(number, form)
        elif len(self._forms) > _MOST_UNINDEXED and self.relation is not ADVERTISEMENTS:
            # Kept even if members leave: a poset near the limit would build it again and again.
            self._index = CoveringIndex()
            for member, member_form in self._forms.items():
                self._index.add(member, member_form)
        return True

    def discard(self, filter: Stated) -> bool:
        """Remove a filter; False if it was no member."""
        number = self._numbers.pop(filter, None)
        if number is None:
            return False
        del self._forms[number]
        if self._index is not None:
            self._index.remove(number)
        return True

    def coverers(self, filter: Stated, max_misses: float = math.inf) -> Iterator[Stated]:
        """Yield the members, other than itself, that cover a filter, which need not be one. The
        search ends after so many candidates that do not.
        """
        form, own = form_of(filter), self._numbers.get(filter)
        index, forms, holds = self._index, self._forms, self._holds
        # Lazily: callers often need the first answer only, and to confirm one may take long.
        for number in forms if index is None else index.above(form):
            if number != own:
                if holds(forms[number], form):
                    yield forms[number].filter
                elif (max_misses := max_misses - 1) <= 0:
                    return

    def covered(self, filter: Stated, max_misses: float = math.inf) -> Iterator[Stated]:
        """Yield the members, other than itself, that a filter covers, as `coverers` does."""
        form, own = form_of(filter), self._numbers.get(filter)
        index, forms, holds = self._index, self._forms, self._holds
        for number in forms if index is None else index.below(form):
            if number != own:
                if holds(form, forms[number]):
                    yield forms[number].filter
                elif (max_misses := max_misses - 1) <= 0:
                    return

    def __contains__(self, filter: object) -> bool:
        return filter in self._numbers

    def __iter__(self) -> Iterator[Stated]:
        return iter([form.filter for form in self._forms.values()])

    def __len__(self) -> int:
        return len(self._forms)


_MOST_UNINDEXED: Final = 32
"""Members up to which all are candidates: an index costs more. (All advertisements always are: a
broker has few, and a wider advertisement names more attributes, not fewer as in the index.)"""
