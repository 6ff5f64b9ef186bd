"""`Patience`: a client that is sent answers and never says that it got one is parted with.

Events stop by themselves where a window is full; answers are made as often as they are asked for.
What a client has not seen of them is kept, so there is a limit for each (`UNSEEN_BYTES`). Where all
together hold much, the limit is a fair share, so that they take no more from the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from palio.errors import LimitExceeded
from palio.node.core import Core
from palio.node.limits import LEAST_SHARE, UNSEEN_BYTES
from palio.node.links import Links
from palio.node.peers import Peers
from palio.node.sessions import Session

__all__ = ["Patience"]


class Patience:
    """How much clients may leave unseen."""

    def __init__(self, core: Core, links: Links, peers: Peers) -> None:
        self._core = core
        self._links = links
        self._peers = peers

    def ends(self, session: Session) -> bool:
        """Part with a client that has left too much unseen, before it is answered more; whether it
        has.
        """
        budget, stream = self._core.budget, session.stream
        maximum = UNSEEN_BYTES
        if stream.unseen_bytes <= maximum:
            if not budget.is_strained:
                return False
            maximum = max(budget.fair_share, LEAST_SHARE)
            if stream.unseen_answers <= maximum:
                return False
        self._core.has_follow_up = True
        if session.link is not None:
            what = "what a session was sent and has not seen"
            error = LimitExceeded(what, limit="UNSEEN_BYTES", maximum=maximum)
            self._links.hang_up(session.link, error)
        self._peers.end_session(session)
        return True

    def look(self) -> Iterator[int]:
        """Time has passed: part with those who ask nothing more, too, where much is held; session
        by session.
        """
        sessions = self._core.sessions
        for session in list(sessions.values()) if self._core.budget.is_strained else ():
            if sessions.get(session.id) is session:
                self.ends(session)
            yield 1
