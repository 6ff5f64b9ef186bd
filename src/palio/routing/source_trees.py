"""Any graph (siena 4.3, 5): a tree for every source; events take shortest paths.

The other sound design for graphs beside `general`. Every broker knows all link states, and so every
broker's tree: shortest ways from it, ties to the lesser name. It also knows every broker's
*summary*, the roots of what that one's own clients ask for, flooded under the origin's name and
version. An event published at `s` is accepted from the neighbour before this broker in tree(s) only
(reverse path) and continues to a child `c` if some origin below `c` in tree(s) asks for it.
Covering prunes within an origin, never across: what hides one origin's subscription may lie in
another direction.

Against one spanning tree: no reroutes, no broker or link that all events must cross, and as in
`flooded` the broker of a publisher can name all destinations. The price is state, the summaries of
all origins everywhere, and a summary's change crosses every link.

While trees change, an event may be lost, but a publisher's numbers must grow, so none is delivered
twice or out of order.
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

MAX_BEGUN: Final = 1_000_000
"""Requests that a neighbour has begun to tell, and not yet told to the end."""

MOST_COMPARED: Final = 20_000
"""Trees are compared with those before as long as all have so many brokers together: about 10 ms.
Of more they are taken to be others.
"""


class _Begun(NamedTuple):
    """The parts of a flood that have come so far."""

    version: int
    fresh: bool
    requests: list[Request]


class _Parts:
    """Floods that come in several parts, by origin, from one neighbour."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}

    def put_together(self, sender: Peer, flood: Flood) -> Flood | None:
        """A flood with the parts that came before it; None as long as more are to come."""
        begun = self._begun
        before = None if flood.fresh else begun.pop(flood.origin, None)
        if before is None and not flood.more:
            begun.pop(flood.origin, None)
            return flood
        if before is None:
            before = _Begun(flood.version, flood.fresh, [])
        elif before.version != flood.version:
            raise IllegalMessage(sender, f"a part of version {flood.version}, not {before.version}")
        before.requests.extend(flood.requests)
        if flood.more:
            begun[flood.origin] = before
            if sum(len(each.requests) for each in begun.values()) > MAX_BEGUN:
                begun.clear()
                raise IllegalMessage(sender, f"more than {MAX_BEGUN} requests (MAX_BEGUN) begun")
            return None
        requests = tuple(before.requests)
        return Flood(flood.origin, requests, before.fresh, flood.wave, flood.version)


class _Waiting(NamedTuple):
    """A flood that has yet to be passed on; `sender` is who has asked, or nobody."""

    flood: Flood
    sender: Peer | None
    wave: int | None


class _Echo:
    """A wave on its way: who asked, and which neighbours have still to answer."""

    __slots__ = ("is_moot", "requester", "unreached", "waiting", "wave")

    def __init__(self, requester: Peer, wave: int, waiting: list[Peer]) -> None:
        self.requester = requester
        self.wave = wave
        self.waiting = dict.fromkeys(waiting)
        self.unreached: set[str] = set()
        self.is_moot = False
        """True if the requester is gone."""

    def answer(self) -> Send:
        return Send(self.requester, Settled(self.wave, tuple(sorted(self.unreached))))


class _Echoes:
    """The waves that this broker has passed on, by its own numbers."""

    def __init__(self) -> None:
        self._open: dict[int, _Echo] = {}
        self._next = 0

    def begin(self, requester: Peer, wave: int, others: list[Peer]) -> tuple[int, list[Send]]:
        """Pass a wave on to others: its number there, and the answer if there are none."""
        number, echo = self._next, _Echo(requester, wave, others)
        self._next += 1
        if not others:
            return number, [echo.answer()]
        self._open[number] = echo
        return number, []

    def close(self, sender: Peer, message: Settled) -> list[Send]:
        """A neighbour, and all beyond that it passed the wave to, have this version."""
        echo = self._open.get(message.wave)
        if echo is None or sender not in echo.waiting:
            raise IllegalMessage(sender, f"wave {message.wave} is not open there")
        return self._close(message.wave, sender, message.unreached)

    def forget(self, peer: Peer) -> list[Send]:
        """A peer is gone: what it asked is moot, and what waits for it is unreached."""
        answers: list[Send] = []
        for number, echo in list(self._open.items()):
            if echo.requester == peer:
                echo.is_moot = True  # answers to it are on their way, and legal
            elif peer in echo.waiting:
                answers += self._close(number, peer, (peer.name,))
        return answers

    def _close(self, number: int, peer: Peer, unreached: tuple[str, ...]) -> list[Send]:
        echo = self._open[number]
        del echo.waiting[peer]
        echo.unreached.update(unreached)
        if echo.waiting:
            return []
        del self._open[number]
        return [] if echo.is_moot else [echo.answer()]


