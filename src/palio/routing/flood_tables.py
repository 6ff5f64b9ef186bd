"""`FloodTables`: the subscriptions of all brokers, for algorithms that flood them (`flooded`,
`source_trees`).

Each broker floods its own clients' requests under its name, the *origin*, and keeps the requests of
every other origin. So it can name all brokers that an event is for.
"""

from __future__ import annotations

from typing import Final

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.messages import Batch, Flood, Request
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import IllegalMessage, Peer, SelectorFactory

_FLOOD: Final = Peer.broker("")
"""The one neighbour of the local table, which stands for all other brokers. Requests to it are
flooded."""


class FloodTables:
    """The requests of a broker's own clients (`local`), and of all other brokers (`remote`).

    With `covering`, a client's subscription is not flooded if another local one covers it.
    """

    def __init__(self, name: str, selector: SelectorFactory, *, covering: bool = True) -> None:
        self._name = name
        self._local_selector, self._remote_selector = selector(), selector()
        self.local = Ledger(self._local_selector, covering=covering)
        self.local.add_peer(_FLOOD)
        self.local.add_neighbour(_FLOOD)
        self.remote = Ledger(self._remote_selector)

    def apply_batch(self, client: Peer, batch: Batch) -> None:
        """Apply a client's batch; advertisements are ignored."""
        self.local.apply_requests(client, self.local.relevant(batch.requests), fresh=batch.fresh)

    def take_changes(self) -> tuple[Request, ...]:
        """Take the requests to flood, for the changes of clients since the last call."""
        return tuple(self.local.outgoing().get(_FLOOD, ()))

    def current(self, origin: str) -> tuple[Request, ...]:
        """List the current requests of an origin, as it has flooded them; it may be this broker."""
        if origin == self._name:
            return tuple(self.local.standing(_FLOOD))
        return tuple(self.remote.standing_of(Peer.broker(origin)))

    def learn(self, sender: Peer, flood: Flood) -> None:
        """Apply another origin's flood. An illegal one raises `IllegalMessage` and changes
        nothing.
        """
        origin = Peer.broker(flood.origin)
        is_known = origin in self.remote.entries
        if not all(map(self.remote.handles, flood.requests)):
            raise IllegalMessage(sender, "only subscriptions are flooded")
        if not is_known and not flood.fresh:
            raise IllegalMessage(sender, f"origin {flood.origin} was never introduced")
        if not is_known:
            self.remote.add_peer(origin)
        try:
            self.remote.apply_requests(origin, flood.requests, fresh=flood.fresh)
        except IllegalMessage:
            if not is_known:  # an illegal flood leaves no origin behind
                self.remote.remove_peer(origin)
            raise
        # Nothing is forwarded from the remote table; taking its changes frees ended requests.
        self.remote.outgoing()

    def clients(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that subscribe to some of the events."""
        return {
            self.local.peer_of(destination): mask
            for destination, mask in self._local_selector.route(parcel).items()
        }

    def brokers(self, parcel: Parcel) -> dict[str, RowMask]:
        """Select the other brokers whose clients subscribe to some of the events."""
        return {
            self.remote.peer_of(destination).name: mask
            for destination, mask in self._remote_selector.route(parcel).items()
        }
