"""`Shortened`: a hierarchy of proxies on any graph, with shortcuts between its branches.

A link that the tree does without is idle. Where many events come over the tree from a branch to
which there is such a link, a broker asks its other end for *copies* of what that one hears from
below (`AskShortcut`), and says what it wants there and below, as it says it to the broker above.
Copies come sooner. The tree carries every event as ever, so nothing depends on a shortcut: whatever
comes second is known by its number.

A shortcut is of one tree: it ends at both ends before ways change, and while they do there is none.
A link that comes into the tree is joined when both ends have ended what they had on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from msgspec import structs

from palio.matching.protocol import RowMask
from palio.model.filters import Filter
from palio.model.parcels import Parcel
from palio.routing.forwarding import Aim
from palio.routing.general import General
from palio.routing.graphs import ALL_NEW, NONE_NEW
from palio.routing.messages import Batch, Control, Settled
from palio.routing.plans import TreeLink
from palio.routing.protocol import IllegalMessage, Peer, SelectorFactory, Send, narrowed
from palio.routing.proxies import ITSELF, NO_OFFER, Proxies
from palio.routing.reference_selector import ReferenceSelector
from palio_studies.simulator.shortcuts import (
    ASK,
    END_SERVED,
    END_TAKEN,
    AskShortcut,
    Copies,
    EndShortcut,
    Price,
    Rates,
    Served,
    ShortcutControl,
    ways_between,
)

MOST_TAKEN: Final = 16
"""Shortcuts that bring copies to one broker."""

AGAIN_AFTER: Final = 12
"""So many looks later one that refused is asked again: a minute, as a rule."""

MOST_SERVED: Final = 64
"""Shortcuts by which one broker sends copies: of each event it is found out who of them wants it.
"""


class _Beside:
    """Where a wish may go (`Aim`): besides, to those at the other ends of shortcuts, if anybody
    here or below asks for it.
    """

    def __init__(self, ways: Aim, is_asked_for: Callable[[Filter], bool]) -> None:
        self.peers: dict[Peer, None] = {}
        self._ways = ways
        self._is_asked_for = is_asked_for

    def towards(self, filter: Filter) -> Iterator[Peer]:
        """See `Aim`."""
        if self.peers and self._is_asked_for(filter):
            yield from self.peers
        yield from self._ways.towards(filter)

    def forget(self, filter: Filter) -> None:
        """See `Aim`."""
        self._ways.forget(filter)


class _Proxy(Proxies):
    """A proxy that also tells peers in other branches what is wanted."""

    def _aim(self) -> Aim:
        ways = super()._aim()
        assert ways is not None
        self._beside = _Beside(ways, self._is_asked_for)
        return self._beside

    def _is_asked_for(self, filter: Filter) -> bool:
        return any(each not in (self._upwards.master, ITSELF) for each in self._askers(filter))

    def _is_sent_many(self, peer: Peer) -> bool:
        return peer not in self._beside.peers and super()._is_sent_many(peer)

    @property
    def wish_count(self) -> int:
        """How many wishes the master was told, as one at the end of a shortcut would be."""
        master = self._upwards.master
        return 0 if master is None else self.subscriptions.sent_count(master)

    def shorten(self, peer: Peer) -> list[Send]:
        """Tell a peer in another branch what is wanted here and below, from now on."""
        table = self.subscriptions.table
        self.subscriptions.add_peer(peer)
        self.subscriptions.add_neighbour(peer)
        self._waves.connect(peer)
        self._beside.peers[peer] = None
        table.reconsider(table.nodes)
        sends = self._flush(fresh=peer)
        waves, _ = self._waves.begin(ITSELF, NO_OFFER, [peer])
        return [
            Send(to, structs.replace(said, wave=waves[peer]))
            if to == peer and isinstance(said, Batch)
            else Send(to, said)
            for to, said in sends
        ]

    def lengthen(self, peer: Peer) -> list[Send]:
        """Tell it nothing more, and wait for no answer of it."""
        del self._beside.peers[peer]
        self.subscriptions.remove_peer(peer)
        return self._without_own(self._waves.release(peer))

    def answered(self, peer: Peer, message: Settled) -> list[Send]:
        """It has in force what it was told."""
        return self._without_own(self._waves.settle(peer, message))


class Shortened(General):
    """One broker of a hierarchy with shortcuts, if it has a price for them.

    >>> broker = Shortened("b1")
    >>> broker.look(0.0), broker.shortcuts
    ([], [])
    """

    def __init__(
        self,
        name: str,
        selector: SelectorFactory = ReferenceSelector,
        price: Price | None = None,
    ) -> None:
        self._proxy = _Proxy(name, selector)
        super().__init__(name, lambda _: self._proxy)
        self.price = price
        """What its shortcuts have to be worth; None if it has none, and serves none."""
        self._taken: dict[Peer, Copies] = {}
        self.served = Served(selector())
        self._rates = Rates()
        self._barred: dict[Peer, None] = {}
        self._refused: dict[Peer, int] = {}
        """Those who would not serve this broker, and for how many looks it does not ask again."""
        self._ruled_by = self._followed
        """The plan of the tree that the shortcuts are of."""
        self._is_stale = False
        """Whether a link came into use, or went, since."""

    @property
    def follows_sources(self) -> bool:  # type: ignore[override]
        """See `Router`."""
        return self.price is not None

    @property
    def shortcuts(self) -> list[str]:
        """The brokers from which events come straight."""
        return sorted(
            peer.name
            for peer, copies in self._taken.items()
            if copies.is_open and not copies.is_ending
        )

    def bar(self, peer: Peer) -> None:
        """With a neighbour that may not hear and bring everything there is no shortcut, until it
        is detached: what came by it would be less than what comes over the tree.
        """
        self._barred[peer] = None

    def look(self, now: float) -> list[Send]:
        """Time has passed: where a shortcut pays it begins, and where it does not it ends."""
        price = self.price
        if price is None:
            return []
        rates = self._rates.take(now, price.window_s)
        if rates is None or self._proxy.above is None or not self._is_whole():
            return []
        self._refused = {peer: left - 1 for peer, left in self._refused.items() if left > 1}
        worth = self._worth(rates)
        state = max(1, self._proxy.wish_count)
        sends = []
        for peer, copies in list(self._taken.items()):
            if not copies.is_ending and worth.get(peer, 0.0) < price.close_at * state:
                sends += self._end_taken(peer)
        for peer, skipped in worth.items():
            is_new = not any(peer in known for known in (self._taken, self._barred, self._refused))
            if skipped >= price.open_at * state and is_new and len(self._taken) < MOST_TAKEN:
                self._taken[peer] = Copies()
                sends += [Send(peer, ASK), *self._proxy.shorten(peer)]
        return sends

    def _worth(self, rates: Mapping[str, float]) -> dict[Peer, float]:
        """How many links events would skip in a second by each link that the tree does without. An
        event counts for the one that is nearest to its source.
        """
        graph, worth = self._states.graph, dict[Peer, float]()
        for _, rate, way in ways_between(self.name, rates, self.parents()):
            for place, name in enumerate(way[:-2]):
                weight = graph[self.name].get(name)
                if weight is None:
                    continue
                rest = way[place:]
                if weight < sum(graph[one].get(other, 0) for one, other in pairwise(rest)):
                    peer = Peer.broker(name)
                    worth[peer] = worth.get(peer, 0.0) + rate * (len(rest) - 2)
                    break
        return worth

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[Send]:
        """See `Router`."""
        return self._reviewed(super().attach(peer))

    def detach(self, peer: Peer) -> list[Send]:
        """See `Router`."""
        self._barred.pop(peer, None)
        self._refused.pop(peer, None)
        sends = []
        copies = self._taken.pop(peer, None)
        if copies is not None and not copies.is_ending:
            sends = self._proxy.lengthen(peer)
        if peer in self.served:
            self.served.drop(peer)
        self._is_stale = self._is_stale or (peer in self._links and self._links[peer].up)
        return self._reviewed(sends + super().detach(peer))

    def receive(self, sender: Peer, message: Control | ShortcutControl) -> list[Send]:
        """See `Router`."""
        link = self._links.get(sender)
        match message:
            case AskShortcut() | EndShortcut():
                sends = self._about_shortcut(sender, link, message)
            case Batch() if link is not None and sender in self.served and not link.up:
                sends = self.served.hear(sender, message)
                if self.served.wants_too_much(sender):
                    sends += self._end_served(sender)
            case Settled() if sender in self._taken:
                sends = self._answered(sender, message)
            case _:
                sends = super().receive(sender, message)
        return self._reviewed(sends)

    def _about_shortcut(
        self, sender: Peer, link: TreeLink | None, message: ShortcutControl
    ) -> list[Send]:
        if link is None:
            raise IllegalMessage(sender, f"{type(message).__name__} of one that is no neighbour")
        if isinstance(message, AskShortcut):
            return self._asked(sender, link)
        return self._ended(sender, link, asked=message.asked)

    def set_link_cost(self, peer: Peer, weight: int) -> list[Send]:
        """See `Router`."""
        return self._reviewed(super().set_link_cost(peer, weight))

    def uncork(self) -> list[Send]:
        """See `Router`."""
        return self._reviewed(super().uncork())

    def give_up(self) -> list[Send]:
        """See `Router`."""
        return self._reviewed(super().give_up())

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """See `Router`. A copy goes where it would go if it came from above."""
        copies, above = self._taken.get(sender), self._proxy.above
        if copies is None:
            return super().route(sender, parcel)
        is_over = copies.is_ending or above is None
        if is_over or not copies.accepts(parcel, self._numbers.last(parcel.publisher)):
            return {}
        new = self._numbers.news(parcel)
        if new is NONE_NEW or not new.any():
            return {}
        assert above is not None
        self._rates.note(parcel.source, int(new.sum()))
        found = self._proxy.route(above, parcel)
        return found if new is ALL_NEW else narrowed(found, new)

    def _route_new(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Copies go of what comes from below, and from clients here. What went round does not: it
        may be late.
        """
        found = super()._route_new(sender, parcel)
        if sender == self._proxy.above:
            self._rates.note(parcel.source, len(parcel))
        elif sender != self._self and len(self.served):
            found |= self.served.route(parcel)
        return found

    # --- shortcuts begin and end ---

    def _asked(self, sender: Peer, link: TreeLink) -> list[Send]:
        if sender in self.served:
            raise IllegalMessage(sender, "it asked for a shortcut twice")
        is_idle = not link.wanted and link.our_join is None
        is_welcome = self.price is not None and sender not in self._barred
        is_there_room = len(self.served) < MOST_SERVED
        is_fit = is_idle and self._is_whole() and self._is_apart(sender.name)
        if is_welcome and is_there_room and is_fit:
            self.served.begin(sender)
            return []
        self.served.refuse(sender)
        return [Send(sender, END_SERVED)]

    def _is_apart(self, name: str) -> bool:
        """Whether a broker is in another branch: neither above this one nor below it."""
        parents = self.parents()
        return any(True for _ in ways_between(self.name, {name: 1.0}, parents))

    def _answered(self, sender: Peer, message: Settled) -> list[Send]:
        copies = self._taken[sender]
        if copies.is_ending:
            return []
        copies.is_open = True
        return self._proxy.answered(sender, message)

    def _ended(self, sender: Peer, link: TreeLink, *, asked: bool) -> list[Send]:
        """The other end has ended a shortcut, or answers that this one has."""
        sends: list[Send] = []
        if asked and sender in self.served:
            if not self.served.is_ending(sender):
                sends = [Send(sender, END_SERVED)]
            self.served.drop(sender)
        elif not asked and sender in self._taken:
            copies = self._taken[sender]
            if not copies.is_ending:
                sends = self._end_taken(sender)
            if not copies.is_open:
                self._refused[sender] = AGAIN_AFTER
            del self._taken[sender]
        else:
            raise IllegalMessage(sender, "it ended a shortcut that is none")
        return sends + self._settle(sender, link)

    def _end_taken(self, peer: Peer) -> list[Send]:
        self._taken[peer].is_ending = True
        return [Send(peer, END_TAKEN), *self._proxy.lengthen(peer)]

    def _end_served(self, peer: Peer) -> list[Send]:
        self.served.end(peer)
        return [Send(peer, END_SERVED)]

    def _end_all(self) -> list[Send]:
        """All that have not ended yet."""
        sends: list[Send] = []
        for peer in list(self._taken):
            if not self._taken[peer].is_ending:
                sends += self._end_taken(peer)
        for peer in list(self.served):
            if not self.served.is_ending(peer):
                sends += self._end_served(peer)
        return sends

    def _reviewed(self, sends: list[Send]) -> list[Send]:
        """After what may have changed ways: then shortcuts end."""
        if self._followed is self._ruled_by and not (self._is_stale or self.is_changing):
            return sends
        self._ruled_by, self._is_stale = self._followed, False
        return sends + self._end_all()

    # --- links of the tree ---

    def _settle(self, peer: Peer, link: TreeLink) -> list[Send]:
        """A link is joined only once no shortcut is left on it."""
        if link.wanted and link.our_join is None and (peer in self._taken or peer in self.served):
            self._is_stale = True
            return []
        return super()._settle(peer, link)

    def _up(self, peer: Peer, link: TreeLink) -> list[Send]:
        self._is_stale = True
        return super()._up(peer, link)

    def _down(self, peer: Peer) -> list[Send]:
        self._is_stale = True
        return super()._down(peer)
