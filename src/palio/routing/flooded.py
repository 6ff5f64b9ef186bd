"""`Flooded`: floods all subscriptions, so every broker can name the destinations of an event.

Each broker floods its own clients' subscriptions over the tree under its own name, uncovered and
unchanged. So the broker where an event is published can name all brokers it must reach
(`destined`), which the planners of multicast groups need. `route` sends events hop by hop (link
matching).
"""

from __future__ import annotations

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.flood_tables import FloodTables
from palio.routing.messages import Batch, Control, Flood, Settled
from palio.routing.protocol import (
    Addressing,
    Destined,
    IllegalMessage,
    Peer,
    PlainRouter,
    SelectorFactory,
    Send,
)
from palio.routing.reference_selector import ReferenceSelector
from palio.routing.waves import Waves


class Flooded(PlainRouter, Addressing):
    """One broker of an acyclic network in which every broker has all subscriptions.

    >>> import palio
    >>> from palio.routing.messages import Subscribe
    >>> broker, alice = Flooded("b1"), Peer.client("alice")
    >>> _ = broker.attach(alice)
    >>> _ = broker.receive(alice, Batch((Subscribe(0, palio.parse("x > 1")),)))
    >>> from palio.model.row_parcels import RowParcel
    >>> broker.destined(Peer.client("bob"), RowParcel("p", [{"x": 2}]))
    Destined(peers={Peer(role=<Role.CLIENT: 0>, name='alice'): array([ True])}, brokers={})
    """

    def __init__(self, name: str, selector: SelectorFactory = ReferenceSelector) -> None:
        self.name = name
        self._tables = FloodTables(name, selector, covering=False)
        # The neighbour towards each origin: floods and events take the tree's only path, so this is
        # learned from floods.
        self._via: dict[str, Peer] = {}
        self._peers: dict[Peer, None] = {}
        self._waves = Waves(lambda wave: Flood(name, (), wave=wave))

    @property
    def peers(self) -> list[Peer]:
        """All attached peers, in the order they came."""
        return list(self._peers)

    @property
    def _neighbours(self) -> list[Peer]:
        return [peer for peer in self._peers if not peer.is_client]

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent every origin's subscriptions."""
        if peer in self._peers:
            raise ValueError(f"{peer} is attached already; detach it first")
        self._peers[peer] = None
        if peer.is_client:
            self._tables.local.add_peer(peer)
            return []
        self._waves.connect(peer)
        return [
            self._send_flood(peer, self._full_flood(origin)) for origin in (self.name, *self._via)
        ]

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone, and withdraw the origins behind it, here and beyond."""
        if peer not in self._peers:
            raise ValueError(f"{peer} is not attached")
        del self._peers[peer]
        if peer.is_client:
            self._tables.local.remove_peer(peer)
            return self._flood_own() + self._waves.disconnect(peer)
        # A fresh flood without requests withdraws an origin: no message of its own is needed.
        sends = []
        for origin in [origin for origin, via in self._via.items() if via == peer]:
            del self._via[origin]
            self._tables.remote.remove_peer(Peer.broker(origin))
            gone = Flood(origin, (), fresh=True)
            sends += [self._send_flood(neighbour, gone) for neighbour in self._neighbours]
        return sends + self._waves.disconnect(peer)

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if sender not in self._peers:
            raise IllegalMessage(sender, "it is not attached")
        match message:
            case Settled():
                return self._waves.settle(sender, message)
            case Batch() if sender.is_client:
                self._tables.apply_batch(sender, message)
                return self._flood_own(sender, message.wave)
            case Flood() if not sender.is_client:
                return self._accept_flood(sender, message)
        raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to."""
        routes = self.local(parcel)
        for name, mask in self._tables.brokers(parcel).items():
            hop = self._via[name]
            routes[hop] = routes[hop] | mask if hop in routes else mask
        routes.pop(sender, None)
        return routes

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that want addressed events."""
        return self._tables.clients(parcel)

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Name the brokers and clients that want events."""
        clients = self.local(parcel)
        clients.pop(sender, None)
        return Destined(clients, self._tables.brokers(parcel))

    def hop(self, source: str, broker: str) -> str | None:
        """Return the next neighbour on the path to a broker: on a tree the same for all sources."""
        del source
        via = self._via.get(broker)
        return None if via is None else via.name

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self._waves.note_sent_to_all()

    # --- flooding ---

    def _flood_own(self, requester: Peer | None = None, wave: int | None = None) -> list[Send]:
        """Flood changes among the clients here."""
        requests = self._tables.take_changes()
        flood = Flood(self.name, requests) if requests else None
        return self._send(flood, requester, wave)

    def _full_flood(self, origin: str) -> Flood:
        return Flood(origin, self._tables.current(origin), fresh=True)

    def _accept_flood(self, sender: Peer, flood: Flood) -> list[Send]:
        # On a tree all floods of an origin come over one link. Another link could only forge them,
        # or the network has a circle, in which floods would run for ever.
        via = self._via.get(flood.origin)
        if flood.origin == self.name or (via is not None and via != sender):
            raise IllegalMessage(sender, f"origin {flood.origin} is not in its direction")
        self._tables.learn(sender, flood)
        self._via[flood.origin] = sender
        return self._send(Flood(flood.origin, flood.requests, flood.fresh), sender, flood.wave)

    def _send(self, flood: Flood | None, requester: Peer | None, wave: int | None) -> list[Send]:
        """Forward a flood to all but its requester, with a wave if there is one."""
        others = [neighbour for neighbour in self._neighbours if neighbour != requester]
        if flood is not None:
            for neighbour in others:
                self._waves.note_sent(neighbour)
        waves: dict[Peer, int] = {}
        answers: list[Send] = []
        if requester is not None and wave is not None:
            waves, answers = self._waves.begin(requester, wave, others)
        sends = []
        for neighbour in others:
            if flood is not None or neighbour in waves:
                sent = flood or Flood(self.name, ())
                sends.append(
                    Send(
                        neighbour,
                        Flood(sent.origin, sent.requests, sent.fresh, waves.get(neighbour)),
                    )
                )
        return sends + answers

    def _send_flood(self, neighbour: Peer, flood: Flood) -> Send:
        self._waves.note_sent(neighbour)
        return Send(neighbour, flood)
