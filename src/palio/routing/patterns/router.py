"""`Patterned`: a broker that finds sequences of events (patterns) for subscribers (siena 5.4).

It wraps a router with advertisements, which still routes single events. `Delegation` decides which
patterns this broker assembles from events, and which it delegates to a neighbour. A match, several
events that satisfy a pattern together, is a *composite notification*.
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
"""Events at most this late are put in order, and every composite notification waits that long. It
allows for a few retransmissions around the world, and for differences of brokers' clocks."""


class Patterned:
    """One broker that also assembles patterns, over `Advertised` or a `General` of that.

    The caller calls `advance` at the time `wake`, for the composite notifications due by then.

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
        """Return whether any client may publish events that match a filter."""
        return self.inner.sources(filter)

    @property
    def routing_version(self) -> int:
        """Grows when paths of events change."""
        return self.inner.routing_version

    @property
    def is_changing(self) -> bool:
        """True while the tree changes; no pattern is assembled until the change is complete."""
        return self.inner.is_changing

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may take another path to a neighbour."""
        return self.inner.has_alternate_path(neighbour)

    @property
    def is_in_order(self) -> bool:
        """True if paths are final, by the link states received here."""
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
        """All pattern subscriptions, in the order of their arrival."""
        return list(self.delegation.subscriptions.values())

    @property
    def late(self) -> int:
        """Events that were ignored by patterns here, as they arrived after the reorder window."""
        return self.delegation.late

    # --- the calls of `Router` ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected."""
        return self._then_move(lambda: self.inner.attach(peer))

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that has disconnected."""
        return self._then_move(lambda: self.inner.detach(peer))

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour."""
        return self._then_move(lambda: self.inner.set_link_cost(peer, cost))

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self.inner.unsettle()

    def holds(self, sender: Peer) -> bool:
        """Return whether events of a peer must wait until a change of the tree is complete."""
        return self.inner.holds(sender)

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self.inner.cork()

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links are pending until `uncork`."""
        return self.inner.has_pending_updates

    def uncork(self) -> list[Send]:
        """Flood changes of links, and move assemblies accordingly."""
        return self._then_move(self.inner.uncork)

    def give_up(self) -> list[Send]:
        """End a change of the tree that takes too long; events may be lost."""
        return self._then_move(self.inner.give_up)

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Handle a message of a peer."""
        if not isinstance(message, PatternControl):
            # Most messages move no assembly, and comparing advertisements takes milliseconds.
            if only_subscribes(message) or not self.delegation.subscriptions:
                return self._underlay.outward(self.inner.receive(sender, message))
            advertiser = sender if isinstance(message, Batch) else None
            return self._then_move(lambda: self.inner.receive(sender, message), advertiser)
        if not self._underlay.is_in_tree(sender):
            if sender in self.inner.peers:
                return []  # sent before the peer learned that the link left the tree
            raise IllegalMessage(sender, "it is not attached")
        return self.delegation.receive(sender, message)

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the destinations of events, and keep copies of those that patterns here need."""
        routes = self.inner.route(sender, parcel)
        needed = routes.pop(self._underlay.monitors, None)
        if needed is not None:
            events = parcel.select(needed)
            check_times(events)
            self.observed += len(events)
            self.delegation.scheduler.accept(events, self._underlay.needed(events))
        return routes

    def check_room(self, subscriber: Peer, more: int) -> None:
        """Refuse `more` further patterns of a subscriber that would exceed its limit."""
        self.delegation.check_room(subscriber, more)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that their publisher has advertised; None: all of them."""
        return self.inner.announced(sender, parcel)

    # --- time ---

    def advance(self, now: datetime) -> list[Send]:
        """Release events that were published at least a window ago to the patterns, and return the
        composite notifications that they complete.

        A call stops after some 10 ms. If more events are due then, `wake` is in the past.
        """
        sends: list[Send] = []
        if self.is_changing:
            return sends
        for subscription, composites in self.delegation.scheduler.release(now - self.window):
            for events in composites:
                sends += self.delegation.report(subscription, events)
            sends += self.delegation.late_reports(subscription)
        return sends

    @property
    def wake(self) -> datetime | None:
        """The time at which `advance` is next to be called; None if no events are held back."""
        first = self.delegation.scheduler.earliest_release
        if self.is_changing or first is None:
            return None
        return first if first == AT_ONCE else first + self.window

    # --- changes of advertisements ---

    def _then_move(
        self, call: Callable[[], list[Send]], advertiser: Peer | None = None
    ) -> list[Send]:
        """Call the inner router, then move assemblies if peers or advertisements have changed.

        With `advertiser`, only its advertisements can change, and only these are compared.
        """
        if not self.delegation.subscriptions:
            return self._underlay.outward(call())
        before = self._underlay.offers(advertiser)
        sends = self._underlay.outward(call())
        after = self._underlay.offers(advertiser)
        gone = [peer for peer in before if peer not in after]
        changed = differences(before, after)
        # Lost peers first, so that no assembly is moved to one of them.
        moves: list[Send] = []
        for peer in gone:
            moves += self.delegation.forget_peer(peer)
        for subscription in list(self.delegation.subscriptions.values()):
            steps = subscription.pattern.steps
            if any(overlap(advertised, step) for advertised in changed for step in steps):
                moves += self.delegation.settle(subscription)
        return sends + [send for send in moves if send.to not in gone]
