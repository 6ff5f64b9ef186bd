"""`Gateway`: a hybrid (siena 4.4) that runs one algorithm inside and another one outside.

A gateway is two routers in one broker, each of which sees the other as one peer. To a hierarchy
inside, the outside is the master's server. To a mesh outside, the whole inside is one neighbour.
The routers exchange the summaries that either would send a neighbour. So each side covers, repairs
and settles by its own rules, and a mesh of hierarchies and a hierarchy of meshes are the same code.
A hierarchy outside receives every event and subscribes to none, so the gateway subscribes to
everything inside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from palio.matching.protocol import RowMask
from palio.model.filters import TRUE, Filter
from palio.model.parcels import Parcel
from palio.routing.acyclic import Hierarchical
from palio.routing.messages import Batch, Control, Subscribe
from palio.routing.protocol import Peer, Role, Router, Send


class Gateway:
    """One broker with a router `inside` and a router `outside`.

    `is_outside` tests whether a peer belongs to the outside; all others, clients among them, are
    inside. `top` is the role of the outside for the inside: a `MASTER` for a hierarchy inside, a
    `SIDE` for peers.

    >>> from palio.routing.acyclic import Acyclic
    >>> from palio.routing.acyclic import Hierarchical
    >>> gateway = Gateway("g", Hierarchical, Acyclic, lambda peer: peer.name.startswith("mesh"))
    >>> gateway.attach(Peer.broker("leaf"))
    []
    """

    follows_sources = False
    routing_version = 0

    def __init__(
        self,
        name: str,
        inside: Callable[[str], Router],
        outside: Callable[[str], Router],
        is_outside: Callable[[Peer], bool],
        top: Role = Role.MASTER,
    ) -> None:
        self.name = name
        self.inside = inside(name)
        self.outside = outside(name)
        self.is_outside = is_outside
        self._up = Peer(top, f"{name} outside")
        self._down = Peer(Role.SIDE, f"{name} inside")
        self._beyond_it = Peer.beyond(name)
        outwards = self.inside.attach(self._up)
        inwards = self.outside.attach(self._down)
        self._settle(deque((self.inside, send) for send in outwards))
        self._settle(deque((self.outside, send) for send in inwards))
        # A hierarchy sends no subscriptions down, but its master has to receive every event.
        if self.is_below:
            everything = Batch((Subscribe(0, TRUE),), fresh=True)
            self._settle(
                deque((self.inside, send) for send in self.inside.receive(self._up, everything))
            )

    @property
    def is_advertised(self) -> bool:
        """True if only advertised events count."""
        return self.inside.is_advertised

    @property
    def takes_advertisements(self) -> bool:
        """True if advertisements have an effect."""
        return self.inside.takes_advertisements

    @property
    def is_below(self) -> bool:
        """True if the outside is a hierarchy, which has a master for this broker."""
        return isinstance(self.outside, Hierarchical)

    def sources(self, filter: Filter) -> bool | Peer:
        """Return whether anybody may publish events that match a filter."""
        return self.inside.sources(filter)

    @property
    def is_changing(self) -> bool:
        """True while a side changes to another tree."""
        return self.inside.is_changing or self.outside.is_changing

    @property
    def is_in_order(self) -> bool:
        """True if paths are final on both sides."""
        return self.inside.is_in_order and self.outside.is_in_order

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may take another path to a neighbour."""
        return self._side(neighbour).has_alternate_path(neighbour)

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self.inside.cork()
        self.outside.cork()

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links are pending until `uncork`."""
        return self.inside.has_pending_updates or self.outside.has_pending_updates

    def uncork(self) -> list[Send]:
        """Flood changes of links, and follow them."""
        sides = (self.inside, self.outside)
        return self._settle(deque((side, send) for side in sides for send in side.uncork()))

    def holds(self, sender: Peer) -> bool:
        """Return whether events of a peer are held: by its side, or by the one they enter next."""
        side = self._side(sender)
        other, entry = self._beyond(side)
        return side.holds(sender) or other.holds(entry)

    def give_up(self) -> list[Send]:
        """End a change of the tree at once."""
        sides = (self.inside, self.outside)
        return self._settle(deque((side, send) for side in sides for send in side.give_up()))

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected."""
        side = self._side(peer)
        return self._settle(deque((side, send) for send in side.attach(peer)))

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        side = self._side(peer)
        return self._settle(deque((side, send) for send in side.detach(peer)))

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        side = self._side(sender)
        return self._settle(deque((side, send) for send in side.receive(sender, message)))

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to, on the other side as well if they cross over."""
        side = self._side(sender)
        # Events that came to the outside by a detour: there, this broker itself is their sender.
        if sender == self._beyond_it:
            sender = Peer.broker(self.name)
        routes = side.route(sender, parcel)
        crossing = routes.pop(self._up if side is self.inside else self._down, None)
        if crossing is None:
            return routes
        other, entry = self._beyond(side)
        rows = np.flatnonzero(crossing)
        for peer, mask in other.route(entry, parcel.select(crossing)).items():
            # The other side numbers rows of the selection; routes are of the whole parcel.
            routes[peer] = np.zeros(len(parcel), np.bool_)
            routes[peer][rows[mask]] = True
        return routes

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as advertised."""
        return self._side(sender).announced(sender, parcel)

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self.inside.unsettle()
        self.outside.unsettle()

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour."""
        side = self._side(peer)
        return self._settle(deque((side, send) for send in side.set_link_cost(peer, cost)))

    def _side(self, peer: Peer) -> Router:
        is_beyond = not peer.is_client and (peer == self._beyond_it or self.is_outside(peer))
        return self.outside if is_beyond else self.inside

    def _beyond(self, side: Router) -> tuple[Router, Peer]:
        """Return the other side, and the peer that stands for this side there."""
        return (self.outside, self._down) if side is self.inside else (self.inside, self._up)

    def _settle(self, pending: deque[tuple[Router, Send]]) -> list[Send]:
        """Pass messages between the sides until none is pending; return those for peers.

        A queue keeps the order in which a side made its messages, as a link would. It ends, as each
        side only forwards changes of its own summary.
        """
        outgoing = []
        while pending:
            side, send = pending.popleft()
            if send.to in (self._up, self._down):
                other, entry = self._beyond(side)
                pending.extend((other, answer) for answer in other.receive(entry, send.message))
            else:
                outgoing.append(send)
        return outgoing
