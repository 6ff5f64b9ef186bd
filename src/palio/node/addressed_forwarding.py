"""`AddressedForwarding`: forwarding of events that are addressed to brokers.

Brokers on the path do not match them. A peer gets one message for all addressees beyond it.
"""

from __future__ import annotations

from msgspec.structs import replace

from palio.model.parcels import Parcel
from palio.node.authority import receivable
from palio.node.core import Core
from palio.node.limits import MAX_HOPS
from palio.node.sessions import Neighbour
from palio.protocol.messages import Addressed, FlowAcks, FlowStatus, Forward
from palio.routing.protocol import Addressing


class AddressedForwarding:
    """The paths from one broker. Events without a path are dropped, and flows repair the loss."""

    def __init__(self, core: Core, router: Addressing | None) -> None:
        self._core = core
        self._router = router

    def pass_on(
        self, source: str, parcel: Parcel, addressed: Addressed, before: str, *, durable: bool
    ) -> bool:
        """Forward events to each next hop, with the addressees beyond it.

        Return whether any peer got some: the tree of the source may end here. `before` is the
        previous hop.
        """
        if addressed.hops > MAX_HOPS:
            return False
        by_hop: dict[str, list[tuple[str, int]]] = {}
        for addressee in addressed.to:
            hop = self._hop(source, addressee[0], before)
            if hop is not None:
                by_hop.setdefault(hop, []).append(addressee)
        is_sent = False
        for hop, to in by_hop.items():
            passed = Addressed(tuple(to), addressed.incarnation, addressed.hops)
            neighbour = self._core.neighbours.get(hop)
            is_sent |= self._offer(neighbour, source, parcel, passed, durable=durable)
        return is_sent

    def _offer(
        self,
        neighbour: Neighbour | None,
        source: str,
        parcel: Parcel,
        addressed: Addressed,
        *,
        durable: bool,
    ) -> bool:
        """Send a neighbour the events that it may receive, if any."""
        if neighbour is None:
            return False
        if not neighbour.principal.may_receive_all:
            mask = receivable(neighbour.principal, parcel)
            if not mask.all():
                # A flow's number identifies the whole parcel, so a selection must not bear it.
                to = tuple(addressee for addressee in addressed.to if not addressee[1])
                if not to or not mask.any():
                    return False
                addressed = Addressed(to, addressed.incarnation, addressed.hops)
                parcel = parcel.select(mask)
        message = Forward(parcel, None, durable, source, addressed=addressed)
        neighbour.offer(self._core.out, message, self._core.settings.queue_bytes)
        return True

    def _hop(self, source: str, broker: str, before: str) -> str | None:
        """Return the next hop to a broker; None if it is the previous one."""
        hop = None if self._router is None else self._router.hop(source, broker)
        return None if hop == before else hop

    def relay(self, source: str, to: str, message: FlowStatus | FlowAcks, before: str) -> None:
        """Send a message about a flow to the next hop to a broker."""
        hop = self._hop(source, to, before)
        neighbour = None if hop is None else self._core.neighbours.get(hop)
        if neighbour is None or message.hops >= MAX_HOPS:
            return
        if before:
            message = replace(message, hops=message.hops + 1)
        if isinstance(message, FlowStatus):
            neighbour.send_behind(self._core.out, message)
        else:
            neighbour.send(self._core.out, message)