class _Tree:
    """The tree of one source as one broker sees it."""

    __slots__ = ("before", "hops")

    def __init__(self, parents: dict[str, str], name: str) -> None:
        self.before = parents.get(name)
        """The neighbour from which events come; the broker itself at the source."""
        self.hops: dict[str, str] = {}
        """For each broker below, the child of this one on the way there."""
        for broker, parent in parents.items():
            if parent == name and broker != name:
                self.hops[broker] = broker
            elif parent in self.hops:
                self.hops[broker] = self.hops[parent]

    def leads_otherwise(self, later: _Tree) -> bool:
        """Return whether events that took this tree take another way in a later one."""
        if self.before is not None and self.before != later.before:
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
        self._links: dict[Peer, _Parts] = {}
        """Neighbours, and what has come in part from each."""
        self._link_costs: dict[Peer, int] = {}
        """The costs of links, also those that are down: they come back as they were."""
        self._states = LinkStates(name)
        self._trees: dict[str, _Tree] = {}
        self._numbers = LastNumbers()
        self._echoes = _Echoes()
        self.routing_version = 0
        """Grows when known events take other paths."""
        self._bides = False
        self._waiting: list[_Waiting] = []
        """Floods that are to continue after the reports of links."""
        self._answers: list[Send] = []
        """Answers to waves, likewise."""

    @property
    def peers(self) -> list[Peer]:
        """All attached peers: clients, then neighbours."""
        return [*self._clients, *self._links]

    def begin(self, version: int) -> None:
        """Count versions from here: above those of earlier lives, so that what was sent in one is
        outdone. The time in microseconds will do, or anything else that grows faster than changes.
        """
        self._versions = {self.name: version}

    # --- the Router protocol ---

    def attach(self, peer: Peer) -> list[Send]:
        """Add a peer that has connected. A neighbour is sent all link states and all summaries."""
        if peer in self._clients or peer in self._links:
            raise ValueError(f"{peer} is attached already; detach it first")
        if peer.is_client:
            self._clients[peer] = None
            self._tables.local.enrol(peer)
            return []
        self._links[peer] = _Parts()
        known = [Send(peer, state) for state in self._states.others()]
        summaries = [Send(peer, self._summary(origin)) for origin in self._versions]
        return known + self._links_changed() + summaries

    def detach(self, peer: Peer) -> list[Send]:
        """Forget a peer that is gone."""
        if peer in self._clients:
            del self._clients[peer]
            self._tables.local.dismiss(peer)
            return self._tell() + self._forget_waves(peer)
        if peer not in self._links:
            raise ValueError(f"{peer} is not attached")
        del self._links[peer]
        return self._links_changed() + self._forget_waves(peer)

    def receive(self, sender: Peer, message: Control) -> list[Send]:
        """Act on a message of a peer."""
        if sender not in self._clients and sender not in self._links:
            raise IllegalMessage(sender, "it is not attached")
        match message:
            case Batch() if sender.is_client:
                self._tables.follow(sender, message)
                return self._tell(sender, message.wave)
            case LinkState() if not sender.is_client:
                return self._learn(sender, (message,))
            case LinkTable(states) if not sender.is_client:
                return self._learn(sender, states)
            case Flood() if not sender.is_client:
                return self._hear(sender, message)
            case Settled() if not sender.is_client:
                return self._answered(self._echoes.close(sender, message))
        raise IllegalMessage(sender, f"{type(message).__name__} has no meaning here")

    def route(self, sender: Peer, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the peers that events go to. It notes their numbers, and selects nothing for the
        same events again.
        """
        source = self.name if sender.is_client else parcel.source
        tree = self._tree(source) if source in self._states.known else None
        if tree is None or (not sender.is_client and tree.before != sender.name):
            return {}
        new = self._numbers.news(parcel)
        if new is NONE_NEW or not new.any():
            return {}
        found = self._tables.clients(parcel)
        for name, mask in self._brokers(parcel, tree).items():
            via = Peer.broker(tree.hops[name])
            found[via] = found[via] | mask if via in found else mask
        found.pop(sender, None)
        return _narrowed(found, new)

    def local(self, parcel: Parcel) -> dict[Peer, RowMask]:
        """Select the clients here that want addressed events. It notes their numbers, as `route`
        does.
        """
        new = self._numbers.news(parcel)
        return {} if new is NONE_NEW else _narrowed(self._tables.clients(parcel), new)

    def destined(self, sender: Peer, parcel: Parcel) -> Destined:
        """Name the brokers and clients that want events; note numbers, as `route` does."""
        new = self._numbers.news(parcel)
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
        """Those below this one in a tree that want some events."""
        wanted = self._tables.brokers(parcel)
        return {name: mask for name, mask in wanted.items() if name in tree.hops}

    # --- trees ---

    def unsettle(self) -> None:
        """Have the next wave go to all neighbours. Waves go to all neighbours."""

    def set_link_cost(self, peer: Peer, cost: int) -> list[Send]:
        """Set what the link to a neighbour weighs."""
        if not is_notable_change(self._link_costs.get(peer, 1), cost):
            return []
        self._link_costs[peer] = cost
        return self._links_changed() if peer in self._links else []

    def _tree(self, source: str) -> _Tree:
        tree = self._trees.get(source)
        if tree is None:
            ways = shortest_paths(self._states.graph, source)
            tree = self._trees[source] = _Tree(ways.parents, self.name)
        return tree

    def _replant(self) -> None:
        """Links have changed: trees are made again, and it is noted if ways are others."""
        before, self._trees = self._trees, {}
        is_much = len(before) * len(self._states.known) > MOST_COMPARED
        if before and (
            is_much
            or any(tree.leads_otherwise(self._tree(source)) for source, tree in before.items())
        ):
            self.routing_version += 1

    def _links_changed(self) -> list[Send]:
        """Our own list of links is another."""
        self._states.renew({peer.name: self._link_costs.get(peer, 1) for peer in self._links})
        return self._told()

    def _learn(self, sender: Peer, states: Iterable[LinkState]) -> list[Send]:
        found = {self._states.learn(each, sender) for each in states}
        if LinkNews.MINE in found:
            return self._links_changed()
        return self._told() if found != {LinkNews.OLD} else []

    def _told(self) -> list[Send]:
        """Flood what is new: now, unless that is to wait."""
        self._replant()
        return [] if self._bides else self.uncork()

    # --- what is new ---

    def cork(self) -> None:
        """Keep changes of links for `uncork`."""
        self._bides = True

    @property
    def has_pending_updates(self) -> bool:
        """True if changes of links wait for `uncork`."""
        return self._states.has_news

    def uncork(self) -> list[Send]:
        """Flood changes of links, and follow them. No wave continues before, nor an answer: who has
        answered knows the ways.
        """
        news = self._states.news(self._links)
        waiting, self._waiting = self._waiting, []
        answers, self._answers = self._answers, []
        return news + answers + [send for each in waiting for send in self._spread(*each)]

    # --- summaries ---

    def _summary(self, origin: str) -> Flood:
        requests = self._tables.standing(origin)
        return Flood(origin, requests, fresh=True, version=self._versions[origin])

    def _tell(self, requester: Peer | None = None, wave: int | None = None) -> list[Send]:
        """Flood what changed in our own summary; a wave goes even where nothing did."""
        requests = self._tables.news()
        if not requests and wave is None:
            return []
        self._versions[self.name] += 1
        flood = Flood(self.name, requests, version=self._versions[self.name])
        return self._spread(flood, requester, wave)

    def _hear(self, sender: Peer, flood: Flood) -> list[Send]:
        """A summary of another origin, or what changed in it."""
        origin = flood.origin
        known = self._versions.get(origin)
        if origin == self.name or not self._is_news(flood, known):
            answers = [] if flood.wave is None else [Send(sender, Settled(flood.wave))]
            return answers + self._outdo(flood)
        whole = self._links[sender].put_together(sender, flood)
        if whole is None:
            return []
        flood = whole
        if known is not None and not flood.fresh and flood.version - 1 != known:
            raise IllegalMessage(sender, f"version {flood.version} of {origin} follows {known}")
        self._tables.learn(sender, flood)
        self._versions[origin] = flood.version
        return self._spread(flood, sender, flood.wave)

    def _is_news(self, flood: Flood, known: int | None) -> bool:
        """Return whether it is a possible version of a possible broker, and was not known."""
        if known is None:
            return flood.version < MAX_VERSION and len(self._versions) < MAX_ORIGINS
        return known < flood.version < MAX_VERSION

    def _outdo(self, flood: Flood) -> list[Send]:
        """Outdo what an earlier incarnation of this broker flooded by a clock that was ahead."""
        mine = self._versions[self.name]
        if flood.origin != self.name or not mine < flood.version < MAX_VERSION - 1:
            return []
        self._versions[self.name] = flood.version + 1
        return [Send(peer, self._summary(self.name)) for peer in self._links]

    def _spread(self, flood: Flood, sender: Peer | None, wave: int | None) -> list[Send]:
        """Pass a flood to all neighbours but the one it came from: after news of links, if it is a
        wave or follows one.
        """
        if self._waiting or (wave is not None and self.has_pending_updates):
            self._waiting.append(_Waiting(flood, sender, wave))
            return []
        others = [each for each in self._links if each != sender]
        number: int | None = None
        answers: list[Send] = []
        if wave is not None and sender is not None:
            number, answers = self._echoes.begin(sender, wave, others)
        on = Flood(flood.origin, flood.requests, flood.fresh, number, flood.version)
        return [Send(peer, on) for peer in others] + answers

    # --- waves ---

    def _answered(self, answers: list[Send]) -> list[Send]:
        """Answer waves: after news of links, if there are any."""
        if self.has_pending_updates:
            self._answers += answers
            return []
        return answers

    def _forget_waves(self, peer: Peer) -> list[Send]:
        """A peer is gone: nothing is answered to it, and it answers nothing."""
        self._answers = [each for each in self._answers if each.to != peer]
        self._waiting = [
            _Waiting(each.flood, None, None) if each.sender == peer else each
            for each in self._waiting
        ]
        return self._answered(self._echoes.forget(peer))


def _narrowed(found: dict[Peer, RowMask], new: RowMask) -> dict[Peer, RowMask]:
    """Restrict where events go to those that are new."""
    return found if new is ALL_NEW or new.all() else narrowed(found, new)
