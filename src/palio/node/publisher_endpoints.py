"""`PublisherEndpoints`: the endpoints in the routing table where sessions publish and advertise.

A session has its own endpoint, or shares one with all sessions of its identity (siena 3): what one
of them advertises is valid for the events of all of them at this broker.
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
"""A session, and its key of an advertisement."""


class _Endpoint:
    """One endpoint: its sessions, and their advertisements under numbers of this broker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sessions: dict[str, Session] = {}
        self.offers: dict[_Key, tuple[int, Advertisement]] = {}
        self.numbers = count()


class PublisherEndpoints:
    """The endpoints of one broker, each from its first use to the end of its last session."""

    def __init__(self, router: Router, route: Callable[[Iterable[Send]], None]) -> None:
        self._router = router
        self._route = route
        self._by_session: dict[str, _Endpoint] = {}
        self._by_identity: dict[str, _Endpoint] = {}

    def of(self, session: Session) -> Peer:
        """Return the endpoint where a session publishes and advertises.

        It is not the endpoint where the session subscribes: events are never routed back to their
        source, and clients expect to receive their own events if they subscribe to them.
        """
        if session.endpoint is None:
            session.endpoint = self._endpoint_of(session).peer
        return session.endpoint

    def advertise(self, session: Session, key: int, offer: Advertisement) -> None:
        """Advertise events under a key of the session, replacing its advertisement there."""
        endpoint = self._endpoint_of(session)
        before = endpoint.offers.get((session.id, key))
        if before is None and len(endpoint.offers) >= MAX_ADVERTISEMENTS:
            raise LimitExceeded(
                "the number of advertisements of an identity, or of a session without one",
                limit="MAX_ADVERTISEMENTS",
                maximum=MAX_ADVERTISEMENTS,
            )
        number = next(endpoint.numbers) if before is None else before[0]
        endpoint.offers[session.id, key] = number, offer
        self._send(endpoint, Advertise(number, offer))

    def unadvertise(self, session: Session, key: int) -> None:
        """End the advertisement of a session under a key, if there is one."""
        endpoint = self._by_session.get(session.id)
        if endpoint is not None:
            self._drop(endpoint, [(session.id, key)])

    def withdraw(
        self, session: Session, advertisement: Advertisement
    ) -> list[tuple[Session, list[int]]]:
        """End all advertisements of the identity that `what` covers, and return the sessions and
        keys (siena's `unadvertise`). Beyond MAX_WITHDRAW_COMPARISONS it raises, and ends none.
        """
        endpoint, effort = self._endpoint_of(session), Effort(MAX_WITHDRAW_COMPARISONS)
        over = [
            key
            for key, (_, offer) in endpoint.offers.items()
            if offer == advertisement or covers_advertisement(advertisement, offer, effort=effort)
        ]
        if effort.is_spent:
            raise LimitExceeded(
                "the work to find out what that covers (withdraw one by one)",
                limit="MAX_WITHDRAW_COMPARISONS",
                maximum=MAX_WITHDRAW_COMPARISONS,
            )
        self._drop(endpoint, over)
        owners: dict[str, list[int]] = {}
        for owner, key in over:
            owners.setdefault(owner, []).append(key)
        return [(endpoint.sessions[owner], keys) for owner, keys in owners.items()]

    def end(self, session: Session) -> None:
        """Remove a session that is over, with its advertisements."""
        endpoint = self._by_session.pop(session.id, None)
        if endpoint is None:
            return
        del endpoint.sessions[session.id]
        if endpoint.sessions:
            self._drop(endpoint, [key for key in endpoint.offers if key[0] == session.id])
            return
        self._by_identity.pop(session.identity, None)
        self._route(self._router.detach(endpoint.peer))

    def _endpoint_of(self, session: Session) -> _Endpoint:
        endpoint = self._by_session.get(session.id)
        if endpoint is None:
            endpoint = self._by_identity.get(session.identity) or self._open(session)
            endpoint.sessions[session.id] = session
            self._by_session[session.id] = endpoint
        return endpoint

    def _open(self, session: Session) -> _Endpoint:
        if not session.identity:
            endpoint = _Endpoint(Peer.session(f"{session.id} publishing"))
        else:
            endpoint = _Endpoint(Peer.session(f"identity {session.identity}"))
            self._by_identity[session.identity] = endpoint
        self._route(self._router.attach(endpoint.peer))
        return endpoint

    def _drop(self, endpoint: _Endpoint, keys: Iterable[_Key]) -> None:
        dropped = [endpoint.offers.pop(key) for key in keys if key in endpoint.offers]
        if dropped:
            self._send(endpoint, *[Unadvertise(number) for number, _ in dropped])

    def _send(self, endpoint: _Endpoint, *requests: Request) -> None:
        self._route(self._router.receive(endpoint.peer, Batch(requests)))
