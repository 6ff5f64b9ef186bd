"""Subscription forwarding up a hierarchy (siena 5.1): a master for each broker but the root.

The master is told the roots of the poset and receives every event; to the brokers below it a server
is what it is to clients. Advertisements are dropped.
"""

from __future__ import annotations

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.protocol import Peer, Role

__all__ = ["Hierarchical"]


class Hierarchical(ForwardingRouter):
    """One server of a hierarchy. Its master is the peer with role `MASTER`, if one is attached."""

    def tells(self, peer: Peer) -> bool:
        """Only the master is told anything."""
        return peer.role is Role.MASTER

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """To matching subscribers, and always to the master unless it comes from there."""
        found = super().route(sender, parcel)
        for master in self.subscriptions.table.neighbours:
            if master != sender:
                found[master] = np.ones(len(parcel), np.bool_)
        return found
