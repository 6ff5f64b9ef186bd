"""`Proxies`: a hierarchy of proxies (proxy IV) that sends requests up, and down to offers of them.

Each broker but the root has a master, which `general` finds. The master is sent the offers and the
subscriptions from below. A broker below is sent those subscriptions of others that overlap the
offers from below it. An event follows subscriptions. It also goes up unless the master is known to
expect such events from here: it may be a *sporadic* one (proxy IV-D), whose subscribers only
brokers above know. So clients may advertise, and need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np
from msgspec import structs

from palio.matching.protocol import RowMask
from palio.model.filters import TRUE, Filter
from palio.model.parcels import Parcel
from palio.routing.announcements import Announcements
from palio.routing.forwarding import Aim
from palio.routing.forwarding_router import ForwardingRouter
from palio.routing.messages import (
    Batch,
    Control,
    Request,
    Settled,
)
from palio.routing.normalized import Stated
from palio.routing.overlap_index import OverlapIndex
from palio.routing.peer_requests import Ledger
from palio.routing.protocol import Peer, Role, SelectorFactory, Send
from palio.routing.reference_selector import ReferenceSelector

WIDE_AT: Final = 64
"""A broker below whose offers overlap more subscriptions of others is *wide*: it is asked for all
events instead. Of n brokers that all offer and want one kind, each would be sent n subscriptions.
"""

NARROW_AT: Final = 32
"""With fewer a wide broker is sent each subscription again; half, so that it does not alternate."""

MAX_TESTED: Final = 64
"""Alternatives of a peer's offers that an event is tested by: 1 to 2 ms at most. Events that only
other alternatives announce go up."""

ITSELF: Final = Peer(Role.SIDE, "")
"""This broker as a subscriber, and as the requester of its own waves."""


class _OfferAim:
    """Sends an advertisement (`Aim`) to the master."""

    def __init__(self) -> None:
        self.master: Peer | None = None

    def towards(self, _: Stated) -> Iterable[Peer]:
        """List the neighbours that a filter may go to."""
        return () if self.master is None else (self.master,)

    def forget(self, filter: Stated) -> None:
        """Do nothing: offers have no state here."""


class _SubscriptionAim:
    """Sends a subscription (`Aim`): up, and down to offers that it overlaps.

    Wide brokers below are sent one subscription for all events, which this broker makes itself.
    """

    def __init__(self, upwards: _OfferAim, askers: Callable[[Filter], Iterable[Peer]]) -> None:
        self.overlaps = OverlapIndex()
        self.wide: dict[Peer, None] = {}
        self.ended = 0
        """Subscriptions that ended since wide brokers were last checked."""
        self._upwards = upwards
        self._askers = askers

    def towards(self, filter: Filter) -> Iterator[Peer]:
        """List the neighbours that a filter may go to."""
        if filter == TRUE:
            yield from self.wide
            if list(self._askers(filter)) == [ITSELF]:
                return
        yield from self._upwards.towards(filter)
        for peer in self.overlaps.towards(filter):
            if peer not in self.wide:
                yield peer

    def forget(self, filter: Filter) -> None:
        """Drop a filter without subscribers."""
        self.overlaps.forget(filter)
        self.ended += 1


class Proxies(ForwardingRouter):
    """One broker of a hierarchy. Its master is the peer `above`, if one is attached.

    >>> import palio
    >>> from palio.routing.messages import Advertise, Batch, Subscribe
    >>> root, leaf, alice = Proxies("P1"), Peer.broker("P2"), Peer.client("alice")
    >>> offer = Advertise(0, palio.parse_advertisement("price > 0"))
    >>> _ = root.attach(alice), root.attach(leaf), root.receive(leaf, Batch((offer,), fresh=True))
    >>> asked = Batch((Subscribe(0, palio.parse("price < 10")), Subscribe(1, palio.parse("x = 1"))))
    >>> [
    ...     (to.name, [str(each.filter) for each in batch.requests])
    ...     for to, batch in root.receive(alice, asked)
    ... ]
    [('P2', ['price < 10'])]
    """

    takes_advertisements = True

    def __init__(self, name: str, selector: SelectorFactory = ReferenceSelector) -> None:
        self._upwards = _OfferAim()
        self._subscription_aim = _SubscriptionAim(self._upwards, self._askers)
        self.above: Peer | None = None
        """The peer above this broker."""
        self.advertisements = Ledger(advertising=True, aim=self._upwards)
        self._asked = 0
        """The number of the last wave that asked the master when offers are in force there."""
        self._answered = 0
        """The last of these waves that the master has answered."""
        self._informed_at: dict[Peer, int] = {}
        """For each peer, the wave that covers all its offers."""
        self._expected: dict[Peer, Announcements] = {}
        self._new_selector = selector
        super().__init__(name, selector)
        self._ledgers.append(self.advertisements)

    def _aim(self) -> Aim | None:
        return self._subscription_aim

    def _askers(self, filter: Filter) -> Iterable[Peer]:
        return self.subscriptions.table.nodes[filter].subscribers

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected."""
        if peer == self.above:
            self._upwards.master = peer
            for ledger in self._ledgers:
                ledger.table.reconsider(ledger.table.nodes)
        sends = super().attach(peer)
        if peer == self.above:
            self._informed_at = dict.fromkeys(self._informed_at, self._asked)
        return sends

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer == self.above:
            self.above = self._upwards.master = None
        self._informed_at.pop(peer, None)
        self._expected.pop(peer, None)
        self._subscription_aim.overlaps.drop(peer)
        self._narrow(peer)
        return self._without_own(super().detach(peer))

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        return self._without_own(super().receive(sender, message))

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to; sporadic events also go up."""
        routes = super().route(sender, parcel)
        master = self._upwards.master
        if master is None or sender == master:
            return routes
        wanted = routes.get(master)
        if wanted is None or not wanted.all():
            sporadic = self._sporadic(sender, parcel)
            if sporadic.any():
                routes[master] = sporadic if wanted is None else sporadic | wanted
        return routes

    def sources(self, filter: Filter) -> bool | Peer:
        """Find out if anybody may publish what a filter wants. If no offer from below overlaps it,
        the master is to be asked.
        """
        return self.advertisements.offers(filter) or self._upwards.master or False

    def _sporadic(self, sender: Peer, parcel: Parcel) -> RowMask:
        """Select the events that the master does not expect from the sender.

        Once the master has answered for the sender's offers, it has sent all subscriptions that
        overlap them. Events of this broker itself are never offered.
        """
        entries = self.advertisements.entries.get(sender)
        if entries is None or self._answered < self._informed_at.get(sender, 0):
            return np.ones(len(parcel), np.bool_)
        expected = self._expected.get(sender)
        if expected is None:
            offers = [each.bound for each in entries.values()]
            expected = Announcements(offers, self._new_selector, max_alternatives=MAX_TESTED)
            self._expected[sender] = expected
        return ~expected.announced_in(parcel)

    # --- consequences of a batch ---

    def _applied(self, sender: Peer) -> None:
        """Reconsider subscriptions that overlap an offer which a broker below began or ended."""
        self._expected.pop(sender, None)
        if sender.is_client or sender == self._upwards.master:
            return
        aim, former = self._subscription_aim, []
        if sender not in aim.wide:
            former = list(aim.overlaps.overlapping(sender))
        offers = [each.bound for each in self.advertisements.entries[sender].values()]
        changed = aim.overlaps.set_offers(sender, offers)
        if sender in aim.wide:
            self._narrow_if_few(sender)
        elif self._is_crowded(sender):
            self._widen(sender, former)
        else:
            self.subscriptions.table.reconsider(changed)

    def _outgoing(self) -> dict[Peer, list[Request]]:
        outgoing = self.advertisements.outgoing()
        self._asked += bool(outgoing)  # only the master is informed of offers
        subscriptions = self.subscriptions.outgoing()
        self._recheck_wide(subscriptions)
        for changes in (subscriptions, self.subscriptions.outgoing()):
            for peer, requests in changes.items():
                outgoing.setdefault(peer, []).extend(requests)
        return outgoing

    def _flush(
        self, requester: Peer | None = None, wave: int | None = None, fresh: Peer | None = None
    ) -> list[Send]:
        """Send a wave with each offer to the master. Its answer comes after the subscriptions that
        overlap the offer.
        """
        asked = self._asked
        sends = super()._flush(requester, wave, fresh)
        if requester is not None:
            self._informed_at[requester] = self._asked
        if asked == self._asked:
            return sends
        for index, (peer, message) in enumerate(sends):
            if peer == self._upwards.master and isinstance(message, Batch):
                waves, _ = self._waves.begin(ITSELF, self._asked, [peer])
                number = waves.get(peer, message.wave)
                sends[index] = Send(peer, structs.replace(message, wave=number))
        return sends

    def _without_own(self, sends: list[Send]) -> list[Send]:
        """Take the answers to this broker's own waves out of some messages."""
        for to, message in sends:
            if to == ITSELF and isinstance(message, Settled):
                self._answered = max(self._answered, message.wave)
        return [send for send in sends if send.to != ITSELF]

    # --- wide brokers ---

    def _recheck_wide(self, informed: Iterable[Peer]) -> None:
        """Widen peers that were just sent too many subscriptions; at times narrow wide ones."""
        for peer in informed:
            if peer == self._upwards.master or peer in self._subscription_aim.wide:
                continue
            if self.subscriptions.sent_count(peer) > WIDE_AT:
                self._widen(peer, self._subscription_aim.overlaps.overlapping(peer))
        if self._subscription_aim.ended > NARROW_AT // 2:
            self._subscription_aim.ended = 0
            for peer in list(self._subscription_aim.wide):
                self._narrow_if_few(peer)

    def _count_interests(self, peer: Peer, most: int) -> int:
        """Count the subscriptions of others that overlap a peer's offers, up to a limit."""
        nodes = self.subscriptions.table.nodes
        overlapping = self._subscription_aim.overlaps.overlapping(peer)
        others = (each for each in overlapping if nodes[each].subscribers.keys() - {peer, ITSELF})
        return sum(1 for _ in islice(others, most))

    def _is_crowded(self, peer: Peer) -> bool:
        return self._count_interests(peer, WIDE_AT + 1) > WIDE_AT

    def _widen(self, peer: Peer, overlapping: Iterable[Filter]) -> None:
        table = self.subscriptions.table
        if not self._subscription_aim.wide:
            table.add(ITSELF, TRUE)
        self._subscription_aim.wide[peer] = None
        table.reconsider((TRUE, *overlapping))

    def _narrow_if_few(self, peer: Peer) -> None:
        if self._count_interests(peer, NARROW_AT) < NARROW_AT:
            self._narrow(peer)

    def _narrow(self, peer: Peer) -> None:
        if peer not in self._subscription_aim.wide:
            return
        table = self.subscriptions.table
        del self._subscription_aim.wide[peer]
        table.reconsider((TRUE, *self._subscription_aim.overlaps.overlapping(peer)))
        if not self._subscription_aim.wide:
            table.remove(ITSELF, TRUE)
