"""Subscription forwarding on a tree: between peers, up a hierarchy, and by one server for all.

`Acyclic` (siena 5.2) forwards a subscription to every neighbour but its sender, unless it sent a
coverer there before. Events go back along the paths of the subscriptions they match. The topology
must be acyclic; `general` makes such a tree of any graph.

`Hierarchical` (siena 5.1): each broker but the root has a master, which is sent the roots of the
poset and receives every event. To a server, the servers below are clients. Advertisements are
dropped.

`Centralized` (siena 4): the baseline for all other architectures.
"""

from __future__ import annotations

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.protocol import Peer, Role, Send


class Acyclic(ForwardingRouter):
    """One broker of an acyclic peer-to-peer network.

    >>> import palio
    >>> from palio.routing.messages import Batch, Subscribe
    >>> from palio.routing.protocol import Peer
    >>> broker = Acyclic("b1")
    >>> alice, b2 = Peer.client("alice"), Peer.broker("b2")
    >>> _ = broker.attach(alice), broker.attach(b2)
    >>> batch = Batch(
    ...     (Subscribe(0, palio.parse("price > 1")), Subscribe(1, palio.parse("price > 5")))
    ... )
    >>> broker.receive(alice, batch)[0].message.requests
    (Subscribe(key=0, filter=palio.parse('price > 1'), values=mappingproxy({})),)
    """


class Hierarchical(ForwardingRouter):
    """One server of a hierarchy. Its master is the peer with role `MASTER`, if one is attached."""

    def informs(self, peer: Peer) -> bool:
        """Return whether a peer is the master, the only one that is sent requests."""
        return peer.role is Role.MASTER

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select matching subscribers, and always the master unless it is the sender."""
        routes = super().route(sender, parcel)
        # The master sends no subscriptions down, so only it knows who else wants an event.
        for master in self.subscriptions.table.neighbours:
            if master != sender:
                routes[master] = np.ones(len(parcel), np.bool_)
        return routes


class Centralized(ForwardingRouter):
    """A server without neighbours, to which all clients connect."""

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. Only clients may attach."""
        if not peer.is_client:
            raise ValueError(f"a centralized server has no neighbours; {peer} may not attach")
        return super().attach(peer)
