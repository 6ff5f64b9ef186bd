"""`SourceTrees`: routing on any graph (siena 4.3, 5) by a tree for every source.

This is the alternative to `general`, which uses one spanning tree. Every broker has all link
states, so it can compute every broker's tree of shortest paths; of equal paths, the one with the
lesser name. It also has every broker's *summary*: the subscriptions of its clients that no other
one there covers, flooded under the origin's name and version.

- *Reverse path.* A broker accepts an event published at `s` only from its upstream in tree(s).
- It forwards the event to a child `c` if some origin below `c` in tree(s) subscribed to it.
- Covering prunes within an origin, never across origins: a covering subscription of another origin
  may lie in another direction.

Compared with one spanning tree, events take shortest paths, no broker or link carries all events,
and as in `flooded` the broker of a publisher can name all destinations. The cost is state: each
broker keeps the summaries of all origins, and each change of a summary crosses every link.

While trees change, an event may be lost. None is delivered twice or out of order: a broker drops
every event whose number is not greater than the publisher's last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from palio.matching.protocol import RowMask
from palio.model.parcels import Parcel
from palio.routing.flood_tables import FloodTables
from palio.routing.graphs import (
    ALL_NEW,
    MAX_ORIGINS,
    MAX_VERSION,
    NONE_NEW,
    LastNumbers,
    LinkNews,
    LinkStates,
)
from palio.routing.messages import Batch, Control, Flood, LinkState, LinkTable, Request, Settled
from palio.routing.protocol import (
    Addressing,
    Destined,
    IllegalMessage,
    Peer,
    PlainRouter,
    SelectorFactory,
    Send,
    narrowed,
)
from palio.routing.reference_selector import ReferenceSelector
from palio.routing.trees import is_notable_change, shortest_paths

MAX_PARTIAL: Final = 1_000_000
"""The most requests in incomplete floods of one neighbour, as they are kept in memory."""

MOST_COMPARED: Final = 20_000
"""The most brokers, in all trees together, for which new trees are compared with the old ones: it
takes about 10 ms. Above that, the trees count as changed."""


class _PartialFlood(NamedTuple):
    """The chunks of a flood received so far."""

    version: int
    fresh: bool
    requests: list[Request]


class _PartialFloods:
    """Floods of one neighbour that arrive in several chunks."""

    def __init__(self) -> None:
        self._partial: dict[str, _PartialFlood] = {}  # by origin

    def assemble(self, sender: Peer, flood: Flood) -> Flood | None:
        """Add a chunk; return the whole flood if it was the last one, else None."""
        partial = None if flood.fresh else self._partial.pop(flood.origin, None)
        if partial is None and not flood.more:
            self._partial.pop(flood.origin, None)
            return flood
        if partial is None:
            partial = _PartialFlood(flood.version, flood.fresh, [])
        elif partial.version != flood.version:
            raise IllegalMessage(
                sender, f"a part of version {flood.version}, not {partial.version}"
            )
        partial.requests.extend(flood.requests)
        if flood.more:
            self._partial[flood.origin] = partial
            if sum(len(other.requests) for other in self._partial.values()) > MAX_PARTIAL:
                self._partial.clear()
                raise IllegalMessage(
                    sender, f"more than {MAX_PARTIAL} requests (MAX_PARTIAL) in incomplete floods"
                )
            return None
        requests = tuple(partial.requests)
        return Flood(flood.origin, requests, partial.fresh, flood.wave, flood.version)


class _DeferredFlood(NamedTuple):
    """A flood that is yet to be forwarded, except to its sender."""

    flood: Flood
    sender: Peer | None
    wave: int | None


class _Wave:
    """A wave in flight: its requester, and the neighbours that have yet to answer."""

    __slots__ = ("is_abandoned", "missing", "requester", "unreached", "wave")

    def __init__(self, requester: Peer, wave: int, neighbours: list[Peer]) -> None:
        self.requester = requester
        self.wave = wave
        self.missing = dict.fromkeys(neighbours)
        self.unreached: set[str] = set()
        self.is_abandoned = False
        """True if the requester has disconnected."""

    def answer(self) -> Send:
        return Send(self.requester, Settled(self.wave, tuple(sorted(self.unreached))))


class _Waves:
    """The waves that this broker has forwarded, by its own numbers."""

    def __init__(self) -> None:
        self._open: dict[int, _Wave] = {}
        self._next = 0

    def begin(self, requester: Peer, wave: int, others: list[Peer]) -> tuple[int, list[Send]]:
        """Open a wave to other neighbours; return the number under which it is forwarded, and the
        answer if there are no others.
        """
        number, opened = self._next, _Wave(requester, wave, others)
        self._next += 1
        if not others:
            return number, [opened.answer()]
        self._open[number] = opened
        return number, []

    def close(self, sender: Peer, message: Settled) -> list[Send]:
        """Handle the answer of a neighbour: this version has reached it and all brokers beyond."""
        pending = self._open.get(message.wave)
        if pending is None or sender not in pending.missing:
            raise IllegalMessage(sender, f"wave {message.wave} is not open there")
        return self._close(message.wave, sender, message.unreached)

    def forget(self, peer: Peer) -> list[Send]:
        """Remove a peer: its own waves are abandoned, and the others count it as unreached."""
        answers: list[Send] = []
        for number, pending in list(self._open.items()):
            if pending.requester == peer:
                pending.is_abandoned = True  # kept, as answers in flight are legal
            elif peer in pending.missing:
                answers += self._close(number, peer, (peer.name,))
        return answers

    def _close(self, number: int, peer: Peer, unreached: tuple[str, ...]) -> list[Send]:
        pending = self._open[number]
        del pending.missing[peer]
        pending.unreached.update(unreached)
        if pending.missing:
            return []
        del self._open[number]
        return [] if pending.is_abandoned else [pending.answer()]


class _Tree:
    """The tree of one source as one broker sees it."""

    __slots__ = ("hops", "upstream")

    def __init__(self, parents: dict[str, str], name: str) -> None:
        self.upstream = parents.get(name)
        """The neighbour from which events arrive; the broker itself at the source."""
        self.hops: dict[str, str] = {}
        """By broker below this one, the next hop to it."""
        # `parents` is in order of distance, so a parent's hop is known before its children's.
        for broker, parent in parents.items():
            if parent == name and broker != name:
                self.hops[broker] = broker
            elif parent in self.hops:
                self.hops[broker] = self.hops[parent]

    def differs_from(self, later: _Tree) -> bool:
        """Return whether events of this tree take other paths in a later one.

        Brokers that only joined do not count: no event was on its way to them.
        """
        if self.upstream is not None and self.upstream != later.upstream:
            return True
        return any(later.hops.get(broker) != hop for broker, hop in self.hops.items())


class SourceTrees(PlainRouter, Addressing):
    """One broker of any graph.

    >>> broker = SourceTrees("b1")
    >>> state, flood = (send.message for send in broker.attach(Peer.broker("b2")))
    >>> state.neighbours, flood
    (('b2',), Flood(origin='b1', requests=(), fresh=True, wave=None, version=0, more=False))
    """

    follows_sources = True

    def __init__(self, name: str, selector: SelectorFactory = ReferenceSelector) -> None:
        self.name = name
        self._tables = FloodTables(name, selector)
        self._versions = {name: 0}
        self._clients: dict[Peer, None] = {}
        self._links: dict[Peer, _PartialFloods] = {}
        self._link_costs: dict[Peer, int] = {}  # kept while a link is down
        self._states = LinkStates(name)
        self._trees: dict[str, _Tree] = {}
        self._numbers = LastNumbers()
        self._waves = _Waves()
        self.routing_version = 0
        self._is_corked = False
        # To be sent after pending link states, in this order: answers, then floods.
        self._deferred_floods: list[_DeferredFlood] = []
        self._deferred_answers: list[Send] = []

    @property
    def peers(self) -> list[Peer]:
        """All attached peers: clients, then neighbours."""
        return [*self._clients, *self._links]

    def begin(self, version: int) -> None:
        """Start versions from this number, to supersede those of earlier incarnations.

        It may be the time in microseconds, or any number that grows faster than changes are made.
        """
        self._versions = {self.name: version}

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent all link states and all summaries."""
        if peer in self._clients or peer in self._links:
            raise ValueError(f"{peer} is attached already; detach it first")
        if peer.is_client:
            self._clients[peer] = None
            self._tables.local.add_peer(peer)
            return []
        self._links[peer] = _PartialFloods()
        states = [Send(peer, state) for state in self._states.others()]
        summaries = [Send(peer, self._summary(origin)) for origin in self._versions]
        # Link states first: a summary is of no use before there are paths to its origin.
        return states + self._links_changed() + summaries

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that has disconnected."""
        if peer in self._clients:
            del self._clients[peer]
            self._tables.local.remove_peer(peer)
            return self._flood_own() + self._forget_waves(peer)
        if peer not in self._links:
            raise ValueError(f"{peer} is not attached")
        del self._links[peer]
        return self._links_changed() + self._forget_waves(peer)

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Handle a message of a peer."""
        if sender not in self._clients and sender not in self._links:
            raise IllegalMessage(sender, "it is not attached")
        match message:
            case Batch() if sender.is_client:
                self._tables.apply_batch(sender, message)
                return self._flood_own(sender, message.wave)
            case LinkState() if not sender.is_client:
                return self._learn(sender, (message,))
            case LinkTable(states) if not sender.is_client:
                return self._learn(sender, states)
            case Flood() if not sender.is_client:
                return self._receive_flood(sender, message)
            case Settled() if not sender.is_client:
                return self._answer_waves(self._waves.close(sender, message))
        raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the destinations of events; duplicates of earlier events have none."""
        source = self.name if sender.is_client else parcel.source
        # A source without link states has no tree; one that a peer invented must not make one.
        tree = self._tree(source) if source in self._states.known else None
        if tree is None or (not sender.is_client and tree.upstream != sender.name):
            return {}
        # After the upstream check: an event from a wrong link must not make the same event from the
        # right link a duplicate.
        new = self._numbers.unseen(parcel)
        if new is NONE_NEW or not new.any():
            return {}
        routes = self._tables.clients(parcel)
        for name, mask in self._brokers(parcel, tree).items():
            hop = Peer.broker(tree.hops[name])
            routes[hop] = routes[hop] | mask if hop in routes else mask
        routes.pop(sender, None)
        return _narrowed(routes, new)

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that want addressed events; drop duplicates, as `route` does."""
        new = self._numbers.unseen(parcel)
        return {} if new is NONE_NEW else _narrowed(self._tables.clients(parcel), new)

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Name the brokers and clients that want events; drop duplicates, as `route` does."""
        new = self._numbers.unseen(parcel)
        if new is NONE_NEW or not new.any():
            return Destined({}, {})
        clients = self._tables.clients(parcel)
        clients.pop(sender, None)
        brokers = self._brokers(parcel, self._tree(self.name))
        if new is not ALL_NEW:
            brokers = {name: mask & new for name, mask in brokers.items() if (mask & new).any()}
        return Destined(_narrowed(clients, new), brokers)

    def hop(self, source: str, broker: str) -> str | None:
        """Return the next neighbour on the path to a broker."""
        if source not in self._states.known and source != self.name:
            return None
        return self._tree(source).hops.get(broker)

    def _brokers(self, parcel: Parcel, tree: _Tree) -> dict[str, RowMask]:
        """Select the brokers below this one in a tree that want some events."""
        masks = self._tables.brokers(parcel)
        return {name: mask for name, mask in masks.items() if name in tree.hops}

    # --- trees ---

    def unsettle(self) -> None:
        """Do nothing: waves go to all neighbours anyway."""

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set the cost of the link to a neighbour."""
        if not is_notable_change(self._link_costs.get(peer, 1), cost):
            return []
        self._link_costs[peer] = cost
        return self._links_changed() if peer in self._links else []

    def _tree(self, source: str) -> _Tree:
        """Return the tree of a source; trees of brokers that never publish are never computed."""
        tree = self._trees.get(source)
        if tree is None:
            paths = shortest_paths(self._states.graph, source)
            tree = self._trees[source] = _Tree(paths.parents, self.name)
        return tree

    def _rebuild_trees(self) -> None:
        """Drop all trees after links have changed; increment `routing_version` if paths have.

        An unneeded increment only makes nodes compute unchanged paths once more. So the old and new
        trees are not compared where that would take long.
        """
        old, self._trees = self._trees, {}
        are_too_many = len(old) * len(self._states.known) > MOST_COMPARED
        if old and (
            are_too_many
            or any(tree.differs_from(self._tree(source)) for source, tree in old.items())
        ):
            self.routing_version += 1

    def _links_changed(self) -> list[Send]:
        """Report a change of this broker's links."""
        self._states.renew({peer.name: self._link_costs.get(peer, 1) for peer in self._links})
        return self._report_links()

    def _learn(self, sender: Peer, states: Iterable[LinkState]) -> list[Send]:
        verdicts = {self._states.learn(state, sender) for state in states}
        if LinkNews.MINE in verdicts:
            return self._links_changed()
        return self._report_links() if verdicts != {LinkNews.OLD} else []

    def _report_links(self) -> list[Send]:
        """Recompute trees, and flood new link states, at once or at `uncork`."""
        self._rebuild_trees()
        return [] if self._is_corked else self.uncork()

    # --- pending changes ---

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self._is_corked = True

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links are pending until `uncork`."""
        return self._states.has_news

    def uncork(self) -> list[Send]:
        """Flood changes of links, then the deferred answers and floods.

        Waves and their answers follow the link states, so that every broker that a wave has reached
        also has the new paths.
        """
        news = self._states.news(self._links)
        floods, self._deferred_floods = self._deferred_floods, []
        answers, self._deferred_answers = self._deferred_answers, []
        return news + answers + [send for flood in floods for send in self._flood(*flood)]

    # --- summaries ---

    def _summary(self, origin: str) -> Flood:
        requests = self._tables.current(origin)
        return Flood(origin, requests, fresh=True, version=self._versions[origin])

    def _flood_own(self, requester: Peer | None = None, wave: int | None = None) -> list[Send]:
        """Flood the changes of this broker's summary, or an empty flood if there is only a wave."""
        requests = self._tables.take_changes()
        if not requests and wave is None:
            return []
        self._versions[self.name] += 1
        flood = Flood(self.name, requests, version=self._versions[self.name])
        return self._flood(flood, requester, wave)

    def _receive_flood(self, sender: Peer, flood: Flood) -> list[Send]:
        """Apply another origin's summary, or a change of it, and forward it."""
        origin = flood.origin
        version = self._versions.get(origin)
        if origin == self.name or not self._is_news(flood, version):
            # The flood has arrived by another path before. The wave on that path waits for the
            # brokers beyond this one, so this wave need not.
            answers = [] if flood.wave is None else [Send(sender, Settled(flood.wave))]
            return answers + self._supersede(flood)
        whole = self._links[sender].assemble(sender, flood)
        if whole is None:
            return []
        flood = whole
        # A gap is illegal: links keep order, and brokers forward an origin's versions in order.
        if version is not None and not flood.fresh and flood.version - 1 != version:
            raise IllegalMessage(sender, f"version {flood.version} of {origin} follows {version}")
        self._tables.learn(sender, flood)
        self._versions[origin] = flood.version
        return self._flood(flood, sender, flood.wave)

    def _is_news(self, flood: Flood, version: int | None) -> bool:
        """Return whether a flood is newer than the version here, and within limits.

        The limits keep a peer from inventing many origins, or a version that no broker can
        supersede.
        """
        if version is None:
            return flood.version < MAX_VERSION and len(self._versions) < MAX_ORIGINS
        return version < flood.version < MAX_VERSION

    def _supersede(self, flood: Flood) -> list[Send]:
        """Supersede a summary of an earlier incarnation of this broker, whose clock was ahead."""
        version = self._versions[self.name]
        if flood.origin != self.name or not version < flood.version < MAX_VERSION - 1:
            return []
        self._versions[self.name] = flood.version + 1
        return [Send(peer, self._summary(self.name)) for peer in self._links]

    def _flood(self, flood: Flood, sender: Peer | None, wave: int | None) -> list[Send]:
        """Forward a flood to all neighbours but its sender.

        A wave follows pending link states, and later floods follow that wave. So the brokers that a
        wave reaches have the paths that this one has.
        """
        if self._deferred_floods or (wave is not None and self.has_pending_updates):
            self._deferred_floods.append(_DeferredFlood(flood, sender, wave))
            return []
        others = [peer for peer in self._links if peer != sender]
        # Each broker numbers the waves that it forwards, as waves of two neighbours may have the
        # same number.
        number: int | None = None
        answers: list[Send] = []
        if wave is not None and sender is not None:
            number, answers = self._waves.begin(sender, wave, others)
        forwarded = Flood(flood.origin, flood.requests, flood.fresh, number, flood.version)
        return [Send(peer, forwarded) for peer in others] + answers

    # --- waves ---

    def _answer_waves(self, answers: list[Send]) -> list[Send]:
        """Answer waves, after pending link states."""
        if self.has_pending_updates:
            self._deferred_answers += answers
            return []
        return answers

    def _forget_waves(self, peer: Peer) -> list[Send]:
        """Remove a disconnected peer from all waves."""
        self._deferred_answers = [send for send in self._deferred_answers if send.to != peer]
        self._deferred_floods = [
            _DeferredFlood(deferred.flood, None, None) if deferred.sender == peer else deferred
            for deferred in self._deferred_floods
        ]
        return self._answer_waves(self._waves.forget(peer))


def _narrowed(routes: dict[Peer, RowMask], new: RowMask) -> dict[Peer, RowMask]:
    """Restrict routes to new events."""
    return routes if new is ALL_NEW or new.all() else narrowed(routes, new)
