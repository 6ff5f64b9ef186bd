"""The table behind the algorithms: who asked for what, and what each neighbour must be sent of it.

Equal filters are one *node*. In the terms of siena 5.2, for a node `s` and a neighbour `Y`,

    Y is eligible for s     some subscriber of s other than Y exists (Y is not in NST(s)),
                            and Y is one of the neighbours s may go to (`aim`)
    Y in forwards(s)        Y is eligible for s, and for no s' that strictly covers s

The second line is the paper's formula unrolled: if any coverer is eligible for Y, then a greatest
one is forwarded to Y. So a node that is not forwarded *relies*, for each neighbour, on one that
was forwarded when the question was asked, and only when that one ceases to be eligible is the
question asked again. Only forwarded nodes are kept in a poset; the rest cost one pointer a
neighbour.

Neighbours are bits of an int, so the sets of the paper are machine words. Invariants, for every
node s:

1. eligible(s) is the disjoint union of forwards(s) and of the bits s relies on others for;
2. if s relies on t for Y, then t covers s and Y is eligible for t;
3. of two nodes forwarded to Y neither covers the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from palio.routing.normalized import Stated, form_of
from palio.routing.poset import SUBSCRIPTIONS, Poset, Relation
from palio.routing.protocol import Peer


class Aim(Protocol):
    """Limits where filters may go, for an algorithm by which not all may go everywhere."""

    def towards(self, filter: Stated) -> Iterable[Peer]:
        """The neighbours that a filter may go to. When that changes, `retouch` the filter."""

    def forget(self, filter: Stated) -> None:
        """Nobody asks for a filter any more, about which `towards` may have been asked."""


_REMEMBERED: Final = 1 << 12
"""Peers of whose single requests one dictionary tells."""

_NOBODY: Final[dict[Any, Any]] = {}
"""The dependents of most nodes: none, and not to be changed."""


@lru_cache(_REMEMBERED)
def _alone(peer: Peer) -> dict[Peer, int]:
    """One that asks once, and nobody besides; not to be changed. Most filters have one subscriber,
    and a dictionary takes more than all else of a node.
    """
    return {peer: 1}


class FilterNode:
    """One filter of the table, or advertisement. `subscribers` counts who asks for it how often."""

    __slots__ = (
        "dependents",
        "eligible",
        "filter",
        "forwards",
        "relies",
        "subscribers",
        "told",
    )

    def __init__(self, filter: Stated) -> None:
        self.filter = filter
        self.subscribers: dict[Peer, int] = _NOBODY
        """Not to be changed where there is only one, which other nodes may share."""
        self.eligible = 0
        self.forwards = 0
        self.told = 0
        """The part of `forwards` that `changes` has reported."""
        self.relies: dict[FilterNode, int] = _NOBODY
        self.dependents: dict[FilterNode, None] = _NOBODY

    def __repr__(self) -> str:
        return f"Node({self.filter}, subscribers={sorted(map(str, self.subscribers))})"


def _breadth(growing: tuple[FilterNode, int]) -> int:
    """Wide filters first, roughly: what they cover then never gets forwarded."""
    return form_of(growing[0].filter).breadth


class FilterDelta(NamedTuple):
    """The changes for one neighbour: filters to send to it, and filters that it must forget."""

    added: list[Stated]
    dropped: list[Stated]


class Forwarding:
    """Filters by subscriber, and the frontier of those that each neighbour is sent.

    >>> import palio
    >>> table = Forwarding()
    >>> table.connect(Peer.broker("b2"))
    >>> _ = table.changes()
    >>> table.add(Peer.client("alice"), palio.parse("a > 1"))
    >>> table.add(Peer.client("bob"), palio.parse("a > 5"))
    >>> [str(f) for f in table.changes()[Peer.broker("b2")].added]
    ['a > 1']
    """

    def __init__(self, relation: Relation = SUBSCRIPTIONS, aim: Aim | None = None) -> None:
        self.nodes: dict[Stated, FilterNode] = {}
        self._relation = relation
        self._aim = aim
        self._bits: dict[Peer, int] = {}
        self._everyone = 0
        self._frontier = Poset(relation)
        self._touched: dict[FilterNode, None] = {}
        self._dirty: dict[FilterNode, None] = {}

    # --- who is there ---

    @property
    def neighbours(self) -> list[Peer]:
        """The peers that are sent filters, in the order they connected."""
        return list(self._bits)

    def bit(self, neighbour: Peer) -> int:
        """The neighbour's bit, 0 for a peer that is not told anything."""
        return self._bits.get(neighbour, 0)

    def connect(self, neighbour: Peer) -> None:
        """From now on this peer is sent what the others want. What may go to it by its `aim` is to
        be touched again.
        """
        free = ~self._everyone & (self._everyone + 1)  # the lowest bit not in use
        self._bits[neighbour] = free
        self._everyone |= free
        if self._aim is None or len(self._bits) <= 2:  # alone, one is not asked where to go
            self._touched.update(dict.fromkeys(self.nodes.values()))

    def disconnect(self, neighbour: Peer) -> None:
        """The peer is sent nothing any more. What it asked for is the caller's to `remove`."""
        bit = self._bits.pop(neighbour, 0)
        if not bit:
            return
        self._everyone &= ~bit
        for node in self.nodes.values():  # at once: the bit may be another's before `changes`
            self._release(node, bit)
            node.eligible &= ~bit
            node.told &= ~bit
        for node in self._dirty:
            node.told &= ~bit

    # --- who asks for what ---

    def add(self, peer: Peer, filter: Stated) -> None:
        """The peer asks for a filter (once more)."""
        node = self.nodes.get(filter)
        if node is None:
            node = self.nodes[filter] = FilterNode(filter)
        subscribers = node.subscribers
        if not subscribers:
            node.subscribers = _alone(peer)
        elif len(subscribers) == 1:
            node.subscribers = {**subscribers, peer: subscribers.get(peer, 0) + 1}
        else:
            subscribers[peer] = subscribers.get(peer, 0) + 1
        self._touched[node] = None

    def remove(self, peer: Peer, filter: Stated) -> None:
        """Undo one `add`."""
        node = self.nodes[filter]
        subscribers = node.subscribers
        count = subscribers[peer] - 1
        if len(subscribers) == 1:
            node.subscribers = {peer: count} if count else _NOBODY
        elif count:
            subscribers[peer] = count
        else:
            del subscribers[peer]
        self._touched[node] = None

    def retouch(self, filters: Iterable[Stated]) -> None:
        """Look again at filters whose `aim` may have changed."""
        for filter in filters:
            self._touched[self.nodes[filter]] = None

    def forwards(self, filter: Stated) -> list[Peer]:
        """siena's forwards(s)."""
        return self._peers(self.nodes[filter].forwards)

    def sent(self, neighbour: Peer) -> list[Stated]:
        """All that a neighbour has been sent."""
        bit = self._bits[neighbour]
        return [node.filter for node in self.nodes.values() if node.told & bit]

    def _peers(self, mask: int) -> list[Peer]:
        return [peer for peer, bit in self._bits.items() if mask & bit]

    # --- what follows ---

    def changes(self) -> dict[Peer, FilterDelta]:
        """The changes for each neighbour since the last call, in the order they connected."""
        if self._touched:
            self._update()
        if not self._dirty:
            return {}
        changed = 0
        news: list[tuple[FilterNode, int]] = []
        for node in self._dirty:
            differing = node.forwards ^ node.told
            if differing:
                news.append((node, differing))
                node.told = node.forwards
                changed |= differing
        self._dirty.clear()
        found: dict[Peer, FilterDelta] = {}
        for peer, bit in self._bits.items():
            if changed & bit:
                told = found[peer] = FilterDelta([], [])
                for node, differing in news:
                    if differing & bit:
                        list_ = told.added if node.forwards & bit else told.dropped
                        list_.append(node.filter)
        return found

    def _update(self) -> None:
        """Bring every touched node up to date.

        First what shrinks, so that nothing comes to rely on what is about to go; then what grows,
        wide filters first; last what relied on what went, of which by then little is exposed.
        """
        touched, self._touched = self._touched, {}
        growing: list[tuple[FilterNode, int]] = []
        orphans: list[tuple[FilterNode, int]] = []
        for node in touched:
            eligible, before = self._eligible(node), node.eligible
            if eligible != before:
                node.eligible = eligible
                if eligible & ~before:
                    growing.append((node, eligible & ~before))
                if before & ~eligible:
                    orphans += self._release(node, before & ~eligible)
            if not node.subscribers:
                del self.nodes[node.filter]
                if self._aim is not None:
                    self._aim.forget(node.filter)
        if len(growing) > 1:
            growing.sort(key=_breadth)
        for node, bits in growing:
            self._grow(node, bits)
        for orphan, bits in orphans:
            if bits & orphan.eligible:
                self._grow(orphan, bits & orphan.eligible)

    def _eligible(self, node: FilterNode) -> int:
        subscribers = node.subscribers
        if not subscribers:
            return 0
        everyone = self._everyone
        if len(subscribers) == 1:
            (only,) = subscribers
            everyone &= ~self._bits.get(only, 0)
        if self._aim is None or not everyone:
            return everyone
        aimed = 0
        for peer in self._aim.towards(node.filter):
            aimed |= self._bits.get(peer, 0)
        return everyone & aimed

    def _grow(self, node: FilterNode, bits: int) -> None:
        """Forward a filter to newly eligible neighbours, unless they have one that covers it."""
        nodes, frontier = self.nodes, self._frontier
        for filter in frontier.coverers(node.filter):
            coverer = nodes[filter]
            gained = coverer.forwards & bits
            if gained:
                self._rely(node, coverer, gained)
                bits &= ~gained
                if not bits:
                    return
        frontier.add(node.filter)
        node.forwards |= bits
        self._dirty[node] = None
        for filter in list(frontier.covered(node.filter)):
            covered = nodes[filter]
            lost = covered.forwards & bits
            if lost:
                self._forward_less(covered, lost)
                self._rely(covered, node, lost)

    def _release(self, node: FilterNode, bits: int) -> list[tuple[FilterNode, int]]:
        """Neighbours are no longer eligible: undo what was for them; say who relied on it."""
        if node.forwards & bits:
            self._forward_less(node, bits)
        if node.relies:
            for coverer, mask in list(node.relies.items()):
                if mask & bits:
                    self._rely_less(node, coverer, bits)
        orphans = []
        if node.dependents:
            for dependent in list(node.dependents):
                lost = dependent.relies[node] & bits
                if lost:
                    self._rely_less(dependent, node, lost)
                    orphans.append((dependent, lost & dependent.eligible))
        return orphans

    def _forward_less(self, node: FilterNode, bits: int) -> None:
        node.forwards &= ~bits
        self._dirty[node] = None
        if not node.forwards:
            self._frontier.discard(node.filter)

    def _rely(self, node: FilterNode, coverer: FilterNode, bits: int) -> None:
        if not node.relies:
            node.relies = {}
        if not coverer.dependents:
            coverer.dependents = {}
        node.relies[coverer] = node.relies.get(coverer, 0) | bits
        coverer.dependents[node] = None

    def _rely_less(self, node: FilterNode, coverer: FilterNode, bits: int) -> None:
        left = node.relies[coverer] & ~bits
        if left:
            node.relies[coverer] = left
        else:
            del node.relies[coverer]
            del coverer.dependents[node]

    def check(self) -> None:
        """Assert the invariants above (tests call it after every step)."""
        for node in self.nodes.values():
            relied = 0
            for coverer, bits in node.relies.items():
                assert node in coverer.dependents
                assert not relied & bits
                assert not bits & ~coverer.eligible
                assert self._relation(coverer.filter, node.filter)
                relied |= bits
            assert not relied & node.forwards
            assert relied | node.forwards == node.eligible == self._eligible(node)
            assert bool(node.forwards) == (node.filter in self._frontier)
            for filter in self._frontier.coverers(node.filter):
                assert not self.nodes[filter].forwards & node.forwards
