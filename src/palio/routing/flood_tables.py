"""`FloodTables`: the subscriptions behind floods, for `flooded` and `source_trees`.

Each broker floods its own clients' requests, and keeps the requests that every other broker flooded
under its name, the *origin*. So it can name the brokers that an event is for.
"""

from __future__ import annotations

from typing import Final

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.messages import Batch, Flood, Request
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import IllegalMessage, Peer, SelectorFactory

_FLOOD: Final = Peer.broker("")
"""The one neighbour of the local table: the whole network. Requests to it are flooded."""


class FloodTables:
    """The requests of a broker's own clients, and those that other brokers flooded.

    Subscriptions of clients that others here cover are not flooded, except without `covering`.
    """

    def __init__(self, name: str, selector: SelectorFactory, *, covering: bool = True) -> None:
        self._name = name
        self._local_selector, self._world_selector = selector(), selector()
        self.local = Ledger(self._local_selector, covering=covering)
        self.local.add_peer(_FLOOD)
        self.local.add_neighbour(_FLOOD)
        self.world = Ledger(self._world_selector)

    def apply_batch(self, client: Peer, batch: Batch) -> None:
        """Apply a client's batch; advertisements are ignored."""
        self.local.apply_requests(client, self.local.relevant(batch.requests), fresh=batch.fresh)

    def take_changes(self) -> tuple[Request, ...]:
        """Take the requests to flood for changes among the clients since the last call."""
        return tuple(self.local.outgoing().get(_FLOOD, ()))

    def current(self, origin: str) -> tuple[Request, ...]:
        """List the current requests of an origin, this broker or another, as they were flooded."""
        if origin == self._name:
            return tuple(self.local.standing(_FLOOD))
        return tuple(self.world.standing_of(Peer.broker(origin)))

    def learn(self, sender: Peer, flood: Flood) -> None:
        """Apply another origin's flood. An illegal one raises `IllegalMessage` and changes
        nothing.
        """
        origin = Peer.broker(flood.origin)
        is_known = origin in self.world.entries
        if not all(map(self.world.handles, flood.requests)):
            raise IllegalMessage(sender, "only subscriptions are flooded")
        if not is_known and not flood.fresh:
            raise IllegalMessage(sender, f"origin {flood.origin} was never introduced")
        if not is_known:
            self.world.add_peer(origin)
        try:
            self.world.apply_requests(origin, flood.requests, fresh=flood.fresh)
        except IllegalMessage:
            if not is_known:  # an illegal flood leaves no origin behind
                self.world.remove_peer(origin)
            raise
        # The world has no neighbours to send changes to; taking them frees ended requests.
        self.world.outgoing()

    def clients(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that some events are for."""
        return {
            self.local.peer_of(destination): mask
            for destination, mask in self._local_selector.route(parcel).items()
        }

    def brokers(self, parcel: Parcel) -> dict[str, RowMask]:
        """Select the other brokers whose clients some events are for."""
        return {
            self.world.peer_of(destination).name: mask
            for destination, mask in self._world_selector.route(parcel).items()
        }
