"""`Links`: the open connections of a node, by number; closes and rejects them."""

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
        "opened_at",
        "session",
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
        self.opened_at = self.last_received_at = at.now
        self.dialed = dialed
        self.url = url
        """The URL that this broker dialed, if known."""
        self.transport_name = transport_name
        self.introduction = introduction
        self.session: PeerSession | None = None
        self.handshake = _ANSWERS if dialed else _CALLS
        """The messages that are legal until the handshake opens a session."""


class Links:
    """All open connections."""

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

    def mark_lost(self, link: int) -> None:
        """Remove a lost connection, and mark its session as disconnected."""
        state = self._links.pop(link, None)
        session = None if state is None else state.session
        if session is not None and session.link == link:  # else it has another connection by now
            session.link, session.disconnected_at = None, self._core.at.now

    def close(self, link: int, bye: Bye) -> None:
        """Send the reason to the other end, and close the connection."""
        self._core.out += [Send(link, bye), Close(link, bye.code)]
        self.mark_lost(link)

    def close_replaced(self, session: PeerSession, reason: str) -> None:
        """Close the former connection of a session that has another one or has ended."""
        if session.link is not None:
            self.forget(session.link)
            self._core.out.append(Close(session.link, reason))

    def reject(self, link: int, error: PalioError) -> None:
        """Log an error, and close its connection with it as the reason."""
        self._core.warn("connection_rejected", "", 1, link=link, reason=str(error))
        self.close(link, Bye(type(error).__name__, str(error)))
