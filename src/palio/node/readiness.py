"""`Readiness`: the reasons why clients should use another broker, for load balancers.

A broker that runs may still be the wrong one for a client: it drains, has lost its disk and not yet
fetched the lost state from its peers, cannot write, or is cut off from its network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

DIALED: Final = ("configured", "added", "found")
"""Kinds of peers (`Membership.peers`) that this broker dials. One of them must be connected. A
fallback link ("found") can replace a configured one; a peer that dials this broker cannot."""


class Impediment(NamedTuple):
    """A problem of a broker: a code for programs, a message with the remedy, and its peers."""

    code: str
    message: str
    peers: tuple[str, ...] = ()

    def shown(self, *, with_peers: bool) -> dict[str, Any]:
        """Return the problem for JSON. Unauthorized callers get it without names and addresses."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        return shown | {"peers": self.peers} if self.peers and with_peers else shown


class Readiness(NamedTuple):
    """Problems of a broker: each of `reasons` makes it not ready; `warnings` do not."""

    reasons: tuple[Impediment, ...] = ()
    warnings: tuple[Impediment, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if clients can use this broker."""
        return not self.reasons


DRAINING: Final = Impediment("draining", "the broker drains or stops; use another one")

CATCHING_UP: Final = Impediment(
    "catching_up", "the broker fetches the state that its new disk lacks from its peers; wait"
)

UNWRITABLE: Final = Impediment(
    "storage_unwritable", "the disk refuses writes; make room or replace it (durable data only)"
)


def check_peers(peers: Iterable[Mapping[str, Any]]) -> Readiness:
    """Return a reason if every dialled peer is disconnected, a warning if only some are.

    A fallback link that is down counts for neither: it is dialled only while it is needed.

    >>> here = {"peer": "b1", "url": "palio://b1:7400", "kind": "configured", "up": True}
    >>> away = {"peer": "", "url": "palio://b2:7400", "kind": "configured", "up": False}
    >>> check_peers([here, away]).is_ready, check_peers([away]).is_ready
    (True, False)
    >>> check_peers([away]).reasons[0].peers
    ('palio://b2:7400',)
    """
    dialed = [peer for peer in peers if peer["kind"] in DIALED]
    down = [peer for peer in dialed if peer["kind"] != "found" and not peer["up"]]
    if not down:
        return Readiness()
    names = tuple(peer["peer"] or peer["url"] for peer in down)
    if any(peer["up"] for peer in dialed):
        message = "some peers are disconnected; start them or mend the network"
        return Readiness(warnings=(Impediment("peers_disconnected", message, names),))
    message = "all peers that this broker dials are disconnected; start them or mend the network"
    return Readiness((Impediment("peers_disconnected", message, names),))
