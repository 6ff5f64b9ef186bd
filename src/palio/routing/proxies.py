"""A hierarchy of proxies (proxy IV): what is wanted goes up, and down to where it is offered.

Each broker but the root has a master, which `general` finds out. The master is sent what is offered
and wanted below; a broker below is sent what others want as far as that overlaps what is offered
there. An event follows what is wanted. It goes up besides unless the master knows that such events
come from here: it may be a *sporadic* one (proxy IV-D), and only above is it known who wants those.
So clients may advertise, and need not.
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
"""A broker below whose offers overlap more subscriptions of others is asked for all events instead.
Of n brokers that all offer and want the same kind each would be sent n subscriptions, one by one.
"""

NARROW_AT: Final = 32
"""With fewer it is sent each of them again."""

MOST_LOOKED_AT: Final = 64
"""Offers of a peer that an event is held against at most, those of the last events: it takes 1 to
2 ms at the most. What the others announce goes up."""

NO_OFFER: Final = 0
"""The number of a wave that asks about none: the first offer is number 1."""

ITSELF: Final = Peer(Role.SIDE, "")
"""This broker, as one who wants something of its own, or waits for an answer."""


class _Upwards:
    """Sends an advertisement (`Aim`) to the master."""

    def __init__(self) -> None:
        self.master: Peer | None = None

    def towards(self, _: Stated) -> Iterable[Peer]:
        """List the neighbours that a filter may go to."""
        return () if self.master is None else (self.master,)

    def forget(self, filter: Stated) -> None:
        """Drop a filter that nobody asks for."""


class _Ways:
    """Sends a subscription (`Aim`): up, and down to offers that it overlaps.

    Those below that are `wide` are sent one subscription, for all events, which this broker itself
    has.
    """

    def __init__(self, upwards: _Upwards, askers: Callable[[Filter], Iterable[Peer]]) -> None:
        self.overlaps = OverlapIndex()
        self.wide: dict[Peer, None] = {}
        self.ended = 0
        """Wishes that ended since it was last asked who is still wide."""
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
        """Drop a filter that nobody asks for."""
        self.overlaps.forget(filter)
        self.ended += 1


class Proxies(ForwardingRouter):
    """One broker of a hierarchy. Its master is the peer `above`, if one is attached.

    >>> import palio
    >>> from palio.routing.messages import Advertise, Batch, Subscribe
    >>> root, leaf, alice = Proxies("P1"), Peer.broker("P2"), Peer.client("alice")
    >>> offer = Advertise(0, palio.parse_advertisement("price > 0"))
    >>> _ = root.attach(alice), root.attach(leaf), root.receive(leaf, Batch((offer,), fresh=True))
    >>> wish = Batch((Subscribe(0, palio.parse("price < 10")), Subscribe(1, palio.parse("x = 1"))))
    >>> [
    ...     (to.name, [str(each.filter) for each in said.requests])
    ...     for to, said in root.receive(alice, wish)
    ... ]
    [('P2', ['price < 10'])]
    """

    takes_advertisements = True

    def __init__(self, name: str, selector: SelectorFactory = ReferenceSelector) -> None:
        self._upwards = _Upwards()
        self._ways = _Ways(self._upwards, self._askers)
        self.above: Peer | None = None
        """The peer above this broker."""
        self.advertisements = Ledger(advertising=True, aim=self._upwards)
        self._asked = 0
        """Number of times that the master was informed of offers, and asked when it has them in
        force.
        """
        self._answered = 0
        """To which of these questions it has answered."""
        self._told: dict[Peer, int] = {}
        """With which of them it had all that a peer offers."""
        self._expected: dict[Peer, Announcements] = {}
        self._new_selector = selector
        super().__init__(name, selector)
        self._ledgers.append(self.advertisements)

    def _aim(self) -> Aim | None:
        return self._ways

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
            self._told = dict.fromkeys(self._told, self._asked)
        return sends

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer == self.above:
            self.above = self._upwards.master = None
        self._told.pop(peer, None)
        self._expected.pop(peer, None)
        self._ways.overlaps.drop(peer)
        self._narrow(peer)
        return self._others(super().detach(peer))

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        return self._others(super().receive(sender, message))

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to. What the master does not expect from here goes up,
        even if nobody wants it.
        """
        found = super().route(sender, parcel)
        master = self._upwards.master
        if master is None or sender == master:
            return found
        wanted = found.get(master)
        if wanted is None or not wanted.all():
            sporadic = self._sporadic(sender, parcel)
            if sporadic.any():
                found[master] = sporadic if wanted is None else sporadic | wanted
        return found

    def sources(self, filter: Filter) -> bool | Peer:
        """Find out if anybody may publish what a filter wants. What is not offered below may be
        offered beyond the master.
        """
        return self.advertisements.offers(filter) or self._upwards.master or False

    def _sporadic(self, sender: Peer, parcel: Parcel) -> RowMask:
        """The events that the master does not expect: of what the sender offers it has announced
        what is wanted, once it has answered. What this broker sends of itself nobody offered.
        """
        entries = self.advertisements.entries.get(sender)
        if entries is None or self._answered < self._told.get(sender, 0):
            return np.ones(len(parcel), np.bool_)
        expected = self._expected.get(sender)
        if expected is None:
            offers = [each.bound for each in entries.values()]
            expected = Announcements(offers, self._new_selector, most=MOST_LOOKED_AT)
            self._expected[sender] = expected
        return ~expected.among(parcel)

    # --- what follows from a change ---

    def _applied(self, sender: Peer) -> None:
        """Wishes that overlap what a broker below began or ceased to offer look again."""
        self._expected.pop(sender, None)
        if sender.is_client or sender == self._upwards.master:
            return
        ways, told = self._ways, []
        if sender not in ways.wide:
            told = list(ways.overlaps.overlapping(sender))
        offers = [each.bound for each in self.advertisements.entries[sender].values()]
        changed = ways.overlaps.hear(sender, offers)
        if sender in ways.wide:
            self._narrow_if_few(sender)
        elif self._is_crowded(sender):
            self._widen(sender, told)
        else:
            self.subscriptions.table.reconsider(changed)

    def _outgoing(self) -> dict[Peer, list[Request]]:
        outgoing = self.advertisements.outgoing()
        self._asked += bool(outgoing)  # only the master is informed of offers
        wishes = self.subscriptions.outgoing()
        self._look_again(wishes)
        for found in (wishes, self.subscriptions.outgoing()):
            for peer, requests in found.items():
                outgoing.setdefault(peer, []).extend(requests)
        return outgoing

    def _flush(
        self, requester: Peer | None = None, wave: int | None = None, fresh: Peer | None = None
    ) -> list[Send]:
        """With an offer to the master goes a wave: its answer reports that subscriptions for it are
        here.
        """
        asked = self._asked
        sends = super()._flush(requester, wave, fresh)
        if requester is not None:
            self._told[requester] = self._asked
        if asked == self._asked:
            return sends
        for place, (peer, message) in enumerate(sends):
            if peer == self._upwards.master and isinstance(message, Batch):
                waves, _ = self._waves.begin(ITSELF, self._asked, [peer])
                own = waves.get(peer, message.wave)
                sends[place] = Send(peer, structs.replace(message, wave=own))
        return sends

    def _others(self, sends: list[Send]) -> list[Send]:
        """All but what is an answer to this broker itself."""
        for to, message in sends:
            if to == ITSELF and isinstance(message, Settled):
                self._answered = max(self._answered, message.wave)
        return [each for each in sends if each.to != ITSELF]

    # --- who is asked for all events ---

    def _look_again(self, told: Iterable[Peer]) -> None:
        """Look at those who were just sent subscriptions, and now and then at those who are
        wide.
        """
        for peer in told:
            if self._is_told_much(peer):
                self._widen(peer, self._ways.overlaps.overlapping(peer))
        if self._ways.ended > NARROW_AT // 2:
            self._ways.ended = 0
            for peer in list(self._ways.wide):
                self._narrow_if_few(peer)

    def _wishes_of_others(self, peer: Peer, most: int) -> int:
        """Count subscriptions of others that overlap what a broker below offers, up to a limit."""
        nodes = self.subscriptions.table.nodes
        overlapping = self._ways.overlaps.overlapping(peer)
        wanted = (each for each in overlapping if nodes[each].subscribers.keys() - {peer, ITSELF})
        return sum(1 for _ in islice(wanted, most))

    def _is_crowded(self, peer: Peer) -> bool:
        return self._wishes_of_others(peer, WIDE_AT + 1) > WIDE_AT

    def _is_told_much(self, peer: Peer) -> bool:
        ways = self._ways
        if peer == self._upwards.master or peer in ways.wide:
            return False
        return self.subscriptions.sent_count(peer) > WIDE_AT

    def _widen(self, peer: Peer, told: Iterable[Filter]) -> None:
        table = self.subscriptions.table
        if not self._ways.wide:
            table.add(ITSELF, TRUE)
        self._ways.wide[peer] = None
        table.reconsider((TRUE, *told))

    def _narrow_if_few(self, peer: Peer) -> None:
        if self._wishes_of_others(peer, NARROW_AT) < NARROW_AT:
            self._narrow(peer)

    def _narrow(self, peer: Peer) -> None:
        if peer not in self._ways.wide:
            return
        table = self.subscriptions.table
        del self._ways.wide[peer]
        table.reconsider((TRUE, *self._ways.overlaps.overlapping(peer)))
        if not self._ways.wide:
            table.remove(ITSELF, TRUE)
