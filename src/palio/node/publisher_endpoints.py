"""`PublisherEndpoints`: the places in the routing table from which sessions publish and advertise.

A session has one of its own, or shares one with all sessions that act under its identity (siena 3):
what one of them advertises counts for what any of them publishes at this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeAlias

from palio.errors import LimitExceeded
from palio.model.advertisements import Advertisement
from palio.model.limits import Effort
from palio.model.relations import covers_advertisement
from palio.node.limits import MAX_ADVERTISEMENTS, MAX_WITHDRAW_COMPARISONS
from palio.node.sessions import Session
from palio.routing.messages import Advertise, Batch, Request, Unadvertise
from palio.routing.protocol import Peer, Router, Send

_Key: TypeAlias = tuple[str, int]
"""A session, and its number for an advertisement."""


class _Endpoint:
    """One place: who publishes there, and what was advertised, under numbers of this broker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sessions: dict[str, Session] = {}
        self.offers: dict[_Key, tuple[int, Advertisement]] = {}
        self.numbers = count()


class PublisherEndpoints:
    """The publisher_endpoints of one broker, each from its first use until the last of its
    sessions is over.
    """

    def __init__(self, router: Router, carry: Callable[[Iterable[Send]], None]) -> None:
        self._router = router
        self._carry = carry
        self._by_session: dict[str, _Endpoint] = {}
        self._by_identity: dict[str, _Endpoint] = {}

    def of(self, session: Session) -> Peer:
        """The place from which a session publishes and advertises.

        It is not that from which it subscribes, since an event never goes back to where it came
        from, and clients that publish what they subscribe to expect to hear it.
        """
        if session.outlet is None:
            session.outlet = self._outlet(session).peer
        return session.outlet

    def advertise(self, session: Session, key: int, offer: Advertisement) -> None:
        """Announce events under a key of the session; what it announced under that is over."""
        outlet = self._outlet(session)
        known = outlet.offers.get((session.id, key))
        if known is None and len(outlet.offers) >= MAX_ADVERTISEMENTS:
            raise LimitExceeded(
                "the number of advertisements of an identity, or of a session without one",
                limit="MAX_ADVERTISEMENTS",
                maximum=MAX_ADVERTISEMENTS,
            )
        number = next(outlet.numbers) if known is None else known[0]
        outlet.offers[session.id, key] = number, offer
        self._tell(outlet, Advertise(number, offer))

    def unadvertise(self, session: Session, key: int) -> None:
        """End what a session announced under a key; nothing if there is nothing."""
        outlet = self._by_session.get(session.id)
        if outlet is not None:
            self._drop(outlet, [(session.id, key)])

    def withdraw(self, session: Session, what: Advertisement) -> list[tuple[Session, list[int]]]:
        """siena's `unadvertise`: end all that `what` covers, whichever session of the identity has
        announced it. Whose they were, and their keys. What takes too long ends none of them.
        """
        outlet, effort = self._outlet(session), Effort(MAX_WITHDRAW_COMPARISONS)
        over = [
            key
            for key, (_, offer) in outlet.offers.items()
            if offer == what or covers_advertisement(what, offer, effort=effort)
        ]
        if effort.is_spent:
            raise LimitExceeded(
                "the work to find out what that covers (withdraw one by one)",
                limit="MAX_WITHDRAW_COMPARISONS",
                maximum=MAX_WITHDRAW_COMPARISONS,
            )
        self._drop(outlet, over)
        owners: dict[str, list[int]] = {}
        for owner, key in over:
            owners.setdefault(owner, []).append(key)
        return [(outlet.sessions[owner], keys) for owner, keys in owners.items()]

    def leave(self, session: Session) -> None:
        """A session is over, and with it what it announced."""
        outlet = self._by_session.pop(session.id, None)
        if outlet is None:
            return
        del outlet.sessions[session.id]
        if outlet.sessions:
            self._drop(outlet, [key for key in outlet.offers if key[0] == session.id])
            return
        self._by_identity.pop(session.identity, None)
        self._carry(self._router.detach(outlet.peer))

    def _outlet(self, session: Session) -> _Endpoint:
        outlet = self._by_session.get(session.id)
        if outlet is None:
            outlet = self._by_identity.get(session.identity) or self._opened(session)
            outlet.sessions[session.id] = session
            self._by_session[session.id] = outlet
        return outlet

    def _opened(self, session: Session) -> _Endpoint:
        if not session.identity:
            outlet = _Endpoint(Peer.session(f"{session.id} publishing"))
        else:
            outlet = _Endpoint(Peer.session(f"identity {session.identity}"))
            self._by_identity[session.identity] = outlet
        self._carry(self._router.attach(outlet.peer))
        return outlet

    def _drop(self, outlet: _Endpoint, keys: Iterable[_Key]) -> None:
        known = [outlet.offers.pop(key) for key in keys if key in outlet.offers]
        if known:
            self._tell(outlet, *[Unadvertise(number) for number, _ in known])

    def _tell(self, outlet: _Endpoint, *requests: Request) -> None:
        self._carry(self._router.receive(outlet.peer, Batch(requests)))
