"""`Links`: the connections of a node by number, and how they end."""

from __future__ import annotations

from typing import Final

from palio.errors import PalioError
from palio.node.core import Core
from palio.node.effects import Close, Moment, Send
from palio.node.peer_authentication import PeerAuthentication
from palio.node.sessions import PeerSession
from palio.protocol.messages import Bye
from palio.protocol.transitions import ALLOWED, Speaker, State

_CALLS: Final = ALLOWED[Speaker.CALLER, State.GREETING]
_ANSWERS: Final = ALLOWED[Speaker.NEIGHBOUR, State.GREETING]


class Link:
    """A connection, before and after the handshake identifies its other end."""

    __slots__ = (
        "dialed",
        "handshake",
        "introduction",
        "last_received_at",
        "opened",
        "party",
        "transport_name",
        "url",
    )

    def __init__(
        self,
        at: Moment,
        introduction: PeerAuthentication,
        *,
        dialed: bool,
        transport_name: str = "",
        url: str = "",
    ) -> None:
        self.opened = self.last_received_at = at.now
        self.dialed = dialed
        self.url = url
        """The URL that this broker dialed, if known."""
        self.transport_name = transport_name
        self.introduction = introduction
        self.party: PeerSession | None = None
        self.handshake = _ANSWERS if dialed else _CALLS
        """The messages that are legal until there is a session."""


class Links:
    """All connections that are open."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._links: dict[int, Link] = {}
        self.get = self._links.get
        """A connection by its number; None for one that was closed."""

    def open(
        self, link: int, *, dialed: bool, transport_name: str = "", url: str = ""
    ) -> PeerAuthentication:
        """Register a connection, with the client name that its transport has proven, if any."""
        introduction = PeerAuthentication(self._core)
        self._links[link] = Link(
            self._core.at, introduction, dialed=dialed, transport_name=transport_name, url=url
        )
        return introduction

    def all(self) -> list[tuple[int, Link]]:
        """Return a copy of the open connections, safe against changes during iteration."""
        return list(self._links.items())

    def forget(self, link: int) -> None:
        """Remove a connection whose session has another connection or has ended."""
        self._links.pop(link, None)

    def lost(self, link: int) -> None:
        """Remove a lost connection, and mark its session as disconnected."""
        state = self._links.pop(link, None)
        if state is not None and state.party is not None:
            self.part(link, state.party)

    def part(self, link: int, party: PeerSession) -> None:
        """Mark a session as disconnected if this was its connection."""
        if party.link == link:
            party.link, party.disconnected_at = None, self._core.at.now

    def close(self, link: int, bye: Bye) -> None:
        """Send the reason, and close."""
        self._core.out += [Send(link, bye), Close(link, bye.code)]
        self.lost(link)

    def replaced(self, party: PeerSession, reason: str) -> None:
        """Close the former connection of a session that has another one or has ended."""
        if party.link is not None:
            self.forget(party.link)
            self._core.out.append(Close(party.link, reason))

    def hang_up(self, link: int, error: PalioError) -> None:
        """Refuse a connection, and log it."""
        self._core.warn("connection_rejected", "", 1, link=link, reason=str(error))
        self.close(link, Bye(type(error).__name__, str(error)))
