"""`Advertised`: advertisement forwarding between peers on a tree (siena 5.3).

Advertisements run the algorithm of `acyclic` over P_a. A subscription goes only towards neighbours
with an advertisement that overlaps it, and an event counts only if its publisher advertised it.
"""

from __future__ import annotations

from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.announcements import Announcements
from palio.routing.forwarding import Aim
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.messages import Request
from palio.routing.overlap_index import OverlapIndex
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import Peer, SelectorFactory, Send, narrowed
from palio.routing.reference_selector import ReferenceSelector


class Advertised(ForwardingRouter):
    """One broker of an acyclic network with advertisement-based semantics (siena 3.3)."""

    is_advertised = True
    takes_advertisements = True

    def __init__(self, name: str, selector: SelectorFactory = ReferenceSelector) -> None:
        self.advertisements = Ledger(advertising=True)
        self._overlaps = OverlapIndex()
        self._announcing: dict[Peer, Announcements] = {}
        # The last parcel of which all events count: nodes call `announced` and then `route`, and
        # matching advertisements costs as much as matching subscriptions.
        self._whole: tuple[Announcements, Parcel] | None = None
        self._new_selector = selector
        super().__init__(name, selector)
        self._ledgers.append(self.advertisements)

    def _aim(self) -> Aim | None:
        return self._overlaps

    def _applied(self, sender: Peer) -> None:
        """Reconsider subscriptions that overlap an advertisement a neighbour began or ended."""
        if sender.is_client:
            self._announcing.pop(sender, None)
            return
        entries = self.advertisements.entries[sender].values()
        changed = self._overlaps.set_offers(sender, [entry.bound for entry in entries])
        self.subscriptions.table.reconsider(changed)

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        self._overlaps.drop(peer)
        self._announcing.pop(peer, None)
        return super().detach(peer)

    def _outgoing(self) -> dict[Peer, list[Request]]:
        # Advertisements first: they decide where the neighbour may send subscriptions back.
        outgoing = self.advertisements.outgoing()
        for peer, requests in self.subscriptions.outgoing().items():
            outgoing.setdefault(peer, []).extend(requests)
        return outgoing

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to; only advertised events of a client count."""
        routes = super().route(sender, parcel)
        announced = self.announced(sender, parcel) if routes else None
        self._whole = None
        return routes if announced is None else narrowed(routes, announced)

    def sources(self, filter: Filter) -> bool:
        """Return whether an advertisement of any broker overlaps a filter."""
        return self.advertisements.offers(filter)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as advertised."""
        if not sender.is_client:
            return None
        announcements = self._announcing.get(sender)
        if announcements is None:
            offers = [entry.bound for entry in self.advertisements.entries[sender].values()]
            announcements = self._announcing[sender] = Announcements(offers, self._new_selector)
        if self._whole is not None:
            last, whole = self._whole
            if last is announcements and whole is parcel:
                return None
        announced = announcements.among(parcel)
        if not announced.all():
            return announced
        self._whole = announcements, parcel
        return None
