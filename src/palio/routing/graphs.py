"""`LinkStates` and `LastNumbers`: the state that all routers on graphs share.

`LinkStates` keeps the newest flooded list of links of each broker, and the graph of the links that
both ends list. `LastNumbers` finds duplicates: where paths change, an event may arrive twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.messages import MOST_LINKS, MOST_STATES, LinkState, LinkTable
from palio.routing.protocol import Peer, Send
from palio.routing.trees import MAX_LINK_COST, Edge

MAX_PUBLISHERS: Final = 1 << 20
"""Publishers whose last number is remembered; beyond, the least recent one is evicted."""

MAX_ORIGINS: Final = 10_000
"""Brokers of a network; a report of more is invented."""

MAX_VERSION: Final = 1 << 62
"""Versions count from 0: one so great is invented, and its successor might not fit 64 bits."""

ALL_NEW: Final = np.ones(1, np.bool_)
NONE_NEW: Final = np.zeros(1, np.bool_)
"""The two answers about a single event."""


class LinkNews(Enum):
    """The verdict on a received link state."""

    OLD = "known already"
    NEW = "to be kept and flooded"
    MINE = "one of our own, from before a restart, to be superseded"


class LinkStates:
    """The newest link state of each broker, and those that are yet to be flooded.

    >>> states = LinkStates("b1")
    >>> states.learn(LinkState("b2", 1, ("b1",))), states.learn(LinkState("b2", 1, ("b1",)))
    (<LinkNews.NEW: 'to be kept and flooded'>, <LinkNews.OLD: 'known already'>)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = {name: LinkState(name, 0, ())}
        self._reported: dict[str, dict[str, int]] = {name: {}}  # broker -> its links' costs
        self.graph: dict[str, dict[str, int]] = {name: {}}
        """The links that both ends list; each costs the greater of the two reported costs."""
        self.below: set[str] = set()
        """The brokers that report a parent."""
        self._unsent: dict[str, tuple[LinkState, Peer | None]] = {}  # with their senders

    def is_half_gone(self, edge: Edge) -> bool:
        """Return whether only one end lists a link."""
        one, other = edge
        return (other in self._reported.get(one, ())) != (one in self._reported.get(other, ()))

    @property
    def has_news(self) -> bool:
        """True if `news` has states to flood."""
        return bool(self._unsent)

    def others(self) -> list[LinkState | LinkTable]:
        """List the states, by name, that a new neighbour is sent besides our own."""
        known = sorted(self.known.items())
        return [*_batched([state for origin, state in known if origin != self.name])]

    def news(self, peers: Iterable[Peer]) -> list[Send]:
        """Flood the states that changed since the last call, except to a peer that sent them all.

        A peer that sent only some of them receives those again: all peers share the messages.
        """
        unsent, self._unsent = self._unsent, {}
        messages = list(_batched([state for state, _ in unsent.values()]))
        sources = {source for _, source in unsent.values()}
        return [Send(peer, message) for peer in peers if sources != {peer} for message in messages]

    def renew(self, costs: Mapping[str, int], *, has_parent: bool = False) -> LinkState:
        """Replace our own link state after a link or its cost has changed."""
        names = tuple(sorted(costs))
        version = self.known[self.name].version + 1
        in_order = tuple(costs[name] for name in names)
        state = LinkState(self.name, version, names, in_order, has_parent)
        self._keep(state)
        self._unsent[self.name] = state, None
        return state

    def _keep(self, state: LinkState) -> None:
        origin, graph = state.origin, self.graph
        self.known[origin] = state
        (self.below.add if state.has_parent else self.below.discard)(origin)
        for neighbour in graph.get(origin, ()):
            del graph[neighbour][origin]
        graph[origin] = {}
        costs = self._reported[origin] = _link_costs(state)
        for neighbour, cost in costs.items():
            their_cost = self._reported.get(neighbour, {}).get(origin)
            if their_cost is not None and neighbour != origin:
                graph[origin][neighbour] = graph[neighbour][origin] = max(cost, their_cost)

    def learn(self, state: LinkState, source: Peer | None = None) -> LinkNews:
        """Keep a state if it is newer. After `MINE`, the caller supersedes it by `renew`."""
        known = self.known.get(state.origin)
        if state.version >= MAX_VERSION or (known is None and len(self.known) >= MAX_ORIGINS):
            return LinkNews.OLD  # invented: no broker could supersede it, or it is one too many
        if state.origin == self.name:
            assert known is not None
            if state.version < known.version or state == known:
                return LinkNews.OLD
            self._keep(state)
            return LinkNews.MINE
        if known is not None and state.version <= known.version:
            return LinkNews.OLD
        self._keep(state)
        self._unsent[state.origin] = state, source
        return LinkNews.NEW


def _batched(states: list[LinkState]) -> Iterator[LinkState | LinkTable]:
    """Combine states into as few messages as their limits allow."""
    batch: list[LinkState] = []
    links = 0
    for state in states:
        if batch and (len(batch) == MOST_STATES or links + len(state.neighbours) > MOST_LINKS):
            yield LinkTable(tuple(batch)) if len(batch) > 1 else batch[0]
            batch, links = [], 0
        batch.append(state)
        links += len(state.neighbours)
    if batch:
        yield LinkTable(tuple(batch)) if len(batch) > 1 else batch[0]


def _link_costs(state: LinkState) -> dict[str, int]:
    """Map a broker's neighbours to link costs within 1 to `MAX_LINK_COST`; 1 if none are given."""
    if len(state.costs) != len(state.neighbours):
        return dict.fromkeys(state.neighbours, 1)
    return {
        name: min(max(cost, 1), MAX_LINK_COST)
        for name, cost in zip(state.neighbours, state.costs, strict=True)
    }


class LastNumbers:
    """The last sequence number seen of each publisher.

    An event whose number is not greater is a duplicate or out of order. A publisher that restarts
    numbers from 0 in a greater `epoch`.

    >>> numbers = LastNumbers()
    >>> from palio.model.row_parcels import RowParcel
    >>> one, two = RowParcel("p", [{}, {}], first_seq=0), RowParcel("p", [{}, {}], first_seq=1)
    >>> numbers.unseen(one) is ALL_NEW, numbers.unseen(two)
    (True, array([False,  True]))
    >>> restarted, late = RowParcel("p", [{}], epoch=1), RowParcel("p", [{}], first_seq=3)
    >>> numbers.unseen(restarted), numbers.unseen(late)
    (array([ True]), array([False]))
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def unseen(self, parcel: Parcel) -> RowMask:
        """Select the events whose number is greater than any before, and record the last number."""
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
        """Return the epoch and number of a publisher's last event; -1 and -1 if none was seen."""
        return self._last.get(publisher, (-1, -1))

    def _remember(self, parcel: Parcel, seq: int) -> None:
        self._last[parcel.publisher] = parcel.epoch, seq
        if len(self._last) > MAX_PUBLISHERS:
            del self._last[next(iter(self._last))]
