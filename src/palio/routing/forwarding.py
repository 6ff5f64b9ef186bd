"""`Forwarding`: a table of filters by subscriber, and the filters that each neighbour is sent.

Equal filters are one *node*. In the terms of siena 5.2, for a node `s` and a neighbour `Y`,

    Y is eligible for s     some subscriber of s other than Y exists (Y is not in NST(s)),
                            and Y is one of the neighbours s may go to (`aim`)
    Y in forwards(s)        Y is eligible for s, and for no s' that strictly covers s

The second line is the paper's formula unrolled: if any coverer is eligible for Y, then a greatest
one is forwarded to Y. So a node that is not forwarded *relies*, for each neighbour, on one that
was forwarded at its last update. Only when that coverer ceases to be eligible does the table search
for another. Only forwarded nodes are in the poset; the others cost one pointer a neighbour.

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
    """Limits the neighbours of each filter, for algorithms that do not send all filters to all."""

    def towards(self, filter: Stated) -> Iterable[Peer]:
        """List the neighbours a filter may go to. When they change, call `reconsider`."""

    def forget(self, filter: Stated) -> None:
        """Forget a filter without subscribers, for which `towards` may have been called."""


_REMEMBERED: Final = 1 << 12
"""Peers whose single requests share one dictionary each."""

_NOBODY: Final[dict[Any, Any]] = {}
"""The dependents of most nodes, shared; never changed."""


@lru_cache(_REMEMBERED)
def _alone(peer: Peer) -> dict[Peer, int]:
    """Return the subscribers of a filter that one peer asks for once; shared, never changed.

    Most filters have one subscriber, and a dictionary takes more bytes than the rest of a node.
    """
    return {peer: 1}


class FilterNode:
    """One filter or advertisement of the table. `subscribers` counts the requests of each peer."""

    __slots__ = (
        "dependents",
        "eligible",
        "filter",
        "forwards",
        "relies",
        "reported",
        "subscribers",
    )

    def __init__(self, filter: Stated) -> None:
        self.filter = filter
        self.subscribers: dict[Peer, int] = _NOBODY  # with one peer shared: never changed then
        self.eligible = 0
        self.forwards = 0
        self.reported = 0  # `forwards` as `changes` reported it last
        self.relies: dict[FilterNode, int] = _NOBODY
        self.dependents: dict[FilterNode, None] = _NOBODY

    def __repr__(self) -> str:
        return f"Node({self.filter}, subscribers={sorted(map(str, self.subscribers))})"


def _breadth(growing: tuple[FilterNode, int]) -> int:
    """Rank wide filters first, roughly: those that they cover are then never forwarded."""
    return form_of(growing[0].filter).breadth


class FilterDelta(NamedTuple):
    """The changes for one neighbour: filters to send, and filters to withdraw."""

    added: list[Stated]
    dropped: list[Stated]


class Forwarding:
    """Filters by subscriber, and the frontier of them that each neighbour is sent.

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
        self._all_bits = 0
        self._frontier = Poset(relation)
        self._touched: dict[FilterNode, None] = {}
        self._dirty: dict[FilterNode, None] = {}

    # --- neighbours ---

    @property
    def neighbours(self) -> list[Peer]:
        """The peers that are sent filters, in the order they connected."""
        return list(self._bits)

    def bit(self, neighbour: Peer) -> int:
        """Return the bit of a neighbour, 0 of any other peer."""
        return self._bits.get(neighbour, 0)

    def connect(self, neighbour: Peer) -> None:
        """Add a neighbour, to be sent the filters of others. With an `aim` the caller has to
        `reconsider` the filters that may go to it.
        """
        free = ~self._all_bits & (self._all_bits + 1)  # the lowest bit not in use
        self._bits[neighbour] = free
        self._all_bits |= free
        # `_eligible` has not asked the aim yet about filters of a lone neighbour.
        if self._aim is None or len(self._bits) <= 2:
            self._touched.update(dict.fromkeys(self.nodes.values()))

    def disconnect(self, neighbour: Peer) -> None:
        """Remove a neighbour. The caller has to `remove` its own requests."""
        bit = self._bits.pop(neighbour, 0)
        if not bit:
            return
        self._all_bits &= ~bit
        for node in self.nodes.values():  # at once: the bit may be another's before `changes`
            self._release(node, bit)
            node.eligible &= ~bit
            node.reported &= ~bit
        for node in self._dirty:
            node.reported &= ~bit

    # --- requests ---

    def add(self, peer: Peer, filter: Stated) -> None:
        """Count one more request of a peer for a filter."""
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

    def reconsider(self, filters: Iterable[Stated]) -> None:
        """Recompute, at the next `changes`, where filters go whose `aim` may have changed."""
        for filter in filters:
            self._touched[self.nodes[filter]] = None

    def forwards(self, filter: Stated) -> list[Peer]:
        """List the neighbours that a filter is forwarded to (siena's forwards(s))."""
        return self._peers(self.nodes[filter].forwards)

    def sent(self, neighbour: Peer) -> list[Stated]:
        """List the filters that a neighbour has been sent."""
        bit = self._bits[neighbour]
        return [node.filter for node in self.nodes.values() if node.reported & bit]

    def _peers(self, mask: int) -> list[Peer]:
        return [peer for peer, bit in self._bits.items() if mask & bit]

    # --- changes ---

    def changes(self) -> dict[Peer, FilterDelta]:
        """Take the changes for each neighbour since the last call, in the order they connected."""
        if self._touched:
            self._update()
        if not self._dirty:
            return {}
        changed = 0
        differences: list[tuple[FilterNode, int]] = []
        for node in self._dirty:
            difference = node.forwards ^ node.reported
            if difference:
                differences.append((node, difference))
                node.reported = node.forwards
                changed |= difference
        self._dirty.clear()
        deltas: dict[Peer, FilterDelta] = {}
        for peer, bit in self._bits.items():
            if changed & bit:
                delta = deltas[peer] = FilterDelta([], [])
                for node, difference in differences:
                    if difference & bit:
                        filters = delta.added if node.forwards & bit else delta.dropped
                        filters.append(node.filter)
        return deltas

    def _update(self) -> None:
        """Bring every touched node up to date.

        First nodes shrink, so that none comes to rely on a coverer that is about to lose bits. Then
        nodes grow, wide filters first. Last come orphans, which relied on a node that shrank: by
        then most of them have a coverer again.
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
        everyone = self._all_bits
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
        """Forward a filter to newly eligible neighbours, unless they have a coverer of it."""
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
        """Undo forwards and reliance for bits that are no longer eligible; return the orphans."""
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
        remaining = node.relies[coverer] & ~bits
        if remaining:
            node.relies[coverer] = remaining
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
