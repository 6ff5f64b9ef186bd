"""Patterns over advertisement forwarding: factoring, delegation, monitors (siena 5.4).

`Patterned` wraps a router and does what patterns add; single events stay the inner router's. What
is assembled here, and what a neighbour is left to assemble, is the `Delegation`'s.
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
from palio.routing.patterns.messages import (
    PatternControl,
)
from palio.routing.patterns.providers import differences
from palio.routing.patterns.reading import AT_ONCE
from palio.routing.patterns.standing import PatternSubscription
from palio.routing.patterns.underlay import Underlay, only_subscribes
from palio.routing.poset import overlap
from palio.routing.protocol import IllegalMessage, Peer, Router, SelectorFactory, Send
from palio.routing.reference_selector import ReferenceSelector

REORDER_WINDOW: Final = timedelta(seconds=1)
"""Delay with which an event may come and still find its place: a few retransmissions around the
world, and what clocks of brokers differ by. Every composite notification waits that long."""


class Patterned:
    """One broker that also assembles patterns, over `Advertised` or a `General` of that.

    What is due by time is fetched with `advance`, at the time of `wake`.

    >>> import palio
    >>> from palio.routing.messages import Batch, Advertise
    >>> from palio.routing.patterns.messages import SubscribePattern
    >>> broker = Patterned("b1")
    >>> alice, two = Peer.client("alice"), Peer.broker("b2")
    >>> _ = broker.attach(alice), broker.attach(two)
    >>> offer = Advertise(0, palio.parse_advertisement("alarm IS NOT NULL"))
    >>> _ = broker.receive(two, Batch((offer,), fresh=True))
    >>> wish = SubscribePattern(0, palio.parse("alarm = 'smoke' THEN alarm = 'fire'"))
    >>> [(str(to), str(message.pattern)) for to, message in broker.receive(alice, wish)]
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
        """Events that a pattern assembled here might need."""
        self._underlay = Underlay(name, inner, selector)
        self.delegation = Delegation(self._underlay)

    # --- state ---

    is_advertised = True
    takes_advertisements = True
    follows_sources = False

    def sources(self, filter: Filter) -> bool | Peer:
        """Find out if anybody may publish what a filter wants."""
        return self.inner.sources(filter)

    @property
    def routing_version(self) -> int:
        """Grows when known events take other paths."""
        return self.inner.routing_version

    @property
    def is_changing(self) -> bool:
        """True on the way to another tree. Until that is over nothing is assembled."""
        return self.inner.is_changing

    def has_alternate_path(self, neighbour: Peer) -> bool:
        """Return whether events may take another path to a neighbour."""
        return self.inner.has_alternate_path(neighbour)

    @property
    def is_in_order(self) -> bool:
        """True if the paths are as wanted."""
        return self.inner.is_in_order

    @property
    def inner(self) -> Advertised | General:
        """The router that single events are left to."""
        return self._underlay.router

    @property
    def tree(self) -> Advertised:
        """The part of it that advertises and subscribes."""
        return self._underlay.tree

    @property
    def peers(self) -> list[Peer]:
        """All attached peers."""
        return [peer for peer in self.inner.peers if peer != self._underlay.monitors]

    @property
    def standing(self) -> list[PatternSubscription]:
        """All pattern subscriptions, in the order they came."""
        return list(self.delegation.standing.values())

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
        """Set what the link to a neighbour weighs."""
        return self._around(lambda: self.inner.set_link_cost(peer, cost))

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours."""
        self.inner.unsettle()

    def holds(self, sender: Peer) -> bool:
        """Return whether what a peer publishes must wait."""
        return self.inner.holds(sender)

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self.inner.cork()

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links wait for `uncork`."""
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
            if only_subscribes(message) or not self.delegation.standing:
                return self._underlay.outward(self.inner.receive(sender, message))
            only = sender if isinstance(message, Batch) else None
            return self._around(lambda: self.inner.receive(sender, message), only)
        if not self._underlay.is_in_tree(sender):
            if sender in self.inner.peers:
                return []  # sent before they learned that the link left the tree
            raise IllegalMessage(sender, "it is not attached")
        return self.delegation.receive(sender, message)

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to. What events complete is fetched with `advance`."""
        found = self.inner.route(sender, parcel)
        needed = found.pop(self._underlay.monitors, None)
        if needed is not None:
            mine = parcel.select(needed)
            check_times(mine)
            self.observed += len(mine)
            self.delegation.reading.take_in(mine, self._underlay.needed(mine))
        return found

    def check_room(self, subscriber: Peer, more: int) -> None:
        """Refuse so many patterns more of a subscriber that would have too many."""
        self.delegation.check_room(subscriber, more)

    def announced(self, sender: Peer, parcel: Parcel) -> RowMask | None:
        """Select the events that count, as advertised."""
        return self.inner.announced(sender, parcel)

    # --- time ---

    def advance(self, now: datetime) -> list[Send]:
        """It is `now`: what was published a window ago takes its part; composites that follow.

        It works for some 10 ms. If there is more to do, `wake` is at once.
        """
        sends: list[Send] = []
        if self.is_changing:
            return sends
        for standing, found in self.delegation.reading.let_go(now - self.window):
            for parts in found:
                sends += self.delegation.report(standing, parts)
            sends += self.delegation.missed(standing)
        return sends

    @property
    def wake(self) -> datetime | None:
        """Time of the next call of `advance`, if nothing happens before; None for never."""
        first = self.delegation.reading.first
        if self.is_changing or first is None:
            return None
        return first if first == AT_ONCE else first + self.window

    # --- what follows when offers change ---

    def _around(self, call: Callable[[], list[Send]], sender: Peer | None = None) -> list[Send]:
        """Let the inner router act, and follow: peers that went, offers that changed.

        Of a batch only its sender's offers can have changed.
        """
        if not self.delegation.standing:
            return self._underlay.outward(call())
        before = self._underlay.offers(sender)
        sends = self._underlay.outward(call())
        after = self._underlay.offers(sender)
        gone = [peer for peer in before if peer not in after]
        changed = differences(before, after)
        moves: list[Send] = []
        for peer in gone:
            moves += self.delegation.lose(peer)
        for standing in list(self.delegation.standing.values()):
            if any(overlap(each, step) for each in changed for step in standing.pattern.steps):
                moves += self.delegation.settle(standing)
        return sends + [each for each in moves if each.to not in gone]
