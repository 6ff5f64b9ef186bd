"""`Membership`: adds and removes peers at run time, as operators ask.

1. An added address is dialed like a configured one. It is kept in a fact of this broker (`PEERS`),
   so with a disk it is dialed after a restart, too.
2. Adding succeeds once the link is up. If no broker answers, one end refuses, or the link would
   close a circle in a tree, the request fails with the reason, and nothing is added.
3. A peer is removed once paths avoid its link (`palio.node.link_drain`). Then both ends stop
   dialing each other, and this broker rejects the peer until it is added here, or this broker
   restarts: then the configuration counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from palio.errors import (
    InvalidInput,
    LimitExceeded,
    NotPermitted,
    PalioError,
    Unreachable,
)
from palio.node.core import Core
from palio.node.effects import Dial, StopDialing
from palio.node.fact_verifier import PEERS
from palio.node.limits import MAX_PEERS, REASON_CHARS
from palio.node.link_drain import LinkDrain
from palio.node.links import Link, Links
from palio.node.peer_discovery import PeerDiscovery
from palio.node.sessions import Session
from palio.protocol.addresses import parse_address
from palio.protocol.failures import error_of, failure
from palio.protocol.messages import AddPeer, Answer, Bye, Failed, Failure, RemovePeer

ADD_TIMEOUT_HEARTBEATS: Final = 10
"""Heartbeats after which adding fails, if the broker accepts connections and sends nothing."""


class _Adding:
    """A client's request that waits for a link."""

    __slots__ = ("id", "session", "until")

    def __init__(self, session: Session, id: int, until: float) -> None:
        self.session = session
        self.id = id
        self.until = until


