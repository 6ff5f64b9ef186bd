"""`Advertised`: advertisement forwarding between peers on a tree (siena 5.3).

Advertisements are forwarded to all brokers by the algorithm of `acyclic`, in a poset of their own
(P_a). A subscription is forwarded only to neighbours that sent an advertisement overlapping it. An
event that its publisher has not advertised is not delivered.
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
        # The last parcel whose events were all advertised. Nodes call `announced` and then `route`
        # with it, and matching advertisements costs as much as matching subscriptions.
        self._last_fully_advertised: tuple[Announcements, Parcel] | None = None
        self._new_selector = selector
        super().__init__(name, selector)
        self._ledgers.append(self.advertisements)

    def _aim(self) -> Aim | None:
        return self._overlaps

    def _applied(self, sender: Peer) -> None:
        """Reconsider where subscriptions go, as a neighbour's advertisements have changed."""
        if sender.is_client:
            self._announcing.pop(sender, None)
            return
        entries = self.advertisements.entries[sender].values()
        changed = self._overlaps.set_offers(sender, [entry.bound for entry in entries])
        self.subscriptions.table.reconsider(changed)

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that has disconnected."""
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
        """Select the destinations of events; a client's unadvertised events have none."""
        routes = super().route(sender, parcel)
        announced = self.announced(sender, parcel) if routes else None
        self._last_fully_advertised = None  # a routed parcel does not return: free its memory
        return routes if announced is None else narrowed(routes, announced)

    def sources(self, filter: Filter) -> bool:
        """Return whether a client of any broker advertises events that a filter may match."""
        return self.advertisements.offers(filter)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that their publisher has advertised; None: all of them."""
        if not sender.is_client:
            return None
        announcements = self._announcing.get(sender)
        if announcements is None:
            offers = [entry.bound for entry in self.advertisements.entries[sender].values()]
            announcements = self._announcing[sender] = Announcements(offers, self._new_selector)
        if self._last_fully_advertised is not None:
            last_announcements, last_parcel = self._last_fully_advertised
            if last_announcements is announcements and last_parcel is parcel:
                return None
        announced = announcements.announced_in(parcel)
        if not announced.all():
            return announced
        self._last_fully_advertised = announcements, parcel
        return None
