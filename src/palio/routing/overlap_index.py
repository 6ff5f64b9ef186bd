"""`OverlapIndex`: finds the neighbours with an advertisement that a filter overlaps (siena 5.3).

A broker with 100,000 subscriptions and 1,000 advertisements has a hundred million pairs. So both
are kept in a `DomainIndex`: a new advertisement finds the filters that it overlaps, a new filter
the advertisements. For each filter and neighbour the index counts the overlapping advertisements.
So when an advertisement ends, its filters are counted down, and no other one is compared again.

Both searches agree with `overlaps`, except on pairs that take too long to compare. Those count as
overlapping, but the limits differ (`MOST_TRIED` here, `MAX_COMPARISONS` there).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from palio.model.advertisements import Advertisement, UnreadAdvertisement
from palio.model.domains import KindSet
from palio.model.events import is_system_name
from palio.model.filters import Filter
from palio.routing.domain_index import DomainIndex, ValueBox, ValueSet, pieces_of
from palio.routing.normalized import form_of
from palio.routing.protocol import Peer

Longs: TypeAlias = npt.NDArray[np.int64]


class OverlapIndex:
    """Filters, the advertisements of neighbours, and the number that each filter overlaps.

    >>> import palio
    >>> index, hub = OverlapIndex(), Peer.broker("hub")
    >>> low, high = palio.parse("price < 5"), palio.parse("price > 50")
    >>> index.towards(low), index.towards(high)
    ([], [])
    >>> [str(filter) for filter in index.set_offers(hub, [palio.parse_advertisement("price < 10")])]
    ['price < 5']
    >>> [peer.name for peer in index.towards(low)]
    ['hub']
    """

    def __init__(self) -> None:
        self._wanted: DomainIndex[Filter] = DomainIndex(needing=True)
        self._offered: DomainIndex[Peer] = DomainIndex(needing=False)
        self._numbers: dict[Filter, int | None] = {}  # None for a filter that matches no event
        self._offers: dict[Peer, dict[Advertisement, int | None]] = {}
        self._counts: dict[Peer, Longs] = {}
        # Advertisements that could not be parsed here: later filters overlap them, too.
        self._unread: Counter[Peer] = Counter()
        self._capacity = 16  # of each neighbour's array of counts

    def towards(self, filter: Filter) -> list[Peer]:
        """List the neighbours that a filter may go to."""
        if filter not in self._numbers:
            self._enter(filter)
        number = self._numbers[filter]
        if number is None:
            return []
        return [peer for peer, counts in self._counts.items() if counts[number]]

    def forget(self, filter: Filter) -> None:
        """Drop a filter without subscribers."""
        number = self._numbers.pop(filter, None)
        if number is None:
            return
        self._wanted.remove(number, _needs(filter))
        for counts in self._counts.values():  # the number may be another filter's next
            counts[number] = 0

    def set_offers(self, peer: Peer, advertisements: Iterable[Advertisement]) -> list[Filter]:
        """Replace the advertisements of a neighbour; return the filters that now may go to it, or
        no longer.
        """
        before, now = self._offers.setdefault(peer, {}), dict.fromkeys(advertisements)
        self._counts.setdefault(peer, np.zeros(self._capacity, np.int64))
        changed: list[Filter] = []
        # Begin before ending: a filter that an old and a new one overlap never counts as zero.
        for advertisement in now:
            if advertisement not in before:
                changed += self._begin(peer, advertisement)
        for advertisement in list(before):
            if advertisement not in now:
                changed += self._end(peer, advertisement)
        return changed

    def _begin(self, peer: Peer, advertisement: Advertisement) -> list[Filter]:
        boxes = _offers(advertisement)
        self._offers[peer][advertisement] = self._offered.add(peer, boxes)
        self._unread[peer] += isinstance(advertisement, UnreadAdvertisement)
        numbers, counts = self._meeting(advertisement, boxes), self._counts[peer]
        counts[numbers] += 1  # `meeting` gives each number once, as this needs
        return self._filters(numbers[counts[numbers] == 1])

    def _end(self, peer: Peer, advertisement: Advertisement) -> list[Filter]:
        boxes = _offers(advertisement)
        number = self._offers[peer].pop(advertisement)
        if number is not None:
            self._offered.remove(number, boxes)
        self._unread[peer] -= isinstance(advertisement, UnreadAdvertisement)
        numbers, counts = self._meeting(advertisement, boxes), self._counts[peer]
        counts[numbers] -= 1
        return self._filters(numbers[counts[numbers] == 0])

    def _meeting(self, advertisement: Advertisement, boxes: list[ValueBox]) -> Longs:
        """Find the numbers of the filters that overlap an advertisement."""
        if isinstance(advertisement, UnreadAdvertisement):
            numbers = [number for number in self._numbers.values() if number is not None]
            return np.array(numbers, np.int64)
        return self._wanted.meeting(boxes)

    def overlapping(self, peer: Peer) -> Iterator[Filter]:
        """Yield the filters that overlap advertisements of a neighbour."""
        filters, counts = self._wanted.items, self._counts.get(peer)
        if counts is not None:
            yield from (filters[number] for number in np.flatnonzero(counts).tolist())

    def drop(self, peer: Peer) -> None:
        """Forget a neighbour and its advertisements."""
        self._counts.pop(peer, None)
        self._unread.pop(peer, None)
        for advertisement, number in self._offers.pop(peer, {}).items():
            if number is not None:
                self._offered.remove(number, _offers(advertisement))

    def _enter(self, filter: Filter) -> None:
        boxes = list(_needs(filter))
        number = self._numbers[filter] = self._wanted.add(filter, boxes)
        if number is None:
            return
        if number >= self._capacity:
            self._capacity = 2 * number
            for peer, counts in self._counts.items():
                self._counts[peer] = np.pad(counts, (0, self._capacity - len(counts)))
        for peer, count in self._unread.items():
            self._counts[peer][number] += count
        if not self._offered.items:
            return
        for offer in self._offered.meeting(boxes).tolist():
            self._counts[self._offered.items[offer]][number] += 1

    def _filters(self, numbers: Longs) -> list[Filter]:
        filters = self._wanted.items
        return [filters[number] for number in numbers.tolist()]


def _needs(filter: Filter) -> Iterator[ValueBox]:
    """Yield for each alternative of a filter the values that an event must have, by attribute.

    Attributes that may be absent need nothing, and brokers add those of the system.
    """
    plain = form_of(filter).plain
    if plain is not None:
        yield {
            name: (ValueSet(kind, KindSet(((low, high),))),)
            for name, (kind, low, high) in plain.items()
            if not is_system_name(name)
        }
        return
    for conjunction in filter.conjunctions:
        if not conjunction.is_contradiction:
            yield {
                name: pieces_of([domain])
                for name, domain in conjunction.domains.items()
                if not domain.absent and not is_system_name(name)
            }


def _offers(advertisement: Advertisement) -> list[ValueBox]:
    """Return for each alternative of an advertisement the values that it allows, by attribute."""
    return [
        {name: pieces_of(domains) for name, domains in alternative.domains.items()}
        for alternative in advertisement.alternatives
    ]
