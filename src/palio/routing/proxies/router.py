"""The proxy hierarchy of Yu, Estrin and Govindan as a `Router` (proxy IV).

Theory of operation. Each proxy but the root has a parent, and any number of children. For every
event type it knows of, its table says where sources are (IPL) and where receivers are, with what
they want (OPL). Registrations set up source state just far enough: a proxy knows the types of its
own subtree, and of these whether its parent leads to further sources. Subscriptions go towards
sources, or up by default. Events follow the OPLs.

A message changes the table (`_apply`); then `_settle` compares what each neighbour must know
(`TypeEntry`) with what it was told, and says the difference. Whatever the parent says of a type is
said in view of one registration or subscription of the child, and carries its number. A child
that withdraws one forgets at once all that was said in view of it; the parent does the same when
it hears of it; and what was on its way meanwhile is stale by its number. So both ends agree,
whatever crosses.

Time is told by `advance`, and `wake` says when it next matters. Heartbeats between proxies, failure
detection and repair have their place outside: they `detach` and `attach`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from palio.errors import InvalidInput
from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.model.row_parcels import RowParcel
from palio.routing.protocol import IllegalMessage, Peer, Role, SelectorFactory
from palio.routing.proxies.entry import TypeEntry
from palio.routing.proxies.legal import check
from palio.routing.proxies.merging import demand_of, says_the_same, wishes_of
from palio.routing.proxies.messages import (
    MAX_BUNDLE,
    Alive,
    Bundle,
    Dereg,
    Drop,
    Encapsulated,
    EventType,
    Merged,
    ProxyControl,
    Reg,
    Sub,
    Unsub,
    Wish,
    type_of,
)
from palio.routing.reference_selector import ReferenceSelector

__all__ = ["Proxies", "ProxySend", "TableLine"]


class ProxySend(NamedTuple):
    """An instruction to the shell: deliver a message to a peer, in order with others to it."""

    to: Peer
    message: ProxyControl


class TableLine(NamedTuple):
    """A line of the event routing table as the paper prints it: (E, IPL, OPL)."""

    type: EventType
    incoming: tuple[Peer, ...]
    outgoing: dict[Peer, tuple[Wish, ...]]


class Proxies:
    """One proxy of the hierarchy.

    A source that is silent for `silence` seconds is de-registered; None for never.

    >>> import palio
    >>> root = Proxies("P1", root=True)
    >>> source, receiver = Peer.client("S"), Peer.client("R")
    >>> _ = root.attach(source), root.attach(receiver)
    >>> _ = root.receive(source, Reg(("price",)))
    >>> _ = root.receive(receiver, Sub(("price",), palio.parse("price < 10")))
    >>> root.route(source, RowParcel("S", [{"price": 9}, {"price": 11}]))
    {Peer(role=<Role.CLIENT: 0>, name='R'): array([ True, False])}
    """

    def __init__(
        self,
        name: str,
        selector: SelectorFactory = ReferenceSelector,
        *,
        root: bool = False,
        silence: float | None = None,
    ) -> None:
        self.name = name
        self.root = root
        self.silence = silence
        self.parent: Peer | None = None
        self._selector = selector
        self._entries: dict[EventType, TypeEntry] = {}
        self._peers: dict[Peer, dict[EventType, None]] = {}
        self._touched: dict[EventType, None] = {}
        self._outbox: dict[Peer, list[Any]] = {}
        self._number = 0
        self._now = 0.0
        self._heard: dict[Peer, float] = {}
        self._watched: set[Peer] = set()
        self._alarms: list[tuple[float, int, Peer, EventType | None]] = []
        self._alarm_count = 0

    @property
    def peers(self) -> list[Peer]:
        """All attached peers, in the order they came."""
        return list(self._peers)

    def table(self) -> list[TableLine]:
        """The event routing table, in the order of the types' names."""
        lines = []
        for kind, entry in sorted(self._entries.items()):
            incoming = list(entry.incoming)
            if entry.presumed and self.parent is not None:
                incoming.insert(0, self.parent)
            outgoing = {peer: wishes_of(each.demand) for peer, each in entry.outgoing.items()}
            if incoming or outgoing:
                lines.append(TableLine(kind, tuple(incoming), outgoing))
        return lines

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[ProxySend]:
        """See `Router`. A parent is told what it must know of this subtree."""
        if peer in self._peers:
            raise ValueError(f"{peer} is attached already; detach it first")
        if peer.role is Role.MASTER:
            if self.root or self.parent is not None:
                reason = "is the root" if self.root else f"has {self.parent} above it"
                raise InvalidInput(f"proxy {self.name} {reason}; {peer} cannot be its parent")
            self.parent = peer
            self._touched.update(dict.fromkeys(self._entries))
        self._peers[peer] = {}
        return self._said()

    def detach(self, peer: Peer) -> list[ProxySend]:
        """See `Router`. Whatever led towards the peer is withdrawn from the others (IV-F)."""
        if peer not in self._peers:
            raise ValueError(f"{peer} is not attached")
        types = self._peers.pop(peer)
        self._heard.pop(peer, None)
        self._outbox.pop(peer, None)
        if peer == self.parent:
            self.parent = None
            types = dict.fromkeys(self._entries)
        for kind in types:
            entry = self._entries.get(kind)
            if entry is not None and entry.forget(peer):
                self._touched[kind] = None
        return self._said()

    def receive(self, sender: Peer, message: ProxyControl) -> list[ProxySend]:
        """See `Router`."""
        if sender not in self._peers:
            raise IllegalMessage(sender, "it is not attached")
        messages = message.messages if isinstance(message, Bundle) else (message,)
        check(sender, messages, self._number)
        self._hear(sender)
        for each in messages:
            self._apply(sender, each)
        return self._said()

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """See `Router`. What a count that ran out makes it say is fetched with `advance`."""
        if sender not in self._peers:
            raise IllegalMessage(sender, "it is not attached")
        self._hear(sender)
        found: dict[Peer, RowMask] = {}
        for kind, rows in _by_type(parcel):
            entry = self._entries.get(kind)
            if entry is None:
                continue
            part = parcel if rows is None else parcel.select(rows)
            masks, ran_out = entry.forward(sender, part)
            if ran_out:
                self._touched[kind] = None
            for peer, mask in masks.items():
                if rows is None:
                    found[peer] = mask
                else:
                    whole = found.setdefault(peer, np.zeros(len(parcel), np.bool_))
                    whole[np.flatnonzero(rows)[mask]] = True
        self._settle()
        return found

    def advance(self, now: float) -> list[ProxySend]:
        """It is `now`: end what is due and say what is left to say. Time never runs backwards."""
        self._now = max(now, self._now)
        while self._alarms and self._alarms[0][0] <= self._now:
            _, _, peer, kind = heappop(self._alarms)
            if kind is None:
                self._check_silence(peer)
            else:
                self._check_lifetime(peer, kind)
        return self._said()

    @property
    def wake(self) -> float | None:
        """When `advance` must be called next, if nothing happens before; None for never."""
        if self._outbox:
            return self._now
        return self._alarms[0][0] if self._alarms else None

    # --- what a message changes ---

    def _apply(self, sender: Peer, message: ProxyControl) -> None:
        if isinstance(message, Encapsulated):
            self._forward_encapsulated(sender, message)
        if isinstance(message, Encapsulated | Alive | Bundle):
            return
        self._touched[message.event_type] = None
        entry = self._entries.get(message.event_type)
        if entry is None:
            entry = self._entries[message.event_type] = TypeEntry(self._selector)
        entry.peers[sender] = None
        self._peers[sender][message.event_type] = None
        if sender == self.parent:
            self._apply_from_parent(sender, entry, message)
        else:
            self._apply_from_below(sender, entry, message)

    def _apply_from_below(self, sender: Peer, entry: TypeEntry, message: ProxyControl) -> None:
        match message:
            case Reg(number=number):
                entry.incoming[sender] = number
                self._watch(sender)
            case Dereg():
                self._deregister(sender, entry)
            case Merged(wishes=wishes, number=number):
                entry.want(sender, demand_of(wishes), number)
            case Sub(kind, specification, lifetime, count, number):
                demand = {(lifetime is not None, specification): count}
                member = entry.want(sender, demand, number)
                if lifetime is not None and lifetime < math.inf:
                    member.deadline = self._now + lifetime
                    self._alarm(member.deadline, sender, kind)
            case Unsub():
                entry.unwant(sender)

    def _apply_from_parent(self, parent: Peer, entry: TypeEntry, message: ProxyControl) -> None:
        if isinstance(message, Drop):
            if parent in entry.subscribed and message.number == entry.subscription:
                self._drop(parent, entry, message.event_type)
            return
        if entry.registered.get(parent) != getattr(message, "number", None):
            return  # said in view of a registration that was withdrawn meanwhile
        match message:
            case Reg(number=number):
                entry.incoming[parent] = number
            case Dereg():
                entry.incoming.pop(parent, None)
            case Merged(wishes=wishes, number=number):
                entry.want(parent, demand_of(wishes), number)
            case Unsub():
                entry.unwant(parent)

    def _deregister(self, source: Peer, entry: TypeEntry) -> None:
        """A direction has no source any more, so it need not know what others offer or want."""
        if entry.incoming.pop(source, None) is not None:
            entry.registered.pop(source, None)
            entry.subscribed.pop(source, None)

    def _drop(self, parent: Peer, entry: TypeEntry, kind: EventType) -> None:
        """The root knew no source (IV-C.2). If there is one here, it appeared since."""
        told = entry.subscribed[parent]
        kept = {key: count for key, count in told.items() if key[0]}
        if kept:
            entry.subscribed[parent] = kept
        else:
            del entry.subscribed[parent]
        entry.presumed = False
        if not entry.has_source(parent):
            self._send_back(kind, entry)

    def _send_back(self, kind: EventType, entry: TypeEntry) -> None:
        for peer, number in entry.drop_ordinary().items():
            self._say(peer, Drop(kind, number))

    def _forward_encapsulated(self, sender: Peer, message: Encapsulated) -> None:
        """IV-D. Only where there is a source is it known what others above want; else go up."""
        kind = type_of(message.event)
        entry = self._entries.get(kind)
        if entry is not None:
            parcel = RowParcel(message.publisher, [message.event], message.seq)
            masks, ran_out = entry.forward(sender, parcel)
            for peer in masks:
                self._say(peer, message)
            if ran_out:
                self._touched[kind] = None
        parent = self.parent
        if parent is None or sender == parent or (entry and entry.has_source(parent)):
            return
        self._say(parent, message)

    # --- what follows from a change ---

    def _settle(self) -> None:
        """Tell every neighbour what it must know of the touched types and does not."""
        touched, self._touched = self._touched, {}
        for kind in touched:
            entry = self._entries.get(kind)
            if entry is None:
                continue
            if self.root and not entry.incoming:
                self._send_back(kind, entry)
            self._settle_sources(kind, entry)
            entry.presume(self.parent)
            self._settle_receivers(kind, entry)
            entry.settled()
            if entry.is_idle:
                del self._entries[kind]
                for peer in entry.peers:
                    del self._peers[peer][kind]

    def _neighbours(self, entry: TypeEntry) -> Iterator[Peer]:
        """Those who may have to be told: the parent, and the children with a source."""
        if self.parent is not None:
            yield self.parent
        for peer in list(entry.incoming):
            if peer.role is Role.BROKER:
                yield peer

    def _settle_sources(self, kind: EventType, entry: TypeEntry) -> None:
        for peer in self._neighbours(entry):
            leads = entry.leads(peer, self.parent)
            if leads and peer not in entry.registered:
                number = self._next() if peer == self.parent else entry.incoming[peer]
                entry.registered[peer] = number
                self._say(peer, Reg(kind, number))
            elif not leads and peer in entry.registered:
                self._say(peer, Dereg(kind, entry.registered.pop(peer)))
                if peer == self.parent:
                    entry.incoming.pop(peer, None)
                    entry.unwant(peer)

    def _settle_receivers(self, kind: EventType, entry: TypeEntry) -> None:
        for peer in self._neighbours(entry):
            wanted = entry.wanted_of(peer, self.parent)
            told = entry.subscribed.get(peer, {})
            if says_the_same(told, wanted):
                continue
            number = entry.incoming.get(peer, 0)
            if peer == self.parent:
                number = entry.subscription = self._next()
            if wanted:
                entry.subscribed[peer] = wanted
                self._say(peer, Merged(kind, wishes_of(wanted), number))
            else:
                del entry.subscribed[peer]
                self._say(peer, Unsub(kind, number))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _say(self, peer: Peer, message: ProxyControl) -> None:
        self._outbox.setdefault(peer, []).append(message)

    def _said(self) -> list[ProxySend]:
        """The messages to send, several to one peer as a bundle."""
        self._settle()
        outbox, self._outbox = self._outbox, {}
        sends = []
        for peer, messages in outbox.items():
            for start in range(0, len(messages), MAX_BUNDLE):
                part = messages[start : start + MAX_BUNDLE]
                sends.append(ProxySend(peer, part[0] if len(part) == 1 else Bundle(tuple(part))))
        return sends

    # --- time ---

    def _alarm(self, due: float, peer: Peer, kind: EventType | None) -> None:
        self._alarm_count += 1
        heappush(self._alarms, (due, self._alarm_count, peer, kind))

    def _hear(self, peer: Peer) -> None:
        if peer in self._heard:
            self._heard[peer] = self._now

    def _watch(self, source: Peer) -> None:
        """From its first registration on a source must be heard."""
        if self.silence is None or not source.is_client:
            return
        self._heard[source] = self._now
        if source not in self._watched:
            self._watched.add(source)
            self._alarm(self._now + self.silence, source, None)

    def _check_silence(self, source: Peer) -> None:
        heard = self._heard.get(source)
        if heard is not None and self.silence is not None and heard + self.silence > self._now:
            self._alarm(heard + self.silence, source, None)
            return
        self._watched.discard(source)
        if self._heard.pop(source, None) is None:
            return
        for kind in self._peers[source]:
            entry = self._entries.get(kind)
            if entry is not None and source in entry.incoming:
                self._deregister(source, entry)
                self._touched[kind] = None
                self._say(source, Dereg(kind))

    def _check_lifetime(self, receiver: Peer, kind: EventType) -> None:
        entry = self._entries.get(kind)
        member = None if entry is None else entry.outgoing.get(receiver)
        if entry is None or member is None or member.deadline is None:
            return
        if member.deadline <= self._now:
            entry.lapse(receiver)
            self._touched[kind] = None


def _by_type(parcel: Parcel) -> list[tuple[EventType, RowMask | None]]:
    """The types that occur among some events, and the rows of each; None for all of them."""
    if len(parcel) == 1:
        return [(type_of(parcel.rows[0]), None)]
    rows: dict[EventType, list[int]] = {}
    for row, event in enumerate(parcel.rows):
        rows.setdefault(type_of(event), []).append(row)
    if len(rows) == 1:
        return [(kind, None) for kind in rows]
    found: list[tuple[EventType, RowMask | None]] = []
    for kind, places in rows.items():
        mask = np.zeros(len(parcel), np.bool_)
        mask[places] = True
        found.append((kind, mask))
    return found
