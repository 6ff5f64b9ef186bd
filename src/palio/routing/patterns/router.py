"""`Patterned`: patterns over advertisement forwarding: factoring, delegation, monitors (siena 5.4).

It wraps a router, which still routes single events. `Delegation` decides which patterns are
assembled here, and which by a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from palio.errors import InvalidInput
from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.advertised import Advertised
from palio.routing.general import General
from palio.routing.messages import Batch, Control
from palio.routing.patterns.delegation import Delegation
from palio.routing.patterns.legal import check_times
from palio.routing.patterns.messages import PatternControl
from palio.routing.patterns.providers import differences
from palio.routing.patterns.reading import AT_ONCE
from palio.routing.patterns.subscriptions import PatternSubscription
from palio.routing.patterns.underlay import Underlay, only_subscribes
from palio.routing.poset import overlap
from palio.routing.protocol import IllegalMessage, Peer, Router, SelectorFactory, Send
from palio.routing.reference_selector import ReferenceSelector

REORDER_WINDOW: Final = timedelta(seconds=1)
"""Delay of an event that is still put in order: a few retransmissions around the world, and the
difference of brokers' clocks. Every composite notification is delayed by it."""


class Patterned:
    """One broker that also assembles patterns, over `Advertised` or a `General` of that.

    The shell calls `advance` at `wake` for the composite notifications that are due by then.

    >>> import palio
    >>> from palio.routing.messages import Batch, Advertise
    >>> from palio.routing.patterns.messages import SubscribePattern
    >>> broker = Patterned("b1")
    >>> alice, two = Peer.client("alice"), Peer.broker("b2")
    >>> _ = broker.attach(alice), broker.attach(two)
    >>> offer = Advertise(0, palio.parse_advertisement("alarm IS NOT NULL"))
    >>> _ = broker.receive(two, Batch((offer,), fresh=True))
    >>> request = SubscribePattern(0, palio.parse("alarm = 'smoke' THEN alarm = 'fire'"))
    >>> [(str(to), str(message.pattern)) for to, message in broker.receive(alice, request)]
    [('broker b2', "alarm = 'smoke' THEN alarm = 'fire'")]
    """

    def __init__(
        self,
        name: str,
        inner: Callable[[str], Router] = Advertised,
        window: timedelta = REORDER_WINDOW,
        *,
        selector: SelectorFactory = ReferenceSelector,
    ) -> None:
        if window < timedelta(0):
            raise InvalidInput("a reorder window is not negative")
        self.name = name
        self.window = window
        self.observed = 0
        """Events that matched a step of a pattern assembled here."""
        self._underlay = Underlay(name, inner, selector)
        self.delegation = Delegation(self._underlay)

    # --- the properties of `Router` ---

    is_advertised = True
    takes_advertisements = True
    follows_sources = False

    def sources(self, filter: Filter) -> bool | Peer:
        """Return whether anybody may publish events that match a filter."""
        return self.inner.sources(filter)

    @property
    def routing_version(self) -> int:
        """Grows when paths of events change."""
        return self.inner.routing_version

    @property
    def is_changing(self) -> bool:
        """True while the tree changes; nothing is assembled until that is over."""
        return self.inner.is_changing

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may take another path to a neighbour."""
        return self.inner.has_alternate_path(neighbour)

    @property
    def is_in_order(self) -> bool:
        """True if paths are final."""
        return self.inner.is_in_order

    @property
    def inner(self) -> Advertised | General:
        """The router of single events."""
        return self._underlay.router

    @property
    def tree(self) -> Advertised:
        """The part of the inner router that advertises and subscribes."""
        return self._underlay.tree

    @property
    def peers(self) -> list[Peer]:
        """All attached peers."""
        return [peer for peer in self.inner.peers if peer != self._underlay.monitors]

    @property
    def subscriptions(self) -> list[PatternSubscription]:
        """All pattern subscriptions, in the order they came."""
        return list(self.delegation.subscriptions.values())

    @property
    def late(self) -> int:
        """Events that came later than the reorder window, and took no part in a pattern here."""
        return self.delegation.late

    # --- the calls of `Router` ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected."""
        return self._around(lambda: self.inner.attach(peer))

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        return self._around(lambda: self.inner.detach(peer))

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour."""
        return self._around(lambda: self.inner.set_link_cost(peer, cost))

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self.inner.unsettle()

    def holds(self, sender: Peer) -> bool:
        """Return whether events of a peer must wait."""
        return self.inner.holds(sender)

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self.inner.cork()

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links are pending until `uncork`."""
        return self.inner.has_pending_updates

    def uncork(self) -> list[Send]:
        """Flood changes of links, and follow them."""
        return self._around(self.inner.uncork)

    def give_up(self) -> list[Send]:
        """End a change of the tree at once."""
        return self._around(self.inner.give_up)

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if not isinstance(message, PatternControl):
            # Most messages move no assembly, and to compare tables of offers costs milliseconds.
            if only_subscribes(message) or not self.delegation.subscriptions:
                return self._underlay.outward(self.inner.receive(sender, message))
            only = sender if isinstance(message, Batch) else None
            return self._around(lambda: self.inner.receive(sender, message), only)
        if not self._underlay.is_in_tree(sender):
            if sender in self.inner.peers:
                return []  # sent before the peer learned that the link left the tree
            raise IllegalMessage(sender, "it is not attached")
        return self.delegation.receive(sender, message)

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to, and hold back those that patterns here need."""
        routes = self.inner.route(sender, parcel)
        needed = routes.pop(self._underlay.monitors, None)
        if needed is not None:
            events = parcel.select(needed)
            check_times(events)
            self.observed += len(events)
            self.delegation.reading.accept(events, self._underlay.needed(events))
        return routes

    def check_room(self, subscriber: Peer, more: int) -> None:
        """Refuse `more` patterns of a subscriber if it would have too many."""
        self.delegation.check_room(subscriber, more)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as advertised."""
        return self.inner.announced(sender, parcel)

    # --- time ---

    def advance(self, now: datetime) -> list[Send]:
        """Release events that were published a window ago; return the composites that they make.

        This takes some 10 ms. If more is due, `wake` is in the past.
        """
        sends: list[Send] = []
        if self.is_changing:
            return sends
        for subscription, occurrences in self.delegation.reading.release(now - self.window):
            for parts in occurrences:
                sends += self.delegation.report(subscription, parts)
            sends += self.delegation.late_reports(subscription)
        return sends

    @property
    def wake(self) -> datetime | None:
        """Time of the next call of `advance`, if nothing happens before; None for never."""
        first = self.delegation.reading.first
        if self.is_changing or first is None:
            return None
        return first if first == AT_ONCE else first + self.window

    # --- changes of offers ---

    def _around(self, call: Callable[[], list[Send]], sender: Peer | None = None) -> list[Send]:
        """Call the inner router, and move assemblies if peers or offers changed.

        A batch changes no offers but its `sender`'s, so only these are compared.
        """
        if not self.delegation.subscriptions:
            return self._underlay.outward(call())
        before = self._underlay.offers(sender)
        sends = self._underlay.outward(call())
        after = self._underlay.offers(sender)
        gone = [peer for peer in before if peer not in after]
        changed = differences(before, after)
        # Lost peers first, so that no assembly is moved to one of them.
        moves: list[Send] = []
        for peer in gone:
            moves += self.delegation.forget_peer(peer)
        for subscription in list(self.delegation.subscriptions.values()):
            steps = subscription.pattern.steps
            if any(overlap(offer, step) for offer in changed for step in steps):
                moves += self.delegation.settle(subscription)
        return sends + [send for send in moves if send.to not in gone]
