"""`Readiness`: whether a broker can serve clients in full, and what keeps it from that.

A broker that is alive may still be the wrong one for a client: it drains, has yet to learn what its
lost disk knew, cannot write, or is cut off from its network. Load balancers ask for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

DIALED: Final = ("configured", "added", "found")
"""Kinds of peers (`Membership.peers`) that connect a broker to its network by its own doing: a
fallback link counts in the stead of a configured one, a peer that dials this broker does not."""


class Impediment(NamedTuple):
    """A code for programs, a message with the remedy, and the peers that it concerns."""

    code: str
    message: str
    peers: tuple[str, ...] = ()

    def shown(self, *, with_peers: bool) -> dict[str, Any]:
        """Return it for JSON; names and addresses of peers are not for everybody."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        return shown | {"peers": self.peers} if self.peers and with_peers else shown


class Readiness(NamedTuple):
    """Reasons why clients should use another broker; and warnings, which alone are none."""

    reasons: tuple[Impediment, ...] = ()
    warnings: tuple[Impediment, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if nothing keeps the broker from serving clients."""
        return not self.reasons


DRAINING: Final = Impediment("draining", "the broker drains or stops; use another one")

CATCHING_UP: Final = Impediment(
    "catching_up", "the broker learns from its peers what its new disk lacks; wait"
)

UNWRITABLE: Final = Impediment(
    "storage_unwritable", "the disk refuses writes; make room or replace it (durable data only)"
)


def disconnected(peers: Iterable[Mapping[str, Any]]) -> Readiness:
    """Judge the peers of a broker: all of those that it dials away is a reason, some a warning.

    >>> here = {"peer": "b1", "url": "palio://b1:7400", "kind": "configured", "up": True}
    >>> away = {"peer": "", "url": "palio://b2:7400", "kind": "configured", "up": False}
    >>> disconnected([here, away]).is_ready, disconnected([away]).is_ready
    (True, False)
    >>> disconnected([away]).reasons[0].peers
    ('palio://b2:7400',)
    """
    dialed = [peer for peer in peers if peer["kind"] in DIALED]
    wanted = [peer for peer in dialed if peer["kind"] != "found" and not peer["up"]]
    if not wanted:
        return Readiness()
    names = tuple(peer["peer"] or peer["url"] for peer in wanted)
    if any(peer["up"] for peer in dialed):
        message = "some peers are disconnected; start them or mend the network"
        return Readiness(warnings=(Impediment("peers_disconnected", message, names),))
    message = "all peers that this broker dials are disconnected; start them or mend the network"
    return Readiness((Impediment("peers_disconnected", message, names),))
