"""Advertisement forwarding between peers on a tree (siena 5.3).

Advertisements run the algorithm of `acyclic` over P_a. A subscription goes only towards neighbours
with an advertisement that overlaps it, and an event counts only if its publisher advertised it.
"""

from __future__ import annotations

from palio.matching.protocol import RowMask
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.announcements import Announcements
from palio.routing.forwarding import Aim
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.messages import Request
from palio.routing.peer_requests import Ledger
from palio.routing.poset import overlap
from palio.routing.protocol import Peer, SelectorFactory, Send, narrowed
from palio.routing.reference_selector import ReferenceSelector

__all__ = ["Advertised"]


class Advertised(ForwardingRouter):
    """One broker of an acyclic network with advertisement-based semantics (siena 3.3)."""

    is_advertised = True

    def __init__(self, name: str, selector: SelectorFactory = ReferenceSelector) -> None:
        self.advertisements = Ledger(advertising=True)
        self._heard: dict[Peer, dict[Advertisement, None]] = {}
        self._announcing: dict[Peer, Announcements] = {}
        self._new_selector = selector
        super().__init__(name, selector)
        self._ledgers.append(self.advertisements)

    def _aim(self) -> Aim | None:
        return self._towards

    def _towards(self, filter: Filter) -> int:
        """Bits of the neighbours with an advertisement that overlaps a subscription."""
        table = self.subscriptions.table
        mask = 0
        for neighbour in table.neighbours:
            if any(overlap(each, filter) for each in self._heard.get(neighbour, ())):
                mask |= table.bit(neighbour)
        return mask

    def _applied(self, sender: Peer) -> None:
        """Subscriptions that overlap what a neighbour began or ceased to advertise look again."""
        if sender.is_client:
            self._announcing.pop(sender, None)
            return
        entries = self.advertisements.entries[sender].values()
        now = dict.fromkeys(each.bound for each in entries)
        before = self._heard.get(sender, {})
        self._heard[sender] = now
        changed = [each for each in (*before, *now) if (each in before) != (each in now)]
        if changed:
            self.subscriptions.table.retouch(
                filter
                for filter in self.subscriptions.table.nodes
                if any(overlap(each, filter) for each in changed)
            )

    def detach(self, peer: Peer) -> list[Send]:
        """See `Router`."""
        self._heard.pop(peer, None)
        self._announcing.pop(peer, None)
        return super().detach(peer)

    def _outgoing(self) -> dict[Peer, list[Request]]:
        outgoing = self.advertisements.outgoing()
        for peer, requests in self.subscriptions.outgoing().items():
            outgoing.setdefault(peer, []).extend(requests)
        return outgoing

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """See `Router`. Of a client's events only those count that it advertised."""
        found = super().route(sender, parcel)
        if not sender.is_client or not found:
            return found
        announcements = self._announcing.get(sender)
        if announcements is None:
            offers = [each.bound for each in self.advertisements.entries[sender].values()]
            announcements = self._announcing[sender] = Announcements(offers, self._new_selector)
        return narrowed(found, announcements.among(parcel))
