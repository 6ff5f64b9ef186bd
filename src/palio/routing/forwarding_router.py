"""`ForwardingRouter`: what all algorithms that forward subscriptions have in common.

A subclass says which peers it tells (`tells`), and may add where events go besides (`route`). The
rest is here: reading batches, waves, telling neighbours, selecting destinations.
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
    """A broker that keeps subscriptions in a table and tells some peers the frontier of it.

    Without `parametric` it is plain siena: it takes no `Update` and sends none.
    """

    def __init__(
        self, name: str, selector: SelectorFactory = ReferenceSelector, *, parametric: bool = True
    ) -> None:
        self.name = name
        self.selector = selector()
        self.subscriptions = Ledger(self.selector, aim=self._aim(), parametric=parametric)
        self._ledgers = [self.subscriptions]
        self._waves = Waves()
        self._started: dict[Peer, bool] = {}

    def _aim(self) -> Aim | None:
        """Limit the neighbours that a subscription may go to; None for all."""
        return None

    def tells(self, peer: Peer) -> bool:
        """Return whether a peer is sent what the others want."""
        return not peer.is_client

    @property
    def peers(self) -> list[Peer]:
        """All attached peers, in the order they came."""
        return list(self._started)

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent the frontier of what was asked for,
        marked `fresh`.
        """
        if peer in self._started:
            raise ValueError(f"{peer} is attached already; detach it first")
        self._started[peer] = False
        tells = self.tells(peer)
        for ledger in self._ledgers:
            ledger.enrol(peer)
            if tells:
                ledger.tell(peer)
        if not peer.is_client:
            self._waves.connect(peer)
        return self._flush(fresh=peer) if tells else []

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer not in self._started:
            raise ValueError(f"{peer} is not attached")
        del self._started[peer]
        for ledger in self._ledgers:
            ledger.dismiss(peer)
        answers = self._waves.disconnect(peer)
        return self._flush() + answers

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if sender not in self._started:
            raise IllegalMessage(sender, "it is not attached")
        if not isinstance(message, Batch):
            if isinstance(message, Settled):
                return self._waves.echo(sender, message)
            raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")
        is_bare = not message.requests  # a wave by itself
        if not (self._started[sender] or message.fresh or sender.is_client or is_bare):
            raise IllegalMessage(sender, "a broker's first batch must be fresh")
        plans = self._plan(sender, message)
        self._started[sender] |= message.fresh or sender.is_client
        for ledger, steps in plans:
            if message.fresh:
                ledger.forget(sender)
            ledger.apply(sender, steps)
        self._applied(sender)
        return self._flush(sender, message.wave)

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to. An event by itself is matched for sessions'
        subscriptions, and not only for sessions: a client then need not find out again for which
        of them it is.
        """
        found: dict[Peer, RowMask]
        event = None if parcel.values is None else parcel.event
        if event is not None:
            matches = self.selector.match_event(event)
            found = self.subscriptions.routes(matches, is_named=len(matches) <= MOST_MATCHES)
        else:
            found = {
                self.subscriptions.peer_of(destination): mask
                for destination, mask in self.selector.route(parcel).items()
            }
        found.pop(sender, None)
        return found

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self._waves.said_to_all()

    def told(self, neighbour: Peer) -> None:
        """A neighbour was sent something by the layer above this router: waves answer for it."""
        self._waves.said(neighbour)

    # --- what follows from a change ---

    def _plan(self, sender: Peer, batch: Batch) -> list[tuple[Ledger, list[Step]]]:
        requests, fresh = batch.requests, batch.fresh
        return [
            (each, each.plan(sender, each.mine(requests), fresh=fresh)) for each in self._ledgers
        ]

    def _applied(self, sender: Peer) -> None:
        """A batch was applied; what follows from it is sent next."""

    def _outgoing(self) -> dict[Peer, list[Request]]:
        return self.subscriptions.outgoing()

    def _flush(
        self, requester: Peer | None = None, wave: int | None = None, fresh: Peer | None = None
    ) -> list[Send]:
        """A batch for each neighbour with changes to learn of, and with the waves that it is
        due.
        """
        outgoing = self._outgoing()
        if fresh is not None:
            outgoing.setdefault(fresh, [])
        for neighbour in outgoing:
            self._waves.said(neighbour)
        if wave is None and fresh is None and len(outgoing) <= 1:
            return [Send(each, Batch(tuple(requests))) for each, requests in outgoing.items()]
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
