"""One line of a proxy's event routing table: `(E, IPL, OPL)` and what follows from it (proxy IV-C).

The paper tells the rules as reactions to messages. Here they are stated as what every neighbour
must have been told, given the table; the router compares that with what it has told and says the
difference. The paper's cases come out of it (docs/concepts/routing-proxies.md goes through them one
by one), and so does what the paper leaves out: narrowing, crossing messages, peers that come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.filters import FALSE, Filter
from palio.model.parcels import Parcel
from palio.model.values import NO_VALUES
from palio.routing.protocol import Peer, SelectorFactory
from palio.routing.proxies.merging import Demand, adjusted, combined, includes, unlimited, widened

__all__ = ["Outgoing", "TypeEntry"]


class Outgoing:
    """One member of an OPL."""

    __slots__ = ("deadline", "demand", "number", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.demand: Demand = {}
        self.number = 0
        """Of the subscription, for `Drop` to repeat."""
        self.deadline: float | None = None
        """When a receiver's PRE bit ends."""


class TypeEntry:
    """`(E, IPL, OPL)`, and what the neighbours have been told about E."""

    def __init__(self, selector: SelectorFactory) -> None:
        self.peers: dict[Peer, None] = {}
        """The peers that ever sent a message about E."""
        self.incoming: dict[Peer, int] = {}
        """IPL: who leads to a source, with the number of its registration."""
        self.outgoing: dict[Peer, Outgoing] = {}
        """OPL: who leads to a receiver."""
        self.presumed = False
        """Whether the parent is in the IPL by default: a subscription went there unasked."""
        self.registered: dict[Peer, int] = {}
        """Neighbours that were told of a source in this direction, under which number."""
        self.subscribed: dict[Peer, Demand] = {}
        """Neighbours that were told what is wanted in this direction, and what."""
        self.subscription = 0
        """The number of the subscription that the parent has."""
        self._selector = selector()
        self._at: dict[int, Peer] = {}
        self._free_place = 0
        self._counting: dict[Peer, None] = {}
        self._grown: dict[Peer, None] = {}
        self._lost: dict[Filter, None] = {}
        self._told_ordinary = False

    # --- what neighbours must have been told ---

    def has_source(self, parent: Peer | None) -> bool:
        """Whether a source is known here or below."""
        return len(self.incoming) > (parent in self.incoming)

    def leads(self, neighbour: Peer, parent: Peer | None) -> bool:
        """Whether a neighbour must know that there are sources in this direction (IV-C.1).

        The parent must know of every type in its subtree; a child only if it has a source itself.
        """
        others = len(self.incoming) - (neighbour in self.incoming)
        return others > 0 and (neighbour == parent or neighbour in self.incoming)

    def presume(self, parent: Peer | None) -> None:
        """Decide whether subscriptions go to the parent by default (IV-C.2).

        They do if no source is known. They stay there when a source appears below, for unless the
        parent answers nobody can say whether there are others above.
        """
        wanted = any(peer != parent for peer in self.outgoing)
        known = parent in self.incoming
        self.presumed = wanted and not known and (self.presumed or not self.has_source(parent))

    def wanted_of(self, neighbour: Peer, parent: Peer | None) -> Demand:
        """The wishes of all others, which a neighbour must know.

        A PRE wish goes up to the root in any case: only there do all sporadic sources pass.
        """
        is_parent = neighbour == parent
        ordinary = not is_parent or self.presumed or parent in self.incoming
        told = self.subscribed.get(neighbour, {})
        otherwise = is_parent and ordinary != self._told_ordinary
        if is_parent:
            self._told_ordinary = ordinary

        def demands(peers: Iterable[Peer]) -> list[Demand]:
            return [
                {(pre and is_parent, wish): count}
                for peer in peers
                if peer != neighbour
                for (pre, wish), count in self.outgoing[peer].demand.items()
                if pre or ordinary
            ]

        if not told or otherwise:
            return combined(demands(self.outgoing))
        if not self._lost:
            return adjusted(told, demands(self._grown))
        lost, everything = tuple(self._lost), demands(self.outgoing)
        return adjusted(told, demands(self._grown), lost, everything)

    def settled(self) -> None:
        """Every neighbour has been told."""
        self._grown.clear()
        self._lost.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost with this entry."""
        return not (self.incoming or self.outgoing or self.registered or self.subscribed)

    # --- changes ---

    def want(self, peer: Peer, demand: Demand, number: int) -> Outgoing:
        """Put a peer into the OPL, or change what it wants."""
        member = self.outgoing.get(peer)
        if member is None:
            member = self.outgoing[peer] = Outgoing(self._free_place)
            self._at[self._free_place] = peer
            self._free_place += 1
        member.number = number
        member.deadline = None
        self._change(peer, member, demand)
        return member

    def unwant(self, peer: Peer) -> bool:
        """Take a peer out of the OPL; whether it was there."""
        member = self.outgoing.get(peer)
        if member is None:
            return False
        self._change(peer, member, {})
        del self._at[member.place], self.outgoing[peer]
        self._grown.pop(peer, None)
        return True

    def lapse(self, peer: Peer) -> None:
        """A receiver's PRE bit has ended."""
        member = self.outgoing[peer]
        member.deadline = None
        demand: Demand = {(False, wish): count for (_, wish), count in member.demand.items()}
        self._change(peer, member, demand)

    def drop_ordinary(self) -> dict[Peer, int]:
        """Drop the wishes that are not PRE; return the peers that lost some, with their numbers.

        A peer whose ordinary wishes are all covered by PRE ones keeps them. Else it loses all of
        them, as it knows which of its wishes are PRE but not which are covered here.
        """
        wishes = (unlimited(member.demand).get(True) for member in self.outgoing.values())
        standing = widened(FALSE, tuple(wish for wish in wishes if wish is not None))
        dropped: dict[Peer, int] = {}
        for peer, member in list(self.outgoing.items()):
            if not all(pre or includes(standing, wish) for pre, wish in member.demand):
                dropped[peer] = member.number
                left = {key: count for key, count in member.demand.items() if key[0]}
                self._replace(peer, member, left)
        return dropped

    def forget(self, peer: Peer) -> bool:
        """Forget all about a peer; whether it was here at all."""
        self.peers.pop(peer, None)
        known = self.incoming.pop(peer, None) is not None
        known |= self.unwant(peer)
        known |= self.registered.pop(peer, None) is not None
        known |= self.subscribed.pop(peer, None) is not None
        return known

    def _replace(self, peer: Peer, member: Outgoing, demand: Demand) -> None:
        if demand:
            self._change(peer, member, demand)
        else:
            self.unwant(peer)

    def _change(self, peer: Peer, member: Outgoing, demand: Demand) -> None:
        """Change a demand, and the selector with it, which holds the unlimited wishes."""
        before = unlimited(member.demand)
        after = unlimited(demand)
        for pre, wish in before.items():
            if after.get(pre) != wish:
                self._selector.remove(2 * member.place + pre)
        for pre, wish in after.items():
            if before.get(pre) != wish:
                key = 2 * member.place + pre
                self._selector.add(key, wish, NO_VALUES, destination=member.place)
        if len(after) < len(demand):
            self._counting[peer] = None
        else:
            self._counting.pop(peer, None)
        for pre, wish in member.demand:
            left = set(after.get(pre, FALSE).conjunctions)
            gone = tuple(each for each in wish.conjunctions if each not in left)
            if gone:
                self._lost[Filter(gone)] = None
        member.demand = demand
        self._grown[peer] = None

    # --- events ---

    def forward(self, sender: Peer, parcel: Parcel) -> tuple[dict[Peer, RowMask], bool]:
        """The rows that each peer gets (IV-C.3), and whether a count ran out (IV-E)."""
        self._mirror(sender, parcel)
        found = {self._at[place]: mask for place, mask in self._selector.route(parcel).items()}
        found.pop(sender, None)
        ran_out = False
        for peer in list(self._counting):
            if peer != sender:
                ran_out |= self._count(peer, parcel, found)
        return found, ran_out

    def _count(self, peer: Peer, parcel: Parcel, found: dict[Peer, RowMask]) -> bool:
        """Forward for a peer's wishes with a count, and count down each that an event matches."""
        member = self.outgoing[peer]
        left: Demand = {}
        for key, count in member.demand.items():
            chosen = [] if count is None else _first(count, key[1], parcel)
            if chosen:
                mask = np.zeros(len(parcel), np.bool_)
                mask[chosen] = True
                found[peer] = found[peer] | mask if peer in found else mask
            if count is None or len(chosen) < count:
                left[key] = count if count is None else count - len(chosen)
        if len(left) == len(member.demand):
            member.demand = left
            return False
        self._replace(peer, member, left)
        return True

    def _mirror(self, sender: Peer, parcel: Parcel) -> None:
        """Count down what a neighbour forwarded: it has counted too and need not be told."""
        told = self.subscribed.get(sender, {})
        for key, count in told.items():
            if count:
                told[key] = count - len(_first(count, key[1], parcel))


def _first(count: int, wish: Filter, parcel: Parcel) -> list[int]:
    """The rows of the first `count` events that match."""
    matching = (row for row, event in enumerate(parcel.rows) if wish.matches(event))
    return list(islice(matching, count))