class Membership:
    """The peers that were added to one broker, or removed from it."""

    def __init__(
        self, core: Core, links: Links, link_drain: LinkDrain, peer_discovery: PeerDiscovery
    ) -> None:
        self._core = core
        self._links = links
        self._link_drain = link_drain
        self._peer_discovery = peer_discovery
        self._cluster_state = core.durability.cluster_state
        # By normalized address, its spelling in the configuration.
        self._configured = {str(parse_address(url)): url for url in core.settings.peers}
        self._added: dict[str, None] = {}
        # By dialed address, the broker that has answered there.
        self._names: dict[str, str] = {}
        # By rejected broker, the addresses at which it was dialed.
        self._removed: dict[str, list[str]] = {}
        # By address, the pending request.
        self._adding: dict[str, _Adding] = {}

    def begin(self) -> None:
        """Dial the addresses that an earlier incarnation of this broker was given."""
        fact = self._cluster_state.fact(self._core.name, PEERS)
        for url in (fact.filter if fact is not None else "").split():
            self._added[url] = None
            self._peer_discovery.kept.add(url)
            self._core.out.append(Dial(url, ""))

    # --- requests of clients ---

    def serve(self, session: Session, request: AddPeer | RemovePeer) -> None:
        """Serve a client's request; errors go to the client."""
        try:
            if isinstance(request, AddPeer):
                session.principal.check_operate("add brokers")
                self._add(session, request)
            else:
                session.principal.check_operate("remove brokers")
                self._remove(session, request)
        except PalioError as error:
            session.send(self._core.out, Failed(request.id, failure(error)))

    def _add(self, session: Session, request: AddPeer) -> None:
        """Dial an address, and answer once the link is up."""
        core = self._core
        url = str(parse_address(request.url))
        if url == str(core.address_book.of(core.name)):
            raise InvalidInput(f"{url} is {core.name!r} itself")
        if url in self._adding:
            raise InvalidInput(f"{url} is being added already; wait for that")
        if len(self._added) + len(self._adding) >= MAX_PEERS:
            raise LimitExceeded("brokers that were added", limit="MAX_PEERS", maximum=MAX_PEERS)
        name = self._names.get(url, "") or self._neighbour_at(url)
        if name in self._link_drain:
            raise _draining_error(name)
        for each in self._removed_at(url):
            del self._removed[each]
        timeout_s = ADD_TIMEOUT_HEARTBEATS * core.settings.peer_heartbeat_s
        self._adding[url] = _Adding(session, request.id, core.at.now + timeout_s)
        self._peer_discovery.kept.add(url)
        core.out.append(Dial(self._dialed_form(url), name))  # no effect if it is dialed already
        if self._is_up(name):
            self._names[url] = name
            self._complete(url, name)

    def _remove(self, session: Session, request: RemovePeer) -> None:
        """Drain the link to a peer, and answer then. A disconnected peer, or one that refuses this
        broker, is only dialed no longer.
        """
        core, name = self._core, request.name
        if name not in core.neighbours:
            if self._dialed_at(name):
                self._on_drained(session, request)
                return
            names = ", ".join(sorted(core.neighbours)) or "none"
            raise InvalidInput(f"{name!r:.80} is not a peer of {core.name!r}; its peers: {names}")
        if name in self._link_drain:
            raise InvalidInput(f"the link to {name!r} is being drained")
        core.report("info", "peer_removal_started", peer=name, by=session.owner)
        done = partial(self._on_drained, session, request)
        bye = Bye("removed", f"{name!r} was removed from the peers of {core.name!r}")
        self._link_drain.begin(name, bye, done)

    def _on_drained(self, session: Session, request: RemovePeer) -> None:
        urls = self._block(request.name)
        self._removed[request.name] = urls
        if len(self._removed) > MAX_PEERS:
            del self._removed[next(iter(self._removed))]
        self._core.report("info", "peer_removed", peer=request.name)
        configured = [url for url in urls if url in self._configured]
        self._answer(session, request.id, {"peer": request.name, "configured": configured})

    def _neighbour_at(self, url: str) -> str:
        """Return the connected peer that announces an address; it may have dialed this broker."""
        address_of = self._core.address_book.of
        up = (name for name in self._core.neighbours if self._is_up(name))
        return next((name for name in up if url == str(address_of(name))), "")

    def _linked_at(self, url: str) -> str:
        """Return the connected peer that has answered at an address, or announces it."""
        name = self._names.get(url, "")
        return name if self._is_up(name) else self._neighbour_at(url)

    def _removed_at(self, url: str) -> list[str]:
        """Return the removed brokers at an address. Where each of two brokers was removed at the
        other, adding at one end also admits the other.
        """
        address_of = self._core.address_book.of
        return [
            name
            for name, urls in self._removed.items()
            if url in urls or url == str(address_of(name))
        ]

    def _block(self, name: str) -> list[str]:
        """Stop dialing a broker; return the addresses at which it was dialed."""
        self._peer_discovery.block(name)
        urls = self._dialed_at(name)
        for url in urls:
            self._stop_dialing(url)
        return urls

    def _dialed_at(self, name: str) -> list[str]:
        """Return the dialed addresses at which a broker has answered, or which it announces."""
        announced = str(self._core.address_book.of(name) or "")
        dialed = dict.fromkeys((*self._names, *self._configured, *self._added))
        return [
            url
            for url in dialed
            if self._names.get(url) == name or (url == announced and url not in self._names)
        ]

    def peers(self) -> list[dict[str, Any]]:
        """Return the peers of this broker and the addresses that it dials, for operators."""
        core = self._core
        dialed = {
            **dict.fromkeys(self._configured, "configured"),
            **dict.fromkeys(self._added, "added"),
            **dict.fromkeys(self._peer_discovery.urls, "found"),
        }
        listed = []
        for url, kind in dialed.items():
            name = self._names.get(url, "") or self._neighbour_at(url)
            listed.append({"peer": name, "url": url, "kind": kind, "up": self._is_up(name)})
        names = {each["peer"] for each in listed}
        listed += [
            {"peer": name, "url": "", "kind": "dials", "up": self._is_up(name)}
            for name in core.neighbours
            if name not in names
        ]
        return sorted(listed, key=lambda each: (each["peer"], each["url"]))

    def _is_up(self, name: str) -> bool:
        neighbour = self._core.neighbours.get(name)
        return neighbour is not None and neighbour.link is not None

    # --- outcomes of dialing ---

    def check(self, name: str, url: str = "") -> None:
        """Refuse a removed broker (`NotPermitted`), unless it is being added."""
        if url and str(parse_address(url)) in self._adding:
            self._removed.pop(name, None)
        if name in self._removed:
            raise NotPermitted(
                f"{name!r} was removed from the peers of {self._core.name!r}; "
                "palio peer add it there"
            )
        self._peer_discovery.blocked_peers.pop(name, None)

    def dials(self, url: str) -> bool:
        """Return whether an address is still to be dialed."""
        address = str(parse_address(url))
        dialed = (self._configured, self._added, self._adding, self._peer_discovery.urls)
        return any(address in urls for urls in dialed)

    def linked(self, link: Link) -> None:
        """Note a dialed broker that is a peer now, and complete its adding."""
        if link.url and link.session is not None:
            url = str(parse_address(link.url))
            self._names[url] = link.session.peer.name
            if url in self._adding:
                self._complete(url, link.session.peer.name)

    def unreachable(self, url: str, reason: str) -> None:
        """Fail the adding of an address to which no connection was possible."""
        self._fail(url, Unreachable(f"{url} cannot be reached: {reason[:REASON_CHARS]}"))

    def rejected_here(self, link: Link, error: PalioError) -> None:
        """Fail the adding of an address whose broker this one rejects."""
        self._fail(link.url, error)

    def rejected_by_peer(self, link: Link, bye: Bye) -> None:
        """Stop dialing a peer that has removed this broker; fail the adding of another."""
        if bye.code == "removed" and link.session is not None:
            self._block(link.session.peer.name)
        elif bye.code != "duplicate":
            why = f"{link.url} refuses: {bye.reason[:REASON_CHARS]}"
            self._fail(link.url, error_of(Failure(bye.code, why)))

    def tick(self) -> None:
        """Complete or expire pending requests. The broker to be added may have dialed this one
        meanwhile.
        """
        for url, adding in list(self._adding.items()):
            name = self._linked_at(url)
            if name:
                self._names[url] = name
                self._complete(url, name)
            elif self._core.at.now > adding.until:
                self._fail(url, Unreachable(f"{url} does not answer as a broker does"))

    @property
    def is_waiting(self) -> bool:
        """True if a request waits for a link."""
        return bool(self._adding)

    def _complete(self, url: str, name: str) -> None:
        if name in self._link_drain:
            self._fail(url, _draining_error(name))
            return
        adding = self._adding.pop(url)
        self._removed.pop(name, None)
        if url not in self._configured:
            self._added[url] = None
            self._store_added()
        self._core.report("info", "peer_added", peer=name, url=url, by=adding.session.owner)
        data = {"peer": name, "url": url, "remembered": self._core.settings.has_disk}
        self._answer(adding.session, adding.id, data)

    def _fail(self, url: str, error: PalioError) -> None:
        address = str(parse_address(url)) if url else ""
        adding = self._adding.pop(address, None)
        if adding is None:
            return
        if address not in self._added and address not in self._configured:
            self._peer_discovery.kept.discard(address)
            if address not in self._peer_discovery.urls:
                self._core.out.append(StopDialing(url))
        if self._core.sessions.get(adding.session.id) is adding.session:
            adding.session.send(self._core.out, Failed(adding.id, failure(error)))

    def _stop_dialing(self, url: str) -> None:
        """Stop dialing an address, and forget that it was added."""
        self._core.out.append(StopDialing(self._dialed_form(url)))
        self._names.pop(url, None)
        if url in self._added:
            del self._added[url]
            self._peer_discovery.kept.discard(url)
            self._store_added()

    def _dialed_form(self, url: str) -> str:
        """Return an address as the configuration spells it, by which the server dials it."""
        return self._configured.get(url, url)

    def _store_added(self) -> None:
        self._cluster_state.announce(PEERS, filter=" ".join(self._added))

    def _answer(self, session: Session, id: int, data: dict[str, Any]) -> None:
        """Answer once the addresses to dial are on the disk."""
        self._core.when_written(partial(self._send_answer, session, id, data))

    def _send_answer(self, session: Session, id: int, data: dict[str, Any]) -> None:
        if self._core.sessions.get(session.id) is session:
            session.send(self._core.out, Answer(id, data))


def _draining_error(name: str) -> InvalidInput:
    return InvalidInput(f"the link to {name!r} is being drained; add it after that")
