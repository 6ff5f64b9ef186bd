"""`ForwardingRouter`: the common part of all algorithms that forward subscriptions.

A subclass chooses the peers that it informs (`informs`), and may extend `route`. This class reads
batches, runs waves, informs neighbours and selects destinations.
"""

from __future__ import annotations

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.forwarding import Aim
from palio.routing.messages import Batch, Control, Request, Settled
from palio.routing.peer_requests import Ledger, Step
from palio.routing.protocol import (
    MOST_MATCHES,
    IllegalMessage,
    Peer,
    PlainRouter,
    SelectorFactory,
    Send,
)
from palio.routing.reference_selector import ReferenceSelector
from palio.routing.waves import Waves


class ForwardingRouter(PlainRouter):
    """A broker that keeps subscriptions in a table and sends some peers the frontier of it.

    Without `parametric` it is plain siena: it accepts and sends no `Update`.
    """

    def __init__(
        self, name: str, selector: SelectorFactory = ReferenceSelector, *, parametric: bool = True
    ) -> None:
        self.name = name
        self.selector = selector()
        self.subscriptions = Ledger(self.selector, aim=self._aim(), parametric=parametric)
        self._ledgers = [self.subscriptions]
        self._waves = Waves()
        self._has_begun: dict[Peer, bool] = {}  # whether a peer sent its fresh batch

    def _aim(self) -> Aim | None:
        """Limit the neighbours that a subscription may go to; None for all."""
        return None

    def informs(self, peer: Peer) -> bool:
        """Return whether a peer is sent the requests of the others."""
        return not peer.is_client

    @property
    def peers(self) -> list[Peer]:
        """All attached peers, in the order they came."""
        return list(self._has_begun)

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent the frontier of all requests, marked
        `fresh`.
        """
        if peer in self._has_begun:
            raise ValueError(f"{peer} is attached already; detach it first")
        self._has_begun[peer] = False
        informs = self.informs(peer)
        for ledger in self._ledgers:
            ledger.add_peer(peer)
            if informs:
                ledger.add_neighbour(peer)
        if not peer.is_client:
            self._waves.connect(peer)
        return self._flush(fresh=peer) if informs else []

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer not in self._has_begun:
            raise ValueError(f"{peer} is not attached")
        del self._has_begun[peer]
        for ledger in self._ledgers:
            ledger.remove_peer(peer)
        answers = self._waves.disconnect(peer)
        return self._flush() + answers

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if sender not in self._has_begun:
            raise IllegalMessage(sender, "it is not attached")
        if not isinstance(message, Batch):
            if isinstance(message, Settled):
                return self._waves.settle(sender, message)
            raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")
        is_bare = not message.requests  # a wave by itself
        if not (self._has_begun[sender] or message.fresh or sender.is_client or is_bare):
            raise IllegalMessage(sender, "a broker's first batch must be fresh")
        plans = self._plan(sender, message)
        self._has_begun[sender] |= message.fresh or sender.is_client
        for ledger, steps in plans:
            if message.fresh:
                ledger.forget(sender)
            ledger.apply(sender, steps)
        self._applied(sender)
        return self._flush(sender, message.wave)

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to.

        A single event is matched for each subscription of a session, and not only for the session:
        the client then need not match it for its subscriptions.
        """
        routes: dict[Peer, RowMask]
        event = None if parcel.values is None else parcel.event
        if event is not None:
            matches = self.selector.match_event(event)
            routes = self.subscriptions.routes(matches, is_named=len(matches) <= MOST_MATCHES)
        else:
            routes = {
                self.subscriptions.peer_of(destination): mask
                for destination, mask in self.selector.route(parcel).items()
            }
        routes.pop(sender, None)
        return routes

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self._waves.note_sent_to_all()

    def note_sent(self, neighbour: Peer) -> None:
        """Count a message to a neighbour by the layer above this router, for waves."""
        self._waves.note_sent(neighbour)

    # --- consequences of a batch ---

    def _plan(self, sender: Peer, batch: Batch) -> list[tuple[Ledger, list[Step]]]:
        requests, fresh = batch.requests, batch.fresh
        return [
            (ledger, ledger.plan(sender, ledger.relevant(requests), fresh=fresh))
            for ledger in self._ledgers
        ]

    def _applied(self, sender: Peer) -> None:
        """Update derived state after a batch, before its consequences are sent."""

    def _outgoing(self) -> dict[Peer, list[Request]]:
        return self.subscriptions.outgoing()

    def _flush(
        self, requester: Peer | None = None, wave: int | None = None, fresh: Peer | None = None
    ) -> list[Send]:
        """Make a batch for each neighbour with changes to receive or a wave to answer."""
        outgoing = self._outgoing()
        if fresh is not None:
            outgoing.setdefault(fresh, [])
        for neighbour in outgoing:
            self._waves.note_sent(neighbour)
        if wave is None and fresh is None and len(outgoing) <= 1:
            return [Send(peer, Batch(tuple(requests))) for peer, requests in outgoing.items()]
        waves: dict[Peer, int] = {}
        answers: list[Send] = []
        if requester is not None and wave is not None:
            waves, answers = self._waves.begin(requester, wave, self._waves.neighbours)
        sends = [
            Send(
                neighbour,
                Batch(tuple(outgoing.get(neighbour, ())), neighbour == fresh, waves.get(neighbour)),
            )
            for neighbour in self._waves.neighbours
            if neighbour in outgoing or neighbour in waves
        ]
        return sends + answers
