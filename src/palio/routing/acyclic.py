"""Subscription forwarding between peers on a tree (siena 5.2).

A subscription goes to every neighbour but the one it came from, unless one that covers it went
there already; events go back along the paths of the subscriptions they match. The topology must be
acyclic; `general` makes one of any graph.
"""

from __future__ import annotations

from palio.routing.forwarding_router import ForwardingRouter

__all__ = ["Acyclic"]


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
