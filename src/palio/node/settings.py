"""What a user may set about a node, with the limits of the house as defaults."""

from __future__ import annotations

import msgspec

from palio.node.limits import (
    CLIENT_GRACE_S,
    LEASE_S,
    MAX_SESSIONS,
    MAX_SUBSCRIPTIONS,
    MEMORY_BYTES,
    PEER_GRACE_S,
    QUEUE_BYTES,
)
from palio.protocol.limits import GREETING_S, HEARTBEAT_S, WINDOW_BYTES

__all__ = ["Settings"]


class Settings(msgspec.Struct, frozen=True):
    """See `palio.node.limits` for what each limit means and why it is what it is."""

    master: str = ""
    """In a hierarchy, the name of the broker above."""

    heartbeat_s: float = HEARTBEAT_S
    greeting_s: float = GREETING_S
    client_grace_s: float = CLIENT_GRACE_S
    peer_grace_s: float = PEER_GRACE_S
    lease_s: float = LEASE_S
    window_bytes: int = WINDOW_BYTES
    queue_bytes: int = QUEUE_BYTES
    memory_bytes: int = MEMORY_BYTES
    max_sessions: int = MAX_SESSIONS
    max_subscriptions: int = MAX_SUBSCRIPTIONS
