"""`Membership`: brokers that somebody has this one linked to, or parted from, while it runs.

1. What is added is dialled as what the configuration names, and remembered in a fact of this
   broker (`PEERS`): it is dialled again after a restart, if there is a disk.
2. A link is added once it is up. If it cannot be, because nobody is there, one end refuses, or it
   would close a circle, the asker is informed why, and nothing is added.
3. A neighbour is removed once ways lead round it (`palio.node.link_drain`). Both ends dial each
other
   no longer, and this one lets it in no more, until it is added here or this broker starts again:
   then its configuration counts.
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
"""Heartbeats for which a broker that takes connections may keep silent until it is given up."""


class _Adding:
    """Somebody waits for a link."""

    __slots__ = ("id", "session", "until")

    def __init__(self, session: Session, id: int, until: float) -> None:
        self.session = session
        self.id = id
        self.until = until


class Membership:
    """The neighbours of one broker that were added or removed."""

    def __init__(
        self, core: Core, links: Links, link_drain: LinkDrain, peer_discovery: PeerDiscovery
    ) -> None:
        self._core = core
        self._links = links
        self._link_drain = link_drain
        self._peer_discovery = peer_discovery
        self._cluster_state = core.durability.cluster_state
        self._configured = {str(parse_address(url)): url for url in core.settings.peers}
        """By address, how the configuration writes it."""
        self._added: dict[str, None] = {}
        self._names: dict[str, str] = {}
        """By address that is dialled, who has answered there."""
        self._removed: dict[str, list[str]] = {}
        """Brokers that are not let in, and where they were dialled."""
        self._adding: dict[str, _Adding] = {}
        """By address."""

    def begin(self) -> None:
        """The broker starts: what was added in an earlier incarnation is dialled."""
        fact = self._cluster_state.fact(self._core.name, PEERS)
        for url in (fact.filter if fact is not None else "").split():
            self._added[url] = None
            self._peer_discovery.kept.add(url)
            self._core.out.append(Dial(url, ""))

    # --- what clients ask for ---

    def serve(self, session: Session, request: AddPeer | RemovePeer) -> None:
        """Do what a client asks for; what is wrong with it is told to the client."""
        try:
            if isinstance(request, AddPeer):
                session.principal.check_operate("add brokers")
                self._add(session, request)
            else:
                session.principal.check_operate("remove brokers")
                self._remove(session, request)
        except PalioError as error:
            session.say(self._core.out, Failed(request.id, failure(error)))

    def _add(self, session: Session, request: AddPeer) -> None:
        """Link this broker to another, and answer once that is so."""
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
        core.out.append(Dial(self._dialed_form(url), name))  # it may be dialled already
        if self._is_up(name):
            self._names[url] = name
            self._complete(url, name)

    def _remove(self, session: Session, request: RemovePeer) -> None:
        """Part from a neighbour once ways lead round it, and answer then. Who is away
        or refuses this broker is dialled no more.
        """
        core, name = self._core, request.name
        if name not in core.neighbours:
            if self._dialed_at(name):
                self._on_drained(session, request)
                return
            known = ", ".join(sorted(core.neighbours)) or "none"
            raise InvalidInput(f"{name!r:.80} is no neighbour of {core.name!r}; there are: {known}")
        if name in self._link_drain:
            raise InvalidInput(f"the link to {name!r} is about to end")
        core.report("info", "removing", peer=name, by=session.owner)
        done = partial(self._on_drained, session, request)
        bye = Bye("removed", f"{core.name!r} was told to part from {name!r}")
        self._link_drain.begin(name, bye, done)

    def _on_drained(self, session: Session, request: RemovePeer) -> None:
        urls = self._block(request.name)
        self._removed[request.name] = urls
        if len(self._removed) > MAX_PEERS:
            del self._removed[next(iter(self._removed))]
        self._core.report("info", "removed", peer=request.name)
        configured = [url for url in urls if url in self._configured]
        self._answer(session, request.id, {"peer": request.name, "configured": configured})

    def _neighbour_at(self, url: str) -> str:
        """Return the broker linked to this one, perhaps since it has dialled, at an address."""
        address_of = self._core.address_book.of
        up = (name for name in self._core.neighbours if self._is_up(name))
        return next((name for name in up if url == str(address_of(name))), "")

    def _linked_at(self, url: str) -> str:
        """Return the broker linked to this one at an address, or that has answered there."""
        name = self._names.get(url, "")
        return name if self._is_up(name) else self._neighbour_at(url)

    def _removed_at(self, url: str) -> list[str]:
        """Brokers that were removed and are at an address, as far as is known. If each of two was
        told to part from the other, this one lets the other in as soon as it is to add it.
        """
        address_of = self._core.address_book.of
        return [
            name
            for name, urls in self._removed.items()
            if url in urls or url == str(address_of(name))
        ]

    def _block(self, name: str) -> list[str]:
        """Dial a broker no more; the addresses at which it was dialled."""
        self._peer_discovery.block(name)
        urls = self._dialed_at(name)
        for url in urls:
            self._stop_dialing(url)
        return urls

    def _dialed_at(self, name: str) -> list[str]:
        """Where a broker has answered, or says that it is."""
        said = str(self._core.address_book.of(name) or "")
        known = dict.fromkeys((*self._names, *self._configured, *self._added))
        return [
            url
            for url in known
            if self._names.get(url) == name or (url == said and url not in self._names)
        ]

    def peers(self) -> list[dict[str, Any]]:
        """The neighbours of this broker and the addresses that it dials, for people."""
        core = self._core
        dialled = {
            **dict.fromkeys(self._configured, "configured"),
            **dict.fromkeys(self._added, "added"),
            **dict.fromkeys(self._peer_discovery.urls, "found"),
        }
        listed = []
        for url, kind in dialled.items():
            name = self._names.get(url, "")
            listed.append({"peer": name, "url": url, "kind": kind, "up": self._is_up(name)})
        known = {each["peer"] for each in listed}
        listed += [
            {"peer": name, "url": "", "kind": "dials", "up": self._is_up(name)}
            for name in core.neighbours
            if name not in known
        ]
        return sorted(listed, key=lambda each: (each["peer"], each["url"]))

    def _is_up(self, name: str) -> bool:
        neighbour = self._core.neighbours.get(name)
        return neighbour is not None and neighbour.link is not None

    # --- what came of it ---

    def check(self, name: str, url: str = "") -> None:
        """Refuse a broker that was removed (`NotPermitted`), unless it is added again."""
        if url and str(parse_address(url)) in self._adding:
            self._removed.pop(name, None)
        if name in self._removed:
            raise NotPermitted(
                f"{name!r} was removed from the neighbours of {self._core.name!r}; "
                "palio peer add it there"
            )
        self._peer_discovery.blocked_peers.pop(name, None)

    def dials(self, url: str) -> bool:
        """Return whether an address is to be dialled, still."""
        address = str(parse_address(url))
        known = (self._configured, self._added, self._adding, self._peer_discovery.urls)
        return any(address in each for each in known)

    def linked(self, link: Link) -> None:
        """A broker that was dialled is a neighbour now."""
        if link.url and link.party is not None:
            url = str(parse_address(link.url))
            self._names[url] = link.party.peer.name
            if url in self._adding:
                self._complete(url, link.party.peer.name)

    def unreachable(self, url: str, reason: str) -> None:
        """Nobody could be connected to at an address."""
        self._fail(url, Unreachable(f"{url} cannot be reached: {reason[:REASON_CHARS]}"))

    def rejected_here(self, link: Link, error: PalioError) -> None:
        """This broker does not want who answers at an address."""
        self._fail(link.url, error)

    def rejected_by_peer(self, link: Link, bye: Bye) -> None:
        """The other end does not want this broker, or ends the link for good."""
        if bye.code == "removed" and link.party is not None:
            self._block(link.party.peer.name)
        elif bye.code != "duplicate":
            why = f"{link.url} refuses: {bye.reason[:REASON_CHARS]}"
            self._fail(link.url, error_of(Failure(bye.code, why)))

    def tick(self) -> None:
        """Time has passed. Who is to be added may have dialled this broker meanwhile."""
        for url, adding in list(self._adding.items()):
            name = self._linked_at(url)
            if name:
                self._names[url] = name
                self._complete(url, name)
            elif self._core.at.now > adding.until:
                self._fail(url, Unreachable(f"{url} does not answer as a broker does"))

    @property
    def is_waiting(self) -> bool:
        """True if somebody waits for a link."""
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
        self._core.report("info", "added", peer=name, url=url, by=adding.session.owner)
        told = {"peer": name, "url": url, "remembered": self._core.settings.has_disk}
        self._answer(adding.session, adding.id, told)

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
            adding.session.say(self._core.out, Failed(adding.id, failure(error)))

    def _stop_dialing(self, url: str) -> None:
        """Dial an address no longer."""
        self._core.out.append(StopDialing(self._dialed_form(url)))
        self._names.pop(url, None)
        if url in self._added:
            del self._added[url]
            self._peer_discovery.kept.discard(url)
            self._store_added()

    def _dialed_form(self, url: str) -> str:
        """An address as it is dialled."""
        return self._configured.get(url, url)

    def _store_added(self) -> None:
        self._cluster_state.announce(PEERS, filter=" ".join(self._added))

    def _answer(self, session: Session, id: int, data: dict[str, Any]) -> None:
        """Answer once it is on the disk whom this broker is to dial."""
        self._core.when_written(partial(self._send_answer, session, id, data))

    def _send_answer(self, session: Session, id: int, data: dict[str, Any]) -> None:
        if self._core.sessions.get(session.id) is session:
            session.say(self._core.out, Answer(id, data))


def _draining_error(name: str) -> InvalidInput:
    return InvalidInput(f"the link to {name!r} is about to end; add it after that")
