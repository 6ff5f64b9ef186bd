"""`FloodTables`: the subscriptions behind floods, of `flooded` and `source-trees` alike.

Each broker floods what its own clients ask for, and keeps what every other broker flooded under the
name of that one, its *origin*. So it can name the brokers that an event is for.
"""

from __future__ import annotations

from typing import Final

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.messages import Batch, Flood, Request
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import IllegalMessage, Peer, SelectorFactory

_EVERYBODY: Final = Peer.broker("")
"""The one neighbour of the local table: what it is sent is flooded."""


class FloodTables:
    """Keep what a broker's own clients ask for, and what other brokers flooded. Own subscriptions
    that others cover are not flooded, unless there is no `covering`.
    """

    def __init__(self, name: str, selector: SelectorFactory, *, covering: bool = True) -> None:
        self._name = name
        self._local_selector, self._world_selector = selector(), selector()
        self.local = Ledger(self._local_selector, covering=covering)
        self.local.enrol(_EVERYBODY)
        self.local.tell(_EVERYBODY)
        self.world = Ledger(self._world_selector)

    def follow(self, client: Peer, batch: Batch) -> None:
        """Do what a client asks for; advertisements mean nothing here."""
        self.local.follow(client, self.local.mine(batch.requests), fresh=batch.fresh)

    def news(self) -> tuple[Request, ...]:
        """Return what changed among the clients here since the last call, to be flooded."""
        return tuple(self.local.outgoing().get(_EVERYBODY, ()))

    def standing(self, origin: str) -> tuple[Request, ...]:
        """All that an origin, this broker or another, has flooded and still asks for."""
        if origin == self._name:
            return tuple(self.local.standing(_EVERYBODY))
        return tuple(self.world.standing_of(Peer.broker(origin)))

    def learn(self, sender: Peer, flood: Flood) -> None:
        """Keep what another origin asks for. An illegal flood raises `IllegalMessage`, and nothing
        changes.
        """
        origin = Peer.broker(flood.origin)
        is_known = origin in self.world.entries
        if not all(map(self.world.handles, flood.requests)):
            raise IllegalMessage(sender, "only subscriptions are flooded")
        if not is_known and not flood.fresh:
            raise IllegalMessage(sender, f"origin {flood.origin} was never introduced")
        if not is_known:
            self.world.enrol(origin)
        try:
            self.world.follow(origin, flood.requests, fresh=flood.fresh)
        except IllegalMessage:
            if not is_known:
                self.world.dismiss(origin)
            raise
        self.world.outgoing()  # nothing is sent, but the table lets go of what ended

    def clients(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """The clients here that some events are for."""
        return {
            self.local.peer_of(destination): mask
            for destination, mask in self._local_selector.route(parcel).items()
        }

    def brokers(self, parcel: Parcel) -> dict[str, RowMask]:
        """The other brokers whose clients some events are for."""
        return {
            self.world.peer_of(destination).name: mask
            for destination, mask in self._world_selector.route(parcel).items()
        }
