"""Settings of a node, with the limits of this package as defaults."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from palio.node.limits import (
    CAST_BYTES,
    CLIENT_GRACE_S,
    LEASE_S,
    MAX_SESSIONS,
    MAX_SUBSCRIPTIONS,
    MEMORY_BYTES,
    PEER_GRACE_S,
    PEER_HEARTBEAT_S,
    QUEUE_BYTES,
)
from palio.protocol.limits import GREETING_S, HEARTBEAT_S, WINDOW_BYTES
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio.routing.protocol import Peer


class Outside(msgspec.Struct, frozen=True):
    """The network on the other side of a gateway."""

    routing: str
    """Its routing algorithm."""
    brokers: frozenset[str] = frozenset()
    """The brokers there that are peers of this one."""
    parent: str = ""
    """If that network is a hierarchy, the broker there that is above this one."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of one node; `palio.node.limits` has the meaning and the reason of each limit."""

    routing: str = ""
    """The routing algorithm; links to brokers with another one are rejected. Empty for a custom
    router, which has no name."""

    parent: str = ""
    """In a hierarchy, the name of the broker above."""

    outside: Outside | None = None
    """The other network of a gateway."""

    link_costs: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By neighbour, the configured cost of its link; for other links the round trip is measured."""

    discovery: bool = False
    """True if a broker that has lost a neighbour and all beyond it discovers and dials others."""

    peers: tuple[str, ...] = ()
    """The URLs to dial."""

    has_disk: bool = True
    """True if facts and journal survive a restart."""

    heartbeat_s: float = HEARTBEAT_S
    peer_heartbeat_s: float = PEER_HEARTBEAT_S
    handshake_timeout_s: float = GREETING_S
    client_grace_s: float = CLIENT_GRACE_S
    peer_grace_s: float = PEER_GRACE_S
    lease_s: float = LEASE_S
    latest_by: tuple[str, ...] = ()
    """Attributes of whose values the last event is kept, for clients that come late."""
    history_s: float = 0.0
    """How long durable events are kept for subscriptions that begin in the past; 0 for none."""
    window_bytes: int = WINDOW_BYTES
    queue_bytes: int = QUEUE_BYTES
    memory_bytes: int = MEMORY_BYTES
    max_sessions: int = MAX_SESSIONS
    max_subscriptions: int = MAX_SUBSCRIPTIONS
    multicast: bool = False
    """True if the node has a `MulticastPort`."""

    replan: bool = False
    """True if the node reports what it sends, and changes a plan that it has stated by reports."""

    cast_bytes: int = CAST_BYTES

    def peer(self, name: str) -> Peer:
        """Return the kind of peer that a broker is to this one.

        >>> str(Settings(parent="top").peer("top")), str(Settings().peer("b2"))
        ('master top', 'broker b2')
        """
        return Peer.master(name) if name in self.parents else Peer.broker(name)

    @property
    def parents(self) -> tuple[str, ...]:
        """The brokers above this one, in either network of a gateway."""
        above = (self.parent, "" if self.outside is None else self.outside.parent)
        return tuple(filter(None, above))

    def is_outside(self, name: str) -> bool:
        """Return whether this is a gateway, and a broker is in its outside network."""
        return self.outside is not None and name in self.outside.brokers

    def routing_with(self, name: str) -> str:
        """Return the algorithm on the link to a broker."""
        if self.outside is not None and self.is_outside(name):
            return self.outside.routing
        return self.routing

    def graph_with(self, name: str) -> GraphKind:
        """Return the kind of graph that the algorithm on the link to a broker is for.

        >>> Settings(routing="acyclic").graph_with("b2"), Settings().graph_with("b2")
        (<GraphKind.TREE: 'a tree'>, <GraphKind.GRAPH: 'any graph'>)
        """
        algorithm = ALGORITHMS.get(self.routing_with(name))
        return GraphKind.GRAPH if algorithm is None else algorithm.graph
