"""One server for everybody (siena 4): the baseline for all other architectures."""

from __future__ import annotations

from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.protocol import Peer, Send

__all__ = ["Centralized"]


class Centralized(ForwardingRouter):
    """A server without neighbours: clients connect to it from wherever they are."""

    def attach(self, peer: Peer) -> list[Send]:
        """See `Router`; only clients may attach."""
        if not peer.is_client:
            raise ValueError(f"a centralized server has no neighbours; {peer} may not attach")
        return super().attach(peer)
