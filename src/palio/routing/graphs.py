"""The parts of routing on a graph: link states, the tree they give, and numbers seen before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.messages import MOST_LINKS, MOST_STATES, LinkState, LinkTable
from palio.routing.protocol import Peer, Send
from palio.routing.trees import MAX_WEIGHT, Edge

MAX_PUBLISHERS: Final = 1 << 20
"""Publishers whose last number is remembered; beyond, the one seen longest ago is forgotten."""

MAX_ORIGINS: Final = 10_000
"""Brokers of a network; who reports more has made some up."""

MAX_VERSION: Final = 1 << 62
"""Versions are counted from 0: one so great was made up, and the next one might be no number."""

ALL_NEW: Final = np.ones(1, np.bool_)
NONE_NEW: Final = np.zeros(1, np.bool_)
"""The two answers about a single event."""


class LinkNews(Enum):
    """The verdict on a link state that was received."""

    OLD = "known already"
    NEW = "to be kept and passed on"
    MINE = "one of our own, from before a restart, which must be outdone"


class LinkStates:
    """The newest list of links of every broker that is known, and what of it is to be passed on.

    >>> states = LinkStates("b1")
    >>> states.learn(LinkState("b2", 1, ("b1",))), states.learn(LinkState("b2", 1, ("b1",)))
    (<LinkNews.NEW: 'to be kept and passed on'>, <LinkNews.OLD: 'known already'>)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = {name: LinkState(name, 0, ())}
        self._said: dict[str, dict[str, int]] = {name: {}}
        """By broker, the weights of its links as it reports them."""
        self.graph: dict[str, dict[str, int]] = {name: {}}
        """The links that both ends list, and what each weighs: as much as the heavier end says."""
        self.below: set[str] = set()
        """The brokers that have a parent, by what they say."""
        self._news: dict[str, tuple[LinkState, Peer | None]] = {}
        """States that are yet to be passed on, and who sent them."""

    def is_half_gone(self, edge: Edge) -> bool:
        """Return whether one end lists a link, and the other does not, or no longer."""
        one, other = edge
        return (other in self._said.get(one, ())) != (one in self._said.get(other, ()))

    @property
    def has_news(self) -> bool:
        """True if there is something in `news`."""
        return bool(self._news)

    def others(self) -> list[LinkState | LinkTable]:
        """The states, by name, that a new neighbour is sent besides our own."""
        known = sorted(self.known.items())
        return [*_together([state for origin, state in known if origin != self.name])]

    def news(self, peers: Iterable[Peer]) -> list[Send]:
        """Return messages on what was renewed or learned since the last call. Who has sent all of
        it is not told.
        """
        news, self._news = self._news, {}
        messages = list(_together([state for state, _ in news.values()]))
        sources = {source for _, source in news.values()}
        return [Send(peer, message) for peer in peers if sources != {peer} for message in messages]

    def renew(self, weights: Mapping[str, int], *, has_parent: bool = False) -> LinkState:
        """Our own links, or what they weigh, have changed: the state as it is now."""
        names = tuple(sorted(weights))
        version = self.known[self.name].version + 1
        heavy = tuple(weights[name] for name in names)
        state = LinkState(self.name, version, names, heavy, has_parent)
        self._keep(state)
        self._news[self.name] = state, None
        return state

    def _keep(self, state: LinkState) -> None:
        origin, graph = state.origin, self.graph
        self.known[origin] = state
        (self.below.add if state.has_parent else self.below.discard)(origin)
        for neighbour in graph.get(origin, ()):
            del graph[neighbour][origin]
        graph[origin] = {}
        mine = self._said[origin] = _weights(state)
        for neighbour, weight in mine.items():
            theirs = self._said.get(neighbour, {}).get(origin)
            if theirs is not None and neighbour != origin:
                graph[origin][neighbour] = graph[neighbour][origin] = max(weight, theirs)

    def learn(self, state: LinkState, source: Peer | None = None) -> LinkNews:
        """Keep a state if it is news. After `MINE`, `renew` outdoes it."""
        known = self.known.get(state.origin)
        if state.version >= MAX_VERSION or (known is None and len(self.known) >= MAX_ORIGINS):
            return LinkNews.OLD  # made up: no broker could outdo it, or the graph has fewer brokers
        if state.origin == self.name:
            assert known is not None
            if state.version < known.version or state == known:
                return LinkNews.OLD
            self._keep(state)
            return LinkNews.MINE
        if known is not None and state.version <= known.version:
            return LinkNews.OLD
        self._keep(state)
        self._news[state.origin] = state, source
        return LinkNews.NEW


def _together(states: list[LinkState]) -> Iterator[LinkState | LinkTable]:
    """A few messages with all of these."""
    part: list[LinkState] = []
    links = 0
    for state in states:
        if part and (len(part) == MOST_STATES or links + len(state.neighbours) > MOST_LINKS):
            yield LinkTable(tuple(part)) if len(part) > 1 else part[0]
            part, links = [], 0
        part.append(state)
        links += len(state.neighbours)
    if part:
        yield LinkTable(tuple(part)) if len(part) > 1 else part[0]


def _weights(state: LinkState) -> dict[str, int]:
    """Return the weight of each link of a broker, within reason; 1 where it does not say."""
    if len(state.weights) != len(state.neighbours):
        return dict.fromkeys(state.neighbours, 1)
    return {
        name: min(max(weight, 1), MAX_WEIGHT)
        for name, weight in zip(state.neighbours, state.weights, strict=True)
    }


class LastNumbers:
    """The last number seen of each publisher: what does not grow is a duplicate or out of order.

    A publisher that starts over, and so numbers from 0 again, does so in a greater `epoch`.

    >>> numbers = LastNumbers()
    >>> from palio.model.row_parcels import RowParcel
    >>> one, two = RowParcel("p", [{}, {}], first_seq=0), RowParcel("p", [{}, {}], first_seq=1)
    >>> numbers.news(one) is ALL_NEW, numbers.news(two)
    (True, array([False,  True]))
    >>> numbers.news(RowParcel("p", [{}], epoch=1)), numbers.news(RowParcel("p", [{}], first_seq=3))
    (array([ True]), array([False]))
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def news(self, parcel: Parcel) -> RowMask:
        """Select those with a greater number than any before; they are noted."""
        epoch, last = self._last.pop(parcel.publisher, (parcel.epoch, -1))
        if parcel.epoch < epoch:
            self._last[parcel.publisher] = epoch, last
            return np.zeros(len(parcel), np.bool_)
        if parcel.epoch > epoch:
            last = -1
        if parcel.count == 1:
            seq = parcel.seqs[0]
            self._remember(parcel, max(last, seq))
            return ALL_NEW if seq > last else NONE_NEW
        seqs = parcel.numbers
        if len(seqs) and seqs[0] > last and (seqs[1:] > seqs[:-1]).all():
            self._remember(parcel, int(seqs[-1]))
            return ALL_NEW
        new: RowMask = seqs > np.maximum.accumulate(np.concatenate([[last], seqs[:-1]]))
        self._remember(parcel, max(last, int(seqs.max(initial=-1))))
        return new

    def last(self, publisher: str) -> tuple[int, int]:
        """The epoch and number of the last event of a publisher; less than any if none was seen."""
        return self._last.get(publisher, (-1, -1))

    def _remember(self, parcel: Parcel, seq: int) -> None:
        self._last[parcel.publisher] = parcel.epoch, seq
        if len(self._last) > MAX_PUBLISHERS:
            del self._last[next(iter(self._last))]
